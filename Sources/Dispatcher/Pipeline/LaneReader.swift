// Carillon · LaneReader.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Storage

/// A lane of a part, and a connection for its blocking reads.
package struct PartLane: Sendable {
    let keys: Keyspace
    let lane: Lane
    let connection: RedisClient

    package init(_ keys: Keyspace, _ lane: Lane, _ connection: RedisClient) {
        self.keys = keys
        self.lane = lane
        self.connection = connection
    }
}

/// Reads batches from one stream.
struct LaneReader: Sendable {
    private static let leasePoll: Duration = .milliseconds(200)
    private static let sharePoll: Duration = .seconds(1)
    private static let backoff = Backoff(base: .milliseconds(50), limit: .seconds(2))

    let lane: Lane
    let group: ConsumerGroup
    /// Its own connection, because reads block.
    let connection: RedisClient
    let count: Int
    let dispatcher: Dispatcher

    var history = RedisHistory()
    /// The number of failed reads in a row.
    var failures = 0
    /// Whether the last read was full, so that more entries may wait in the stream.
    var isBehind = false
    /// The rest of the last read, which ``next()`` returns before it reads again.
    var unsent: ArraySlice<LaneBatch> = []

    /// The Redis that the reader last read from.
    struct RedisHistory {
        fileprivate var session = 0
        private var run: String?
        /// Entries appended before this moment may have been handed out before; Unix milliseconds
        /// by Redis's clock.
        ///
        /// A Redis that restarted without its last second of writes forgot what it delivered then.
        private(set) var replaySafeFrom: Int64 = 0

        /// Records the Redis of a new connection.
        mutating func record(_ run: RedisRun) {
            guard let id = run.id else {
                // It may be another Redis.
                self.replaySafeFrom = run.now
                return
            }
            guard id != self.run else { return }
            // A replica that took over may lack its master's last entries, so its start time is no
            // bound.
            self.replaySafeFrom = self.run == nil ? run.firstSeen ?? run.now : run.now
            self.run = id
        }
    }

    /// Reads into the workers' queue until the process shuts down.
    func run(into queue: LaneQueue<LaneBatch>) async throws {
        try await interruptible(self.connection, through: self.group.connection) {
            var reader = self
            while let batch = await reader.next() { await queue.send(batch, lane: batch.lane) }
        }
    }

    /// Waits for the next batch; returns nil when the process shuts down.
    ///
    /// Blocks in Redis, so call it within ``interruptible(_:through:_:)``.
    mutating func next() async -> LaneBatch? {
        if let slice = self.unsent.popFirst() { return slice }
        while isRunning {
            guard self.dispatcher.share.owns(self.group.keys) else {
                // The share changes with the leases, every few seconds at most, so poll for it.
                await pause(for: Self.sharePoll)
                continue
            }
            // Without a lease, others may take over each entry at once. Take the term before the
            // read, because the process may be suspended right after Redis replies.
            guard let term = self.dispatcher.leaseClock.term else {
                // The lease is renewed every few seconds, so poll for it.
                await pause(for: Self.leasePoll)
                continue
            }
            do {
                let entries = try await self.group.read(
                    on: self.connection, count: self.count, block: self.dispatcher.leaseClock.block)
                self.failures = 0
                self.isBehind = entries.count == self.count
                guard !entries.isEmpty else { continue }
                // If this fails, the entries are not in flight, so ``ClaimService`` finds them as
                // lost.
                try await self.refresh()
                self.dispatcher.inFlight.take(entries.lazy.map(\.id), of: self.group.stream)
                var batch = LaneBatch(lane: self.lane, group: self.group, entries: entries, term: term)
                batch.replaySafeFrom = self.history.replaySafeFrom
                self.unsent = batch.slices()[...]
                return self.unsent.popFirst()
            } catch {
                if self.failures == 0 {
                    self.dispatcher.logger.warning(
                        "cannot read stream; retrying",
                        metadata: ["redis.stream": "\(self.group.stream)", "error": "\(error)"]
                    )
                }
                // Redis does not signal that it is back, so retry with backoff.
                try? await Task.sleep(for: Self.backoff.delay(attempt: self.failures))
                self.failures += 1
            }
        }
        return nil
    }

    /// Looks up which Redis answers, after each reconnect.
    private mutating func refresh() async throws {
        let session = self.connection.session
        guard session != self.history.session else { return }
        self.history.record(try await RedisRun.ask(self.connection, note: self.group.runNote))
        self.history.session = session
    }
}
