// Carillon · BroadcastService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import ServiceLifecycle
import Storage

/// Expands, counts and withdraws broadcasts until the process shuts down, together with all other
/// dispatchers.
package struct BroadcastService: Service {
    /// The settings of broadcasts.
    package struct Configuration: Sendable {
        /// A notification to a larger audience waits for a confirmation; 0 for none.
        var confirmAbove: Int64
        /// Expansion pauses while this many deliveries of its lane wait.
        var highWaterMark: Int64

        package init(confirmAbove: Int64, highWaterMark: Int64) {
            self.confirmAbove = confirmAbove
            self.highWaterMark = highWaterMark
        }
    }

    /// The chains that a dispatcher expands at a time: one per connection for broadcasts.
    package static let chains = 2
    /// The tasks that look for work: one for each chain, one that counts, one that withdraws.
    static let loops = Self.chains + 2

    private static let interval: Duration = .milliseconds(250)
    /// An audience that is larger, or takes too long to count, counts as this many.
    private static let countBound: Int64 = 100_000_000

    private let dispatcher: Dispatcher
    private let configuration: Configuration

    /// - Parameter dispatcher: one with connections for broadcasts alone.
    package init(dispatcher: Dispatcher, configuration: Configuration) {
        self.dispatcher = dispatcher
        self.configuration = configuration
    }

    package func run() async throws {
        await withTaskGroup(of: Void.self) { group in
            for chain in 0..<Self.chains {
                group.addTask {
                    let expansion = BroadcastExpansion(
                        dispatcher: self.dispatcher,
                        highWaterMark: self.configuration.highWaterMark
                    )
                    await self.repeatedly("cannot expand broadcasts; retrying", loop: chain) {
                        try await expansion.work()
                    }
                }
            }
            group.addTask {
                await self.repeatedly("cannot count broadcasts; retrying", loop: Self.chains) {
                    try await self.count()
                }
            }
            group.addTask {
                let withdrawal = BroadcastWithdrawal(dispatcher: self.dispatcher)
                await self.repeatedly("cannot withdraw broadcasts; retrying", loop: Self.chains + 1) {
                    try await withdrawal.work()
                }
            }
        }
    }

    private func repeatedly(_ failure: Logger.Message, loop: Int, _ work: () async throws -> Void) async {
        await self.dispatcher.untilShutdown(failure, work) {
            await self.dispatcher.wait(for: self.dispatcher.alarms.broadcasts[loop], atLeast: Self.interval)
        }
    }

    /// Counts audiences, ends finished broadcasts, and shows how many wait for an operator.
    ///
    /// An audience that cannot be counted delays others by one attempt a round.
    private func count() async throws {
        let store = self.dispatcher.database.broadcasts
        var failed: [NotificationID] = []
        var finishAt = ContinuousClock.now
        while isRunning {
            // `finish` reads all open broadcasts, so do not run it for each one that is counted.
            if ContinuousClock.now >= finishAt {
                try await store.finish()
                finishAt = ContinuousClock.now + Self.interval
            }
            guard let broadcast = try await store.claim(.counting, by: self.dispatcher.name, except: failed) else {
                return PipelineMetrics.record(waiting: try await store.waiting())
            }
            do {
                let size = try await self.audience(of: broadcast)
                let limit = self.configuration.confirmAbove
                let isConfirmed = limit == 0 || size <= limit || broadcast.isEvent
                try await store.counted(broadcast, size: size, isConfirmed: isConfirmed)
                guard !isConfirmed else { continue }
                self.dispatcher.logger.warning(
                    "broadcast waits until you confirm or cancel it",
                    metadata: [
                        "broadcast.id": "\(broadcast.id)", "job.id": "\(broadcast.job)", "users.count": "\(size)",
                    ])
            } catch {
                failed.append(broadcast.id)
                self.dispatcher.logger.warning(
                    "cannot count an audience; retrying",
                    metadata: ["broadcast.id": "\(broadcast.id)", "error": "\(error)"])
            }
        }
    }

    /// Returns the number of users of a broadcast; ``countBound`` if the count times out.
    private func audience(of broadcast: Broadcast) async throws(PostgresError) -> Int64 {
        do throws(PostgresError) {
            return try await self.dispatcher.database.broadcasts.size(topic: broadcast.topic, bound: Self.countBound)
        } catch {
            guard error.isStatementTimeout else { throw error }
            self.dispatcher.logger.warning(
                "audience count timed out; using the maximum",
                metadata: ["broadcast.id": "\(broadcast.id)", "users.count": "\(Self.countBound)"])
            return Self.countBound
        }
    }
}

/// Cancels the undelivered notifications of a cancelled broadcast, in small pages with short locks.
///
/// However long this takes, the gate stops their deliveries from the cancellation on.
struct BroadcastWithdrawal: Sendable {
    /// After this many pages the next claim may choose a more urgent broadcast.
    private static let turn = 16

    let dispatcher: Dispatcher
    var pageSize = 500

    /// Withdraws until no broadcast is left.
    ///
    /// A broadcast that cannot be withdrawn is tried again after a turn of another, or next round.
    func work() async throws {
        let store = self.dispatcher.database.broadcasts
        var failed: [NotificationID] = []
        while isRunning,
            var broadcast = try await store.claim(.cancelling, by: self.dispatcher.name, except: failed)
        {
            do {
                for _ in 0..<Self.turn {
                    guard isRunning, try await self.withdrawPage(&broadcast) else { break }
                }
                failed = []
            } catch {
                failed.append(broadcast.id)
                self.dispatcher.logger.warning(
                    "cannot withdraw a broadcast; retrying",
                    metadata: ["broadcast.id": "\(broadcast.id)", "error": "\(error)"])
            }
        }
    }

    /// Withdraws the next page, and returns whether there may be another.
    private func withdrawPage(_ broadcast: inout Broadcast) async throws -> Bool {
        let at = self.dispatcher.now()
        let page = try await self.dispatcher.database.cancellations.page(
            org: broadcast.org,
            job: broadcast.job,
            after: broadcast.withdrawnTo,
            limit: self.pageSize
        )
        let seen = try await self.dispatcher.database.cancellations.endSeen(page)
        await self.dispatcher.report(seen.compactMap { $0.event(at: at) })
        let isLast = page.count < self.pageSize
        // The process that cancelled it does this too, but may have died before.
        let own = CancellationStore.Name(org: broadcast.org, id: broadcast.job)
        if isLast { try await self.dispatcher.database.schedules.cancelJob(own, at: at) }
        let withdrawn = try await self.dispatcher.database.cancellations.cancel(
            page, of: broadcast, isLast: isLast, at: at)
        await self.publish(withdrawn, at: at)
        broadcast.withdrawnTo = page.last?.user ?? broadcast.withdrawnTo
        return !isLast
    }

    private func publish(_ withdrawals: [CancellationStore.Withdrawal], at: Timestamp) async {
        let publisher = FramePublisher(self.dispatcher.live, presence: self.dispatcher.presence)
        do {
            try await publisher.publish(withdrawals.compactMap { $0.frame(at: at) })
        } catch {
            // A socket that misses it sees a gap at its next frame, and fills it from the inbox.
            self.dispatcher.logger.warning(
                "cannot publish cancellation; sockets resync at the next frame",
                metadata: ["error": "\(error)"])
        }
        await self.dispatcher.report(withdrawals.map { LifecycleEvent(.cancelled, $0.label, at: at) })
    }
}
