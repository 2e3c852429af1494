// Carillon · HeardFrames.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Synchronization

/// The frames that a node receives from a subscription to its channel.
package final class HeardFrames: Sendable {
    private let noted = Mutex<(isReady: Bool, frames: [NodeFrame])>((false, []))

    package init() {}

    package var isReady: Bool { self.noted.withLock { $0.isReady } }
    package var frames: [NodeFrame] { self.noted.withLock { $0.frames } }

    package func note(_ event: RedisSubscription.Event) {
        self.noted.withLock { noted in
            switch event {
            case .subscribed: noted.isReady = true
            case .message(_, let payload): noted.frames += NodeFrameBatch.decode(payload) ?? []
            case .resumed, .lost: break
            }
        }
    }
}
