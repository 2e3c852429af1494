// Carillon · ConsumerGroup.swift
// SPDX-License-Identifier: Apache-2.0

package import Redis

/// One consumer's view of one stream.
package struct ConsumerGroup: Sendable {
    /// A consumer as Redis lists it.
    package struct Consumer: Sendable, Equatable {
        package let name: String
        package let pending: Int
    }

    /// An entry that a consumer has taken and not acknowledged.
    package struct Pending: Sendable, Equatable {
        package let id: String
        /// How often it was handed out.
        package let deliveries: Int

        package init(id: String, deliveries: Int) {
            self.id = id
            self.deliveries = deliveries
        }
    }

    package let stream: String
    package let consumer: String
    private let connection: RedisConnection

    /// - Parameter connection: one that does not block, for all but ``read(count:block:)``.
    package init(stream: String, consumer: String, connection: RedisConnection) {
        self.stream = stream
        self.consumer = consumer
        self.connection = connection
    }

    /// Makes stream and group if they are missing; a new group begins with the oldest entry.
    package func create() async throws(RedisError) {
        do throws(RedisError) {
            try await self.connection.send(
                "XGROUP", "CREATE", .text(self.stream), .text(Keyspace.group), "0", "MKSTREAM"
            )
        } catch  where error.serverCode == "BUSYGROUP" {}
    }

    /// Takes up to `count` new entries, waiting up to `block` for the first; makes the group again if it is gone.
    ///
    /// - Parameter reader: a connection that only this call uses, as it blocks.
    package func read(
        on reader: RedisConnection,
        count: Int,
        block: Duration
    ) async throws(RedisError) -> [StreamEntry] {
        let milliseconds = block.components.seconds * 1_000 + block.components.attoseconds / 1_000_000_000_000_000
        do throws(RedisError) {
            let reply = try await reader.send(
                "XREADGROUP", "GROUP", .text(Keyspace.group), .text(self.consumer),
                "COUNT", .integer(Int64(count)), "BLOCK", .integer(max(1, milliseconds)),
                "STREAMS", .text(self.stream), ">",
                timeout: block + .seconds(5)
            )
            guard var cursor = try reply.cursor(), try cursor.array() == 1, try cursor.array() != nil else { return [] }
            try cursor.skip()
            return try StreamEntry.read(&cursor)
        } catch  where error.serverCode == "NOGROUP" {
            try await self.create()
            return []
        }
    }

    /// Takes up to `count` entries that wait, without waiting for any; makes the group if it is gone, but no stream.
    package func takeWaiting(count: Int) async throws(RedisError) -> [StreamEntry] {
        do throws(RedisError) {
            let reply = try await self.connection.send(
                "XREADGROUP", "GROUP", .text(Keyspace.group), .text(self.consumer), "COUNT", .integer(Int64(count)),
                "STREAMS", .text(self.stream), ">"
            )
            guard var cursor = try reply.cursor(), try cursor.array() == 1, try cursor.array() != nil else { return [] }
            try cursor.skip()
            return try StreamEntry.read(&cursor)
        } catch  where error.serverCode == "NOGROUP" {
            do throws(RedisError) {
                try await self.connection.send("XGROUP", "CREATE", .text(self.stream), .text(Keyspace.group), "0")
            } catch  where error.serverCode == "BUSYGROUP" || error.message?.contains("requires the key") == true {
                return []
            }
            return try await self.takeWaiting(count: count)
        }
    }

    /// Adds the acknowledgement of entries to a batch; they are deleted with it.
    package func acknowledge(_ ids: [String], in batch: inout RedisBatch) {
        guard !ids.isEmpty else { return }
        batch.append(
            StreamScripts.acknowledge,
            keys: [.text(self.stream)],
            arguments: [.text(Keyspace.group)] + ids.map { .text($0) }
        )
    }

    /// Acknowledges and deletes entries.
    package func acknowledge(_ ids: [String]) async throws(RedisError) {
        var batch = RedisBatch()
        self.acknowledge(ids, in: &batch)
        for reply in try await self.connection.send(batch) { _ = try reply.checked() }
    }

    /// All consumers of the group.
    package func consumers() async throws(RedisError) -> [Consumer] {
        let reply: RedisReply
        do throws(RedisError) {
            reply = try await self.connection.send("XINFO", "CONSUMERS", .text(self.stream), .text(Keyspace.group))
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

    /// What `consumer` has taken and not acknowledged, the oldest first.
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

    /// Whether an entry is still pending for this consumer.
    package func owns(_ id: String) async throws(RedisError) -> Bool {
        let reply = try await self.connection.send(
            "XPENDING", .text(self.stream), .text(Keyspace.group), .text(id), .text(id), "1", .text(self.consumer)
        )
        guard var cursor = try reply.cursor() else { return false }
        return try cursor.array() == 1
    }

    /// Takes over one entry of a consumer that is gone.
    ///
    /// - Parameter idle: what was handed out more recently stays, so that of two that claim only one gets it.
    /// - Returns: the entry; nil if somebody else has it by now or it was deleted.
    package func claim(_ id: String, idle: Duration) async throws(RedisError) -> StreamEntry? {
        let reply = try await self.connection.send(
            "XCLAIM", .text(self.stream), .text(Keyspace.group), .text(self.consumer),
            .integer(idle.components.seconds * 1_000), .text(id)
        )
        guard var cursor = try reply.cursor() else { return nil }
        return try StreamEntry.read(&cursor).first
    }

    /// Forgets a consumer that has nothing pending.
    package func remove(_ consumer: String) async throws(RedisError) {
        try await self.connection.send(
            "XGROUP", "DELCONSUMER", .text(self.stream), .text(Keyspace.group), .text(consumer)
        )
    }

    /// How many entries the stream holds, taken ones included.
    package func length() async throws(RedisError) -> Int {
        Int(try await self.connection.send("XLEN", .text(self.stream)).integer())
    }
}
