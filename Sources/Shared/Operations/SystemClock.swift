// Carillon · SystemClock.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import FoundationEssentials

extension Timestamp {
    /// Returns the machine's time.
    ///
    /// Core reads no clock, so the programs pass this to it.
    package static func now() -> Timestamp {
        Timestamp(microseconds: Int64(Date.now.timeIntervalSince1970 * 1_000_000))
    }
}
