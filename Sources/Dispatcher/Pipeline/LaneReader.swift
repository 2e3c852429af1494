// Carillon · LaneReader.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import ServiceLifecycle
import Storage
import Synchronization

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

        /// Notes the Redis of a new connection.
        mutating func note(_ run: RedisRun) {
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
        self.history.note(try await RedisRun.ask(self.connection, memory: self.group.memory))
        self.history.session = session
    }
}

/// Entries taken together from one lane.
struct LaneBatch: Sendable {
    /// The most recipients of a slice, unless a single job names more.
    static let mostRecipients = 2_000

    let lane: Lane
    let group: ConsumerGroup
    private(set) var entries: [StreamEntry]
    /// The lease term in which they were taken.
    var term = LeaseClock.Term()
    var areRepeats = false
    /// Entries appended before this moment may have been taken before; Unix milliseconds.
    var replaySafeFrom: Int64 = 0
    /// The first entry of each scheduled job, by the id of the entry that fires it.
    var firstEntries: [String: String] = [:]
    /// The due pages of broadcasts at local time, by entry id.
    var pages: [String: Schedule.Page] = [:]

    /// Returns the batch with other entries.
    func with(_ entries: [StreamEntry]) -> LaneBatch {
        var batch = self
        batch.entries = entries
        return batch
    }

    /// Returns the batch without some entries.
    func without(_ ids: [String]) -> LaneBatch {
        guard !ids.isEmpty else { return self }
        let ids = Set(ids)
        return self.with(self.entries.filter { !ids.contains($0.id) })
    }

    /// Splits the batch, in order, into slices with at most ``mostRecipients`` recipients.
    ///
    /// One entry may name a thousand users. Without slices, urgent work would wait for a whole
    /// batch of such entries.
    func slices() -> [LaneBatch] {
        let ranges = Self.slices(of: self.entries, recipients: Self.mostRecipients)
        // Most batches have one slice, so skip the copy.
        guard ranges.count > 1 else { return [self] }
        return ranges.map { self.with(Array(self.entries[$0])) }
    }

    func mayBeRepeat(_ entry: StreamEntry) -> Bool {
        guard self.replaySafeFrom > 0, let time = StreamEntry.milliseconds(ofID: entry.id) else { return false }
        return time < self.replaySafeFrom
    }

    /// Splits entries so that no slice of two or more names more than `limit` recipients.
    static func slices(of entries: [StreamEntry], recipients limit: Int) -> [Range<Int>] {
        var slices: [Range<Int>] = []
        var first = 0
        var count = 0
        for (index, entry) in entries.enumerated() {
            let recipients = Self.recipients(entry)
            if index > first, count + recipients > limit {
                slices.append(first..<index)
                first = index
                count = 0
            }
            count += recipients
        }
        if first < entries.count { slices.append(first..<entries.count) }
        return slices
    }

    /// Returns at least the number of users that an entry names; commas inside names count too.
    private static func recipients(_ entry: StreamEntry) -> Int {
        guard let users = entry["users"] else { return 1 }
        return 1 + users.count { $0 == UInt8(ascii: ",") }
    }
}

/// The stream entries that this process is working on.
///
/// If a reply of Redis gets lost, its entries are pending for this process but not in flight; that
/// is how ``ClaimService`` finds them. The queues and stages bound the number.
final class InFlightEntries: Sendable {
    private let ids = Mutex<[ExactText: Set<String>]>([:])

    /// Adds entries before anything else is done with them.
    func take(_ entries: some Sequence<String>, of stream: String) {
        self.ids.withLock { $0[ExactText(stream), default: []].formUnion(entries) }
    }

    /// Removes entries that were acknowledged, or that another dispatcher took over.
    func release(_ entries: some Sequence<String>, of stream: String) {
        let stream = ExactText(stream)
        self.ids.withLock { ids in
            ids[stream]?.subtract(entries)
            // Each organisation has an overflow of its own, so empty sets would add up.
            if ids[stream]?.isEmpty == true { ids[stream] = nil }
        }
    }

    /// The number of streams with entries in flight.
    var streamCount: Int { self.ids.withLock { $0.count } }

    func count(of stream: String) -> Int {
        self.ids.withLock { $0[ExactText(stream)]?.count ?? 0 }
    }

    func contains(_ entry: String, of stream: String) -> Bool {
        self.ids.withLock { $0[ExactText(stream)]?.contains(entry) ?? false }
    }
}
