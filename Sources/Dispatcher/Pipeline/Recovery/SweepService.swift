// Carillon · SweepService.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import Logging
import Model
import Redis
import ServiceLifecycle
import Stores
import Streams

/// Fans out again what was stored and has had no owner for two minutes, so that even an emptied Redis loses nothing
/// that PostgreSQL has.
///
/// Also makes the audit's parts for the days ahead.
package struct SweepService: Service {
    private static let interval: Duration = .seconds(20)
    private static let age: Duration = .seconds(120)
    private static let batchSize = 256
    /// How far back deliveries may have waited in Redis, and in which steps their rows are looked for.
    private static let memory: Duration = .seconds(7 * 24 * 3_600)
    private static let memoryStep: Duration = .seconds(3_600)
    /// How far back pushes may still be tried for one device when another has them: whatever is bulk gives up after a day.
    private static let tries: Duration = .seconds(2 * 24 * 3_600)

    private let dispatcher: Dispatcher

    package init(dispatcher: Dispatcher) {
        self.dispatcher = dispatcher
    }

    package func run() async throws {
        var round = 0
        while goesOn {
            do {
                if round % 180 == 0 { try await self.dispatcher.deliveries.makeAttemptParts() }
                try await self.sweep()
                round += 1
            } catch {
                self.dispatcher.logger.warning("sweep failed", metadata: ["error": "\(error)"])
            }
            // Nothing tells that a row has lost its owner, so rows are looked at.
            await pause(for: Self.interval)
        }
    }

    /// One dispatcher sweeps at a time; the turn ends with the round.
    ///
    /// All that is found is handed on in one round, page by page: after Redis was emptied that may be much. What still
    /// waits for its proof then is found again by the next round, unless it was confirmed meanwhile.
    private func sweep() async throws {
        guard try await self.takeTurn() else { return }
        let now = try await self.dispatcher.notifications.clock()
        try await self.disownForgotten(now: now)
        let before = now + (.zero - Self.age)
        var last: NotificationStore.Unowned?
        while goesOn {
            let page = try await self.dispatcher.notifications.unowned(
                before: before,
                after: last,
                limit: Self.batchSize
            )
            last = page.last
            guard last != nil else { break }
            self.dispatcher.logger.info("unowned notifications found", metadata: ["count": "\(page.count)"])
            try await Router(dispatcher: self.dispatcher).route(
                page.map { StoredBatch.Open(notification: $0.notification, unread: $0.unread, isRepeat: true) }
            )
            PipelineMetrics.swept.increment(by: page.count)
        }
        try await self.dispatcher.notifications.advanceSweep(before: before)
    }

    /// A Redis that was emptied has lost its deliveries and retries too: what waited for a provider has no owner any more, and
    /// mail and pushes that were handed on beside it are due again.
    ///
    /// What a provider has accepted meanwhile is known by its attempts and not sent again.
    private func disownForgotten(now: Timestamp) async throws {
        let key = RedisArgument.text(self.dispatcher.keys.memory)
        guard try await self.dispatcher.redis.send("EXISTS", key).integer() == 0 else { return }
        var after = now + (.zero - Self.memory)
        while after < now {
            let until = after + Self.memoryStep
            try await self.dispatcher.notifications.disownQueued(after: after, until: until)
            after = until
        }
        try await self.dispatcher.followUps.recall(now: now)
        try await self.repeatLost(now: now)
        // Last, so that a round that was cut short is begun again.
        try await self.dispatcher.redis.send("SET", key, .text(self.dispatcher.name))
    }

    /// Hands on again what waited for one device while the notification was done with for another, page by page.
    ///
    /// It may be long, so the turn is held meanwhile. Where it was lost all the same, another dispatcher appends the same once
    /// more, and claims and attempts tell.
    private func repeatLost(now: Timestamp) async throws {
        var place = DeliveryStore.Place(now + (.zero - Self.tries))
        var until = place.storedAt
        while until < now {
            until = min(until + Self.memoryStep, now)
            while true {
                // Begun again by whoever sweeps next.
                guard goesOn else { throw CancellationError() }
                let page = try await self.dispatcher.deliveries.lost(
                    after: place, until: until, now: now, limit: Self.batchSize)
                guard let last = page.last else { break }
                place = last
                try await self.holdTurn()
                guard !page.lost.isEmpty else { continue }
                self.dispatcher.logger.info("lost deliveries found", metadata: ["count": "\(page.lost.count)"])
                try await Router(dispatcher: self.dispatcher).deliverAgain(page.lost)
            }
        }
    }

    /// Two that sweep at once would publish twice, which nodes notice, and push twice, which the attempts tell; a turn a
    /// round spares both.
    private func takeTurn() async throws -> Bool {
        try await self.setTurn("NX")
    }

    /// Begins the turn anew.
    private func holdTurn() async throws {
        _ = try await self.setTurn("XX")
    }

    private func setTurn(_ condition: RedisArgument) async throws -> Bool {
        let milliseconds = Self.interval.inMicroseconds / 1_000 - 1_000
        let reply = try await self.dispatcher.redis.send(
            "SET", .text(self.dispatcher.keys.sweepTurn), .text(self.dispatcher.name), condition, "PX",
            .integer(milliseconds)
        )
        return try reply.string() != nil
    }
}
