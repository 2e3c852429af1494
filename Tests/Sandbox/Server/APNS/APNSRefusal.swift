// Carillon · APNSRefusal.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// An error answer of APNs.
struct APNSRefusal: Error {
    let reason: APNSReason
    /// For 410: whether the token ceased to be valid on 2020-01-01 rather than now.
    let isLongAgo: Bool

    init(_ reason: APNSReason, isLongAgo: Bool = false) {
        self.reason = reason
        self.isLongAgo = isLongAgo
    }

    /// `{"reason":…}`, for 410 with the `timestamp` in milliseconds.
    func body(at now: Date) -> String {
        guard self.reason.status == 410 else { return #"{"reason":"\#(self.reason.rawValue)"}"# }
        let timestamp = self.isLongAgo ? 1_577_836_800_000 : Int(now.timeIntervalSince1970 * 1000)
        return #"{"reason":"\#(self.reason.rawValue)","timestamp":\#(timestamp)}"#
    }
}
