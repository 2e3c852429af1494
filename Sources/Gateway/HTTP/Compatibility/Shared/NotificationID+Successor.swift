// Carillon · NotificationID+Successor.swift
// SPDX-License-Identifier: Apache-2.0

import Core

extension NotificationID {
    /// The id right after this one; the greatest is its own.
    var successor: NotificationID {
        if self.low < .max { return NotificationID(high: self.high, low: self.low + 1) }
        return self.high < .max ? NotificationID(high: self.high + 1, low: 0) : self
    }
}
