// Carillon · RetryService.swift
// SPDX-License-Identifier: Apache-2.0

import Logging
import Model
import ServiceLifecycle
import Streams

/// Moves retries that are due back to their streams; any number of dispatchers may do so at once.
package struct RetryService: Service {
    private static let interval: Duration = .milliseconds(250)
    private static let batchSize = 200

    private let dispatcher: Dispatcher

    package init(dispatcher: Dispatcher) {
        self.dispatcher = dispatcher
    }

    package func run() async throws {
        let set = RetrySet(connection: self.dispatcher.redis, keys: self.dispatcher.keys)
        while goesOn {
            for provider in self.dispatcher.providers {
                for lane in Lane.allCases {
                    do {
                        while try await set.moveDue(
                            provider: provider,
                            lane: lane,
                            now: self.dispatcher.now(),
                            limit: Self.batchSize
                        ) == Self.batchSize {}
                    } catch {
                        self.dispatcher.logger.warning("retries cannot be moved", metadata: ["error": "\(error)"])
                    }
                }
            }
            // Redis tells nobody that a retry has come due, so it is asked.
            await pause(for: Self.interval)
        }
    }
}
