// Carillon · ConsumerGroup.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// One consumer of a stream; a class, so that all its entries share one reference to it.
package final class ConsumerGroup: Sendable {
    /// A consumer as Redis lists it.
    package struct Consumer: Sendable, Equatable {
        package let name: String
        package let pending: Int
    }

    /// An entry that a consumer has read and not acknowledged.
    package struct Pending: Sendable, Equatable {
        package let id: String
        /// The number of times that the entry was delivered to a consumer.
        package let deliveries: Int
    }

    package let stream: String
    let consumer: String
    /// A connection for all calls that do not block.
    package let connection: RedisClient
    /// The keys of the part that has the stream.
    package let keys: Keyspace

    /// - Parameters:
    ///   - connection: a non-blocking connection for all calls but ``read(on:count:block:)``.
    ///   - keys: the keys of the part that has the stream.
    package init(stream: String, consumer: String, connection: RedisClient, keys: Keyspace = Keyspace()) {
        self.stream = stream
        self.consumer = consumer
        self.connection = connection
        self.keys = keys
    }

    /// The ``Keyspace/runNote`` of the server that has the stream.
    package var runNote: String { self.keys.runNote(of: self.stream) }

    /// Creates the stream and the group if they are missing; a new group starts at the oldest
    /// entry.
    func create() async throws(RedisError) {
        do throws(RedisError) {
            try await self.connection.send(
                "XGROUP", "CREATE", .text(self.stream), .text(Keyspace.group), "0", "MKSTREAM"
            )
        } catch  where error.serverCode == "BUSYGROUP" {}
    }

    /// Reads up to `count` new entries and waits up to `block` for the first.
    ///
    /// Creates a missing group.
    ///
    /// - Parameter reader: a connection for these calls alone, because they block it.
    package func read(
        on reader: RedisClient,
        count: Int,
        block: Duration
    ) async throws(RedisError) -> [StreamEntry] {
        do throws(RedisError) {
            let reply = try await reader.send(
                "XREADGROUP", "GROUP", .text(Keyspace.group), .text(self.consumer),
                "COUNT", .integer(Int64(count)), "BLOCK", .integer(max(1, block.inMilliseconds)),
                "STREAMS", .text(self.stream), ">",
                timeout: block + max(block, .seconds(1))
            )
            return try StreamEntry.ofStream(reply)
        } catch  where error.serverCode == "NOGROUP" {
            try await self.create()
            return []
        }
    }

    /// Reads up to `count` new entries without waiting.
    ///
    /// Creates a missing group, but no stream.
    package func readWaiting(count: Int) async throws(RedisError) -> [StreamEntry] {
        do throws(RedisError) {
            let reply = try await self.connection.send(
                "XREADGROUP", "GROUP", .text(Keyspace.group), .text(self.consumer), "COUNT", .integer(Int64(count)),
                "STREAMS", .text(self.stream), ">"
            )
            return try StreamEntry.ofStream(reply)
        } catch  where error.serverCode == "NOGROUP" {
            do throws(RedisError) {
                try await self.connection.send("XGROUP", "CREATE", .text(self.stream), .text(Keyspace.group), "0")
            } catch  where error.serverCode == "BUSYGROUP" || error.message?.contains("requires the key") == true {
                return []
            }
            return try await self.readWaiting(count: count)
        }
    }

    /// Adds the acknowledgement and deletion of entries to a batch.
    package func acknowledge(_ ids: [String], in batch: inout RedisBatch) {
        guard !ids.isEmpty else { return }
        batch.append(
            StreamScripts.acknowledge,
            keys: [.text(self.stream)],
            arguments: [.text(Keyspace.group)] + ids.map { .text($0) }
        )
    }

    /// All consumers of the group, by name.
    ///
    /// Fails at once while the stream's server in a cluster is away.
    package func consumers() async throws(RedisError) -> [Consumer] {
        var batch = RedisBatch()
        batch.append("XINFO", "CONSUMERS", .text(self.stream), .text(Keyspace.group))
        let reply: RedisReply
        do throws(RedisError) {
            reply = try await self.connection.run(batch, isPatient: false)[0]
        } catch  where error.serverCode == "NOGROUP" || error.message?.contains("no such key") == true {
            return []
        }
        guard var cursor = try reply.cursor(), let count = try cursor.array() else { return [] }
        var consumers: [Consumer] = []
        for _ in 0..<count {
            var name = ""
            var pending = 0
            for _ in 0..<(try cursor.array() ?? 0) / 2 {
                switch try cursor.string() {
                case "name": name = try cursor.string() ?? ""
                case "pending": pending = Int(try cursor.integer())
                default: try cursor.skip()
                }
            }
            consumers.append(Consumer(name: name, pending: pending))
        }
        return consumers
    }

    /// The pending entries of `consumer`, oldest first.
    package func pending(of consumer: String, count: Int) async throws(RedisError) -> [Pending] {
        let reply = try await self.connection.send(
            "XPENDING", .text(self.stream), .text(Keyspace.group), "-", "+", .integer(Int64(count)), .text(consumer)
        )
        guard var cursor = try reply.cursor(), let total = try cursor.array() else { return [] }
        var pending: [Pending] = []
        for _ in 0..<total {
            _ = try cursor.array()
            let id = try cursor.string() ?? ""
            try cursor.skip()
            try cursor.skip()
            pending.append(Pending(id: id, deliveries: Int(try cursor.integer())))
        }
        return pending
    }

    /// Returns the entries that this consumer still owns, and those that Redis has lost.
    ///
    /// Resets the idle time of the owned ones, so that no other dispatcher claims them. An overflow
    /// without a group is not lost: others have finished all its entries.
    package func reclaimOwned(_ ids: [String]) async throws(RedisError) -> Set<String> {
        guard !ids.isEmpty else { return [] }
        let reply = try await self.connection.run(
            StreamScripts.keepEntries,
            keys: [.text(self.stream)],
            arguments: [
                .text(Keyspace.group), .text(self.consumer), self.keys.isOverflow(self.stream) ? "1" : "0",
            ] + ids.map { .text($0) }
        )
        return Set(try reply.strings())
    }

    /// Takes over one entry that a consumer still has.
    ///
    /// - Parameters:
    ///   - consumer: a dead consumer, or this one; an entry that another consumer has taken
    ///     over stays there.
    ///   - idle: entries delivered more recently stay with their consumer.
    ///   - deliveries: the delivery count afterwards; nil adds one.
    /// - Returns: the entry; nil if another consumer has it or it was deleted.
    package func claim(
        _ id: String,
        from consumer: String,
        idle: Duration,
        deliveries: Int? = nil
    ) async throws(RedisError) -> StreamEntry? {
        try await self.claim([id], from: consumer, idle: idle, deliveries: deliveries).first
    }

    /// Takes over entries that a consumer still has, in one step.
    ///
    /// An entry that is larger than any job, or has over 1,000 fields, has only the field
    /// ``DeadLetter/cutField``, which states its size.
    ///
    /// - Parameters:
    ///   - consumer: a dead consumer, or this one; entries that another consumer has taken over
    ///     stay there.
    ///   - idle: entries delivered more recently stay with their consumer.
    ///   - deliveries: the delivery count afterwards; nil adds one.
    /// - Returns: the entries, without those that another consumer has or that were deleted.
    package func claim(
        _ ids: [String],
        from consumer: String,
        idle: Duration,
        deliveries: Int? = nil
    ) async throws(RedisError) -> [StreamEntry] {
        guard !ids.isEmpty else { return [] }
        var arguments: [RedisArgument] = [
            .text(Keyspace.group), .text(consumer), .text(self.consumer), .integer(idle.inMilliseconds),
            deliveries.map { RedisArgument.integer(Int64($0)) } ?? "",
            .integer(Int64(DeadLetter.mostBytes)), .text(DeadLetter.cutField),
        ]
        for id in ids { arguments.append(.text(id)) }
        let reply = try await self.connection.run(
            StreamScripts.claimEntries, keys: [.text(self.stream)], arguments: arguments)
        guard var cursor = try reply.cursor() else { return [] }
        return try StreamEntry.read(&cursor)
    }

    /// Removes a consumer unless it has pending entries, which would never be delivered again.
    ///
    /// - Returns: whether the consumer is gone.
    @discardableResult
    package func remove(_ consumer: String) async throws(RedisError) -> Bool {
        var batch = RedisBatch()
        self.remove(consumer, in: &batch)
        return try await self.connection.send(batch)[0].integer() == 1
    }

    /// Adds the removal of a consumer to a batch.
    package func remove(_ consumer: String, in batch: inout RedisBatch) {
        batch.append(
            StreamScripts.removeConsumer,
            keys: [.text(self.stream)],
            arguments: [.text(Keyspace.group), .text(consumer)]
        )
    }
}

/// One entry of a Redis stream.
package struct StreamEntry: Sendable {
    package let id: String
    /// Names and values in order; nil if the entry was deleted while it was pending.
    package let fields: [(name: String, value: ArraySlice<UInt8>)]?

    package init(id: String, fields: [(name: String, value: ArraySlice<UInt8>)]?) {
        self.id = id
        self.fields = fields
    }

    /// When the entry was appended, by Redis's clock; nil if its id has no time.
    var appendedAt: Timestamp? { Self.moment(ofID: self.id) }

    /// The time at the start of an entry's id; nil if it has none.
    static func moment(ofID id: String) -> Timestamp? {
        Self.milliseconds(ofID: id).map { Timestamp(milliseconds: $0) }
    }

    /// The time at the start of an entry's id, in Unix milliseconds; nil if it has none.
    package static func milliseconds(ofID id: String) -> Int64? {
        Int64(Substring(id.utf8.prefix { $0 != UInt8(ascii: "-") }))
    }

    package subscript(_ name: String) -> ArraySlice<UInt8>? {
        let name = ExactText(name)
        return self.fields?.first { ExactText($0.name) == name }?.value
    }

    /// Reads the reply of a read of one stream: `[[stream, entries]]`, or null for none.
    static func ofStream(_ reply: RedisReply) throws(RedisError) -> [StreamEntry] {
        guard var cursor = try reply.cursor(), try cursor.array() == 1, try cursor.array() != nil else { return [] }
        try cursor.skip()
        return try Self.read(&cursor)
    }

    /// Reads `[[id, [name, value, …]], …]` at the cursor.
    package static func read(_ cursor: inout RedisCursor) throws(RedisError) -> [StreamEntry] {
        guard let count = try cursor.array() else { return [] }
        var entries: [StreamEntry] = []
        entries.reserveCapacity(count)
        for _ in 0..<count {
            // XAUTOCLAIM of Redis 6.2 returns null for a deleted entry.
            guard try cursor.array() != nil else { continue }
            let id = try cursor.string() ?? ""
            guard let fieldCount = try cursor.array() else {
                entries.append(StreamEntry(id: id, fields: nil))
                continue
            }
            var fields: [(name: String, value: ArraySlice<UInt8>)] = []
            fields.reserveCapacity(fieldCount / 2)
            for _ in 0..<fieldCount / 2 {
                let name = try cursor.string() ?? ""
                fields.append((name, try cursor.bytes() ?? []))
            }
            entries.append(StreamEntry(id: id, fields: fields))
        }
        return entries
    }
}
