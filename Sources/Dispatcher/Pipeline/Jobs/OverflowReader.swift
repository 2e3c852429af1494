// Carillon · OverflowReader.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import Operations
import Storage

/// Reads a batch of each organisation's overflow in turn, with the weight of the bulk lane.
struct OverflowReader: Sendable {
    private static let interval: Duration = .milliseconds(500)
    /// Finds overflows that only other dispatchers have filled.
    private static let longestInterval: Duration = .seconds(5)
    /// How long an overflow waits for its turn while lanes have a backlog.
    private static let longestWait: Duration = .seconds(1)
    private static let batchSize = 64

    let dispatcher: Dispatcher
    /// The guard of the lanes, which go first; nil if floods stay in their lanes.
    let lanes: OverflowGuard?
    let queue: LaneQueue<LaneBatch>

    func run() async {
        var count = 0
        await self.dispatcher.untilShutdown("cannot read overflows; retrying") {
            let round = await self.roundOfAll()
            count = round.count
            guard let failure = round.failure else { return }
            self.dispatcher.alarms.overflows.schedule(at: self.dispatcher.now())
            throw failure
        } wait: {
            guard count == 0 else { return }
            // There may be many streams, and usually there are none, so poll their names rather
            // than block on each.
            await self.dispatcher.alarms.overflows.wait(
                atLeast: Self.interval, atMost: Self.longestInterval, now: self.dispatcher.clock.now)
        }
    }

    /// Reads a batch of each overflow of every part.
    ///
    /// One server of a cluster may be away; the parts of the others go on.
    ///
    /// - Returns: the number of entries, and an error of a part; nil if none failed.
    func roundOfAll() async -> (count: Int, failure: (any Error)?) {
        let parts = self.dispatcher.share.parts + self.dispatcher.keys.otherSources
        var count = 0
        var failure: (any Error)?
        do {
            for (keys, orgs) in zip(parts, try await self.dispatcher.live.overflows.orgs(in: parts)) {
                do {
                    count += try await self.round(keys, try orgs.get())
                } catch {
                    failure = error
                }
            }
        } catch {
            failure = error
        }
        return (count, failure)
    }

    /// Reads a batch of each of these overflows of a part, and returns the number of entries.
    private func round(_ keys: Keyspace, _ orgs: [String]) async throws -> Int {
        let streams = self.dispatcher.live.with(keys).overflows
        var count = 0
        if !orgs.isEmpty { self.dispatcher.alarms.overflows.schedule(at: self.dispatcher.now()) }
        for org in orgs {
            await self.lanes?.waitForLanes(atMost: Self.longestWait)
            // As for the lanes, nothing is read without a lease.
            guard isRunning, let term = self.dispatcher.leaseClock.term else { break }
            let group = self.dispatcher.group(keys.overflow(org), in: keys)
            let entries = try await group.readWaiting(count: Self.batchSize)
            guard !entries.isEmpty else {
                try await streams.dropIfEmpty(org)
                continue
            }
            count += entries.count
            self.dispatcher.inFlight.take(entries.lazy.map(\.id), of: group.stream)
            let batch = LaneBatch(lane: .bulk, group: group, entries: entries, term: term)
            for slice in batch.slices() { await self.queue.send(slice, lane: .bulk) }
        }
        return count
    }
}
