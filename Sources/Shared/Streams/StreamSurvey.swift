// Carillon · StreamSurvey.swift
// SPDX-License-Identifier: Apache-2.0

package import Model
package import Redis

/// What operators ask of Redis: how much waits where, and who works.
package struct StreamSurvey: Sendable {
    /// How a stream stands.
    package struct Stream: Sendable, Equatable {
        package let name: String
        /// Entries in it, those being worked on included.
        package var length = 0
        /// Entries that were taken and not acknowledged.
        package var pending = 0
        /// Entries that nobody has taken yet; nil if Redis cannot tell.
        package var lag: Int?
        /// When the oldest entry that is being worked on was appended.
        package var oldestPending: Timestamp?
        /// What waits for its next try.
        package var retries = 0
    }

    /// A dispatcher that takes jobs, or took them.
    package struct Worker: Sendable, Equatable {
        package let name: String
        package let isAlive: Bool
        /// Jobs that it took and has not acknowledged.
        package let pending: Int
    }

    /// A gateway that hears what is published for its users.
    package struct Node: Sendable, Equatable {
        package let id: String
        package let isAlive: Bool
        /// Sockets and streams that it held when it renewed its lease; nil if it did not say.
        package let connections: Int?
    }

    private let connection: RedisConnection
    private let keys: Keyspace

    package init(connection: RedisConnection, keys: Keyspace) {
        self.connection = connection
        self.keys = keys
    }

    /// The streams of jobs and of each provider's deliveries, the most urgent lane first.
    package func streams() async throws(RedisError) -> [Stream] {
        var streams: [Stream] = []
        for lane in Lane.allCases { streams.append(try await self.stream(self.keys.jobs(lane), retries: nil)) }
        for provider in Provider.allCases {
            for lane in Lane.allCases {
                streams.append(
                    try await self.stream(
                        self.keys.deliveries(provider, lane), retries: self.keys.retries(provider, lane)))
            }
        }
        return streams
    }

    private func stream(_ name: String, retries: String?) async throws(RedisError) -> Stream {
        var stream = Stream(name: name)
        stream.length = Int(try await self.connection.send("XLEN", .text(name)).integer())
        if let retries { stream.retries = Int(try await self.connection.send("ZCARD", .text(retries)).integer()) }
        let reply: RedisReply
        do throws(RedisError) {
            reply = try await self.connection.send("XINFO", "GROUPS", .text(name))
        } catch  where error.message?.contains("no such key") == true {
            return stream
        }
        guard var cursor = try reply.cursor(), let groups = try cursor.array() else { return stream }
        for _ in 0..<groups {
            try Self.read(&cursor, into: &stream)
        }
        if stream.pending > 0 { stream.oldestPending = try await self.oldest(name) }
        return stream
    }

    /// Reads a group; another one than ours is passed over.
    private static func read(_ cursor: inout RedisCursor, into stream: inout Stream) throws(RedisError) {
        var name = ""
        var pending = 0
        var lag: Int?
        for _ in 0..<(try cursor.array() ?? 0) / 2 {
            switch try cursor.string() {
            case "name": name = try cursor.string() ?? ""
            case "pending": pending = Int(try cursor.integer())
            case "lag": lag = try cursor.string().flatMap { Int($0) }
            default: try cursor.skip()
            }
        }
        guard name == Keyspace.group else { return }
        stream.pending = pending
        stream.lag = lag
    }

    private func oldest(_ name: String) async throws(RedisError) -> Timestamp? {
        let reply = try await self.connection.send("XPENDING", .text(name), .text(Keyspace.group))
        guard var cursor = try reply.cursor(), try cursor.array() == 4 else { return nil }
        try cursor.skip()
        let milliseconds = try cursor.string()?.split(separator: "-").first.flatMap { Int64($0) }
        return milliseconds.map { Timestamp(milliseconds: $0) }
    }

    /// How many deliveries of a provider are in its streams, and how many wait for their next try.
    package func waiting(_ provider: Provider) async throws(RedisError) -> (streams: Int, retries: Int) {
        var (streams, retries) = (0, 0)
        for lane in Lane.allCases {
            streams += Int(
                try await self.connection.send("XLEN", .text(self.keys.deliveries(provider, lane))).integer())
            retries += Int(try await self.connection.send("ZCARD", .text(self.keys.retries(provider, lane))).integer())
        }
        return (streams, retries)
    }

    /// When the delivery was appended that waits the longest in a provider's streams; nil if none does.
    package func oldestWaiting(_ provider: Provider) async throws(RedisError) -> Timestamp? {
        var oldest: Timestamp?
        for lane in Lane.allCases {
            let reply = try await self.connection.send(
                "XRANGE", .text(self.keys.deliveries(provider, lane)), "-", "+", "COUNT", "1")
            guard var cursor = try reply.cursor(), try cursor.array() == 1, try cursor.array() == 2 else { continue }
            let milliseconds = try cursor.string()?.split(separator: "-").first.flatMap { Int64($0) }
            guard let moment = milliseconds.map({ Timestamp(milliseconds: $0) }) else { continue }
            oldest = min(oldest ?? moment, moment)
        }
        return oldest
    }

    /// The dispatchers that the jobs streams know.
    package func dispatchers() async throws(RedisError) -> [Worker] {
        var pending: [String: Int] = [:]
        for lane in Lane.allCases {
            let group = ConsumerGroup(stream: self.keys.jobs(lane), consumer: "", connection: self.connection)
            for consumer in try await group.consumers() { pending[consumer.name, default: 0] += consumer.pending }
        }
        var workers: [Worker] = []
        for (name, count) in pending.sorted(by: { $0.key < $1.key }) {
            let isAlive = try await Lease.isHeld(self.keys.dispatcherLease(name), connection: self.connection)
            workers.append(Worker(name: name, isAlive: isAlive, pending: count))
        }
        return workers
    }

    /// The gateways that listen to their channels.
    package func nodes() async throws(RedisError) -> [Node] {
        let prefix = String(self.keys.nodeChannel("").dropLast())
        let channels = try await self.connection.send("PUBSUB", "CHANNELS", .text(prefix + "*")).strings()
        var nodes: [Node] = []
        for channel in channels.sorted() {
            let id = String(channel.dropFirst(prefix.count).dropLast())
            let lease = try await self.connection.send("GET", .text(self.keys.nodeLease(id))).string()
            let connections = lease?.split(separator: " ").dropFirst().first.flatMap { Int($0) }
            nodes.append(Node(id: id, isAlive: lease != nil, connections: connections))
        }
        return nodes
    }
}
