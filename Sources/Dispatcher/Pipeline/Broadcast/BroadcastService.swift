// Carillon · BroadcastService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import ServiceLifecycle
import Storage

/// Expands, counts and withdraws broadcasts, with all other dispatchers, until the process shuts down.
package struct BroadcastService: Service {
    /// What operators set.
    package struct Configuration: Sendable {
        /// An audience larger than this waits for a confirmation; 0 for none.
        package var confirmAbove: Int64
        /// Expansion pauses while this many deliveries of its lane wait for the providers.
        package var highWaterMark: Int64

        package init(confirmAbove: Int64, highWaterMark: Int64) {
            self.confirmAbove = confirmAbove
            self.highWaterMark = highWaterMark
        }
    }

    /// How many chains a dispatcher expands at a time: as many as its connections for broadcasts, so that other work keeps
    /// its own.
    package static let chains = 2

    private static let interval: Duration = .milliseconds(250)
    /// How often cancellations and broadcasts are forgotten, in rounds.
    private static let forgetEvery = 4 * 3_600
    private static let cancellationLife: Duration = .seconds(7 * 24 * 3_600)
    private static let broadcastLife: Duration = .seconds(90 * 24 * 3_600)
    /// Nobody sends to more users than this; an audience that has more is given as this many.
    private static let countBound: Int64 = 100_000_000

    private let dispatcher: Dispatcher
    private let configuration: Configuration

    /// - Parameter dispatcher: whose connections are for broadcasts alone.
    package init(dispatcher: Dispatcher, configuration: Configuration) {
        self.dispatcher = dispatcher
        self.configuration = configuration
    }

    package func run() async throws {
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<Self.chains {
                group.addTask {
                    let expansion = BroadcastExpansion(
                        dispatcher: self.dispatcher,
                        highWaterMark: self.configuration.highWaterMark
                    )
                    await self.repeatedly("broadcasts cannot be expanded") { _ in try await expansion.work() }
                }
            }
            group.addTask { await self.repeatedly("broadcasts cannot be counted") { try await self.keepHouse($0) } }
            group.addTask {
                let withdrawal = BroadcastWithdrawal(dispatcher: self.dispatcher)
                await self.repeatedly("broadcasts cannot be withdrawn") { _ in try await withdrawal.work() }
            }
        }
    }

    private func repeatedly(_ failure: Logger.Message, _ work: (Int) async throws -> Void) async {
        var round = 0
        while goesOn {
            do {
                try await work(round)
            } catch {
                self.dispatcher.logger.warning(failure, metadata: ["error": "\(error)"])
            }
            round += 1
            // Whoever stores a broadcast may be another dispatcher, so all look for work.
            await pause(for: Self.interval)
        }
    }

    private func keepHouse(_ round: Int) async throws {
        let store = self.dispatcher.broadcasts
        while goesOn, let broadcast = try await store.claim(.counting, by: self.dispatcher.name) {
            let size = try await store.size(topic: broadcast.topic, bound: Self.countBound)
            let limit = self.configuration.confirmAbove
            try await store.counted(broadcast, size: size, isConfirmed: limit == 0 || size <= limit)
        }
        try await store.finish()
        guard round % Self.forgetEvery == 0 else { return }
        let now = try await self.dispatcher.notifications.clock()
        try await self.dispatcher.cancellations.forget(before: now + (.zero - Self.cancellationLife))
        try await store.forget(before: now + (.zero - Self.broadcastLife), limit: 100)
    }
}
