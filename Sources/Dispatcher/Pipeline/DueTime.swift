// Carillon · DueTime.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// The moment at which something is due; initially now.
final class DueTime: Sendable {
    private let moment = Mutex(ContinuousClock.now)

    var isOver: Bool { self.moment.withLock { $0 } <= ContinuousClock.now }

    func set(in pause: Duration) {
        self.moment.withLock { $0 = ContinuousClock.now + pause }
    }
}
