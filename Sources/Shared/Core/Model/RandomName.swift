// Carillon · RandomName.swift
// SPDX-License-Identifier: Apache-2.0

/// Names for processes and connections: 96 random bits in lower-case letters and digits.
package enum RandomName {
    package static func make() -> String {
        String(UInt64.random(in: .min ... .max), radix: 36) + String(UInt32.random(in: .min ... .max), radix: 36)
    }
}
