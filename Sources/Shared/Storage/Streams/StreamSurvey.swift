// Carillon · StreamSurvey.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// A survey, for operators, of the work in Redis and the processes that do it.
package struct StreamSurvey: Sendable {
    /// The state of a stream.
    package struct Stream: Sendable, Equatable {
        package let name: String
        package let lane: Lane
        /// The provider of the deliveries; nil for a stream of jobs.
        package let provider: Provider?
        /// Whether it stands for the overflows of all organisations.
        package var isOverflow = false
        /// Entries in the stream, pending ones included.
        package var length = 0
        /// Entries that were read and not acknowledged.
        package var pending = 0
        /// Entries that were not read yet; nil if Redis cannot tell.
        package var lag: Int?
        /// Current and former consumers.
        package var consumers = 0
        /// When the oldest entry was appended, pending or not; finished entries are deleted.
        ///
        /// For an overflow, when the oldest job was appended to the lane that it left.
        package var oldest: Timestamp?
        /// When the oldest pending entry was appended.
        package var oldestPending: Timestamp?
        /// Deliveries that wait for a retry or were held back before their first attempt.
        package var retries = 0
        /// When the first delivery held back for each app or service is due; under nil, the first
        /// retry.
        package var firstDue: [BreakerScope?: Timestamp] = [:]
        /// When the first of all these is due.
        package var nextRetry: Timestamp? { self.firstDue.values.min() }
        /// Since when the oldest of all has waited, in the stream, for a retry or held back.
        ///
        /// Inspects only the members due first and last of a set larger than
        /// ``WaitingSummary/sample``.
        package var waitingSince: Timestamp?

        /// Adds the same lane of another part.
        fileprivate mutating func add(_ other: Stream) {
            // A stream that is empty has no group, and so no lag.
            if other.length > 0 || other.lag != nil {
                let isFirst = self.length == 0 && self.lag == nil
                self.lag = isFirst ? other.lag : self.lag.flatMap { lag in other.lag.map { lag + $0 } }
            }
            self.length += other.length
            self.pending += other.pending
            self.consumers = max(self.consumers, other.consumers)
            self.retries += other.retries
            self.firstDue.merge(other.firstDue) { min($0, $1) }
            func earliest(_ path: WritableKeyPath<Stream, Timestamp?>) {
                self[keyPath: path] = [self[keyPath: path], other[keyPath: path]].compactMap(\.self).min()
            }
            earliest(\.oldest)
            earliest(\.oldestPending)
            earliest(\.waitingSince)
        }
    }

    /// A current or former dispatcher.
    package struct Worker: Sendable, Equatable {
        package let name: String
        package let isAlive: Bool
        /// Jobs that it read and has not acknowledged.
        package let pending: Int
        /// The note of its lease; nil if the lease has ended or has none.
        package let process: ProcessNote?
    }

    /// A gateway that holds its lease, or did a minute ago.
    package struct Node: Sendable, Equatable {
        package let id: String
        package let isAlive: Bool
        /// Open sockets and streams at the last lease renewal; nil if not reported.
        package let connections: Int?
        /// The note of its lease; nil if the lease has ended or has none.
        package let process: ProcessNote?
    }

    /// A consumer group as Redis lists it.
    struct Group {
        private(set) var name = ""
        private(set) var pending = 0
        private(set) var consumers = 0
        private(set) var lag: Int?

        private init(_ cursor: inout RedisCursor) throws(RedisError) {
            for _ in 0..<(try cursor.array() ?? 0) / 2 {
                switch try cursor.string() {
                case "name": self.name = try cursor.string() ?? ""
                case "pending": self.pending = Int(try cursor.integer())
                case "consumers": self.consumers = Int(try cursor.integer())
                case "lag": self.lag = try cursor.string().flatMap { Int($0) }
                default: try cursor.skip()
                }
            }
        }

        /// Reads a group from the reply to `XINFO GROUPS`; nil if the group or its stream is
        /// missing.
        static func named(_ name: String, in reply: RedisReply) throws(RedisError) -> Group? {
            do throws(RedisError) {
                guard var cursor = try reply.cursor(), let count = try cursor.array() else { return nil }
                for _ in 0..<count {
                    let group = try Group(&cursor)
                    if group.name == name { return group }
                }
            } catch  where error.message?.contains("no such key") == true {}
            return nil
        }
    }

    /// How long a process whose lease has ended is listed.
    private static let memory: Duration = .seconds(60)

    let live: Live

    /// The time by Redis's own clock, which dates entries.
    package func time() async throws(RedisError) -> Timestamp {
        try await self.live.connection.send("TIME").time()
    }

    /// The streams of jobs, the overflows as one, and the streams of each provider's deliveries,
    /// most urgent lane first.
    package func streams(of providers: [Provider] = Provider.all) async throws(RedisError) -> [Stream] {
        var streams: [Stream] = []
        let keys = self.live.keys
        for lane in Lane.allCases {
            let stream = Stream(name: keys.jobs(lane), lane: lane, provider: nil)
            streams.append(try await self.read(stream, in: keys.jobSources.map { PartStream($0, $0.jobs(lane)) }))
        }
        streams.append(try await self.overflow())
        for provider in providers {
            for lane in Lane.allCases {
                let stream = Stream(name: keys.deliveries(provider, lane), lane: lane, provider: provider)
                let partStreams = keys.parts.map { PartStream($0, $0.deliveries(provider, lane)) }
                streams.append(try await self.read(stream, in: partStreams))
            }
        }
        return streams
    }

    /// The overflows of all organisations as one stream of the bulk lane, whose share they use.
    private func overflow() async throws(RedisError) -> Stream {
        let parts = self.live.keys.jobSources
        var partStreams: [PartStream] = []
        for (part, orgs) in zip(parts, try await self.live.overflows.orgs(in: parts)) {
            for org in try orgs.get() { partStreams.append(PartStream(part, part.overflow(org))) }
        }
        let stream = Stream(name: self.live.keys.overflows, lane: .bulk, provider: nil, isOverflow: true)
        return try await self.read(stream, in: partStreams)
    }

    /// Counts notifications that wait for a socket's proof.
    package func awaitedProofs() async throws(RedisError) -> Int {
        var proofs = 0
        for shard in 0..<self.live.keys.proofShards {
            let count = try await self.live.connection.send("ZCARD", .text(self.live.keys.proofDeadlines(shard: shard)))
            proofs += Int(try count.integer())
        }
        return proofs
    }

    /// A part's stream of the same kind.
    private struct PartStream {
        let part: Keyspace
        let name: String

        init(_ part: Keyspace, _ name: String) {
            self.part = part
            self.name = name
        }
    }

    /// A part's share of a stream, and the sets of it that are still to be read.
    private struct Share {
        var stream: Stream
        /// The apps and services for which deliveries are held back; nil stands for the retries.
        var scopes: [BreakerScope?] = []
    }

    /// Reads the state of a stream in all its parts, in one round trip; a stream with work takes
    /// another.
    private func read(_ kind: Stream, in partStreams: [PartStream]) async throws(RedisError) -> Stream {
        guard !partStreams.isEmpty else { return kind }
        var batch = RedisBatch()
        for partStream in partStreams {
            batch.append("XLEN", .text(partStream.name))
            batch.append("XINFO", "GROUPS", .text(partStream.name))
            guard let provider = kind.provider else { continue }
            batch.append("ZCARD", .text(partStream.part.retries(provider, kind.lane)))
            batch.append("SMEMBERS", .text(partStream.part.held(provider, kind.lane)))
        }
        var replies = try await self.live.connection.send(batch)[...]
        var details = RedisBatch()
        var shares: [Share] = []
        for partStream in partStreams {
            var share = Share(stream: kind)
            share.stream.length = Int(try replies.removeFirst().integer())
            if let group = try Group.named(Keyspace.group, in: replies.removeFirst()) {
                share.stream.pending = group.pending
                share.stream.consumers = group.consumers
                share.stream.lag = group.lag
            }
            let name = RedisArgument.text(partStream.name)
            if share.stream.length > 0 {
                let fields = [DeliveryWork.field, JobOrigin.movedField].map { RedisArgument.text($0) }
                details.append(StreamScripts.readFirst, keys: [name], arguments: fields)
            }
            if share.stream.pending > 0 { details.append("XPENDING", name, .text(Keyspace.group)) }
            if let provider = kind.provider {
                if try replies.removeFirst().integer() > 0 { share.scopes.append(nil) }
                for scope in try RetrySet.scopes(replies.removeFirst()) { share.scopes.append(scope) }
                for scope in share.scopes {
                    WaitingSummary.ask(RetrySet.key(partStream.part, provider, kind.lane, scope: scope), in: &details)
                }
            }
            shares.append(share)
        }
        replies = try await self.live.connection.send(details)[...]
        var sum = kind
        for share in shares { sum.add(try Self.stream(of: share, &replies)) }
        return sum
    }

    /// Returns the state of a share with its details, which are the first of the replies.
    private static func stream(of share: Share, _ replies: inout ArraySlice<RedisReply>) throws(RedisError) -> Stream {
        var stream = share.stream
        if stream.length > 0 {
            let first = try Self.first(replies.removeFirst())
            stream.oldest = stream.isOverflow ? first.flatMap { Self.enqueuedAt($0) } : first?.appendedAt
            let work = try? first?[DeliveryWork.field].map { (text) throws(DeliveryWork.Fault) in
                try DeliveryWork(text)
            }
            stream.waitingSince = work?.since ?? stream.oldest
        }
        if stream.pending > 0 { stream.oldestPending = try Self.oldest(replies.removeFirst()) }
        var waiting = WaitingSummary()
        for scope in share.scopes {
            let set = try WaitingSummary(replies.prefix(WaitingSummary.questions))
            replies.removeFirst(WaitingSummary.questions)
            stream.firstDue[scope] = set.firstDue
            waiting.add(set)
        }
        stream.retries = waiting.count
        stream.waitingSince = [stream.waitingSince, waiting.since].compactMap(\.self).min()
        return stream
    }

    /// When a moved job was appended to the lane that it left.
    private static func enqueuedAt(_ entry: StreamEntry) -> Timestamp? {
        let origin = JobOrigin(stream: "", entry: entry.id, fields: entry.fields ?? [])
        return origin.milliseconds.map { Timestamp(milliseconds: $0) }
    }

    /// The first entry of a range.
    private static func first(_ reply: RedisReply) throws(RedisError) -> StreamEntry? {
        guard var cursor = try reply.cursor() else { return nil }
        return try StreamEntry.read(&cursor).first
    }

    /// The first moment in a summary of pending entries; nil if their stream has gone meanwhile.
    static func oldest(_ reply: RedisReply) throws(RedisError) -> Timestamp? {
        do throws(RedisError) {
            guard var cursor = try reply.cursor(), try cursor.array() == 4 else { return nil }
            try cursor.skip()
            return try cursor.string().flatMap { StreamEntry.moment(ofID: $0) }
        } catch  where error.serverCode == "NOGROUP" {
            return nil
        }
    }

    /// The dispatchers that hold their lease, and those in the consumer groups of the jobs streams.
    package func dispatchers() async throws(RedisError) -> [Worker] {
        var pending: [String: Int] = [:]
        let (known, ended) = try await self.register(self.live.keys.dispatchers)
        var past = ended
        for name in known { pending[name] = 0 }
        for stream in self.live.keys.jobSources.flatMap({ keys in Lane.allCases.map { keys.jobs($0) } }) {
            let group = ConsumerGroup(stream: stream, consumer: "", connection: self.live.connection)
            for consumer in try await group.consumers() {
                pending[consumer.name, default: 0] += consumer.pending
                past.remove(consumer.name)
            }
        }
        var workers: [Worker] = []
        for (name, count) in pending.sorted(by: { $0.key < $1.key }) {
            let lease = try await self.live.connection.send("GET", .text(self.live.keys.dispatcherLease(name))).string()
            guard lease != nil || !past.contains(name) else { continue }
            let note = lease.flatMap { ProcessNote(leaseValue: $0) }
            workers.append(Worker(name: name, isAlive: lease != nil, pending: count, process: note))
        }
        return workers
    }

    /// Counts the dispatchers that hold their lease, without a look at the streams.
    ///
    /// A lease counts as held while its master in a cluster is away.
    package func livingDispatchers() async throws(RedisError) -> Int {
        try await self.living(in: self.live.keys.dispatchers) { self.live.keys.dispatcherLease($0) }
    }

    /// Counts the gateways that hold their lease, as ``livingDispatchers()`` does.
    package func livingGateways() async throws(RedisError) -> Int {
        try await self.living(in: self.live.keys.nodes) { self.live.keys.nodeLease($0) }
    }

    /// Returns the holders in a register of leases, and those whose lease ended over a minute ago.
    ///
    /// The second list may also have a living holder whose clock is slow.
    private func register(_ key: String) async throws(RedisError) -> (known: [String], past: Set<String>) {
        let oldest = try await self.time() - Self.memory
        let known = try await self.live.connection.send("ZRANGE", .text(key), 0, -1).strings()
        let past = try await self.live.connection.send(
            "ZRANGEBYSCORE", .text(key), "-inf", .integer(oldest.milliseconds)
        ).strings()
        return (known, Set(past))
    }

    private func living(in register: String, _ lease: (String) -> String) async throws(RedisError) -> Int {
        let names = try await self.live.connection.send("ZRANGE", .text(register), 0, -1).strings()
        guard !names.isEmpty else { return 0 }
        return try await Lease.areHeld(names.map(lease), connection: self.live.connection).count { $0 }
    }

    /// The gateways that hold their lease, or did a minute ago.
    package func nodes() async throws(RedisError) -> [Node] {
        var nodes: [Node] = []
        let (known, past) = try await self.register(self.live.keys.nodes)
        for id in known.sorted() {
            let lease = try await self.live.connection.send("GET", .text(self.live.keys.nodeLease(id))).string()
            guard lease != nil || !past.contains(id) else { continue }
            let note = lease.flatMap { ProcessNote(leaseValue: $0) }
            let connections = lease?.split(separator: " ").dropFirst().first.flatMap { Int($0) }
            nodes.append(Node(id: id, isAlive: lease != nil, connections: connections, process: note))
        }
        return nodes
    }
}
