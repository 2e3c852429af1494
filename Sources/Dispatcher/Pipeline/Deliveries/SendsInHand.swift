// Carillon · SendsInHand.swift
// SPDX-License-Identifier: Apache-2.0

import Model
import Streams
import Synchronization

/// What this process is sending and has not put on record yet.
///
/// The same delivery may stand in a stream twice, because whoever appended it did not know whether the first had arrived. The
/// record of attempts tells them apart only when one of them is on it. Bounded by how many sends are under way.
final class SendsInHand: Sendable {
    private struct Target: Hashable {
        let notification: NotificationID
        let device: NotificationID
    }

    private let targets = Mutex<Set<Target>>([])

    /// Begins a send; false if the same one is under way.
    func begin(_ work: DeliveryWork) -> Bool {
        self.targets.withLock {
            $0.insert(Target(notification: work.notification, device: work.device)).inserted
        }
    }

    /// Ends a send that is on record, or that somebody else makes by now.
    func end(_ work: DeliveryWork) {
        self.targets.withLock { _ = $0.remove(Target(notification: work.notification, device: work.device)) }
    }
}
