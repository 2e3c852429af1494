// Carillon · BadgeBoard.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Synchronization

/// The newest inbox version whose count each device was sent by this process.
///
/// Bounded: a device that was forgotten may once get an older count, until the next push.
final class BadgeBoard: Sendable {
    private static let capacity = 100_000

    private let versions = Mutex<[NotificationID: Int64]>([:])

    /// Whether a count is none older than the last one sent; notes it if so.
    func isNewest(_ version: Int64, for device: NotificationID) -> Bool {
        self.versions.withLock { versions in
            if let last = versions[device], last > version { return false }
            if versions.count >= Self.capacity, versions[device] == nil { versions.removeAll(keepingCapacity: true) }
            versions[device] = version
            return true
        }
    }
}
