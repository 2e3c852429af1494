// Carillon · EventFeed.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The streams of events for webhooks, each read by one consumer group that all dispatchers share
/// as one consumer.
///
/// Acknowledged entries stay, as upstream apps read them too.
package struct EventFeed: Sendable {
    /// Entries of one stream.
    package struct Batch: Sendable {
        let stream: String
        package let entries: [StreamEntry]
        fileprivate let keys: Keyspace

        /// The name by which receivers deduplicate an entry.
        package func name(of entry: StreamEntry) -> String { self.keys.eventName(entry.id, in: self.stream) }
    }

    private static let group = "webhooks"
    private static let consumer = "dispatchers"

    let live: Live

    /// Reads up to `count` new events of each part.
    ///
    /// Creates missing groups at the oldest entry.
    package func read(from parts: [Keyspace], count: Int) async throws(RedisError) -> [Batch] {
        try await self.batches(of: parts) { stream in
            [
                "XREADGROUP", "GROUP", .text(Self.group), .text(Self.consumer), "COUNT", .integer(Int64(count)),
                "STREAMS", .text(stream), ">",
            ]
        } read: { reply throws(RedisError) in
            try StreamEntry.ofStream(reply)
        }
    }

    /// Takes over events that a dead dispatcher read and did not acknowledge within `idle`.
    package func takeOver(
        from parts: [Keyspace],
        idle: Duration,
        count: Int
    ) async throws(RedisError) -> [Batch] {
        try await self.batches(of: parts) { stream in
            [
                "XAUTOCLAIM", .text(stream), .text(Self.group), .text(Self.consumer),
                .integer(idle.inMilliseconds), "0", "COUNT", .integer(Int64(count)),
            ]
        } read: { reply throws(RedisError) in
            guard var cursor = try reply.cursor(), try cursor.array() != nil else { return [] }
            try cursor.skip()
            return try StreamEntry.read(&cursor)
        }
    }

    /// Acknowledges events that are in their queues.
    package func acknowledge(_ batch: Batch) async throws(RedisError) {
        guard !batch.entries.isEmpty else { return }
        try await self.live.connection.send(
            ["XACK", .text(batch.stream), .text(Self.group)] + batch.entries.map { .text($0.id) })
    }

    /// Skips all events of these parts, as no webhook wants them.
    package func skip(_ parts: [Keyspace]) async throws(RedisError) {
        let streams = parts.map(\.events)
        var batch = RedisBatch()
        for stream in streams { batch.append("XGROUP", "SETID", .text(stream), .text(Self.group), "$") }
        let replies = try await self.live.connection.send(batch)
        var missing: [String] = []
        for (stream, reply) in zip(streams, replies) {
            do throws(RedisError) {
                _ = try reply.checked()
            } catch  where error.serverCode == "NOGROUP" || error.message?.contains("requires the key") == true {
                missing.append(stream)
            }
        }
        try await self.create(missing, at: "$")
    }

    // MARK: Groups

    /// Sends a command for each part's stream, and creates the groups that are missing.
    ///
    /// - Throws: the last error, if no part had entries; entries of other parts must not wait for a
    ///   master that is away.
    private func batches(
        of parts: [Keyspace],
        _ command: (String) -> [RedisArgument],
        read: (RedisReply) throws(RedisError) -> [StreamEntry]
    ) async throws(RedisError) -> [Batch] {
        guard !parts.isEmpty else { return [] }
        var batch = RedisBatch()
        for part in parts { batch.append(command(part.events)) }
        var batches: [Batch] = []
        var missing: [String] = []
        var fault: RedisError?
        for (part, reply) in zip(parts, try await self.live.connection.send(batch, isPatient: false)) {
            do throws(RedisError) {
                let entries = try read(reply)
                if !entries.isEmpty { batches.append(Batch(stream: part.events, entries: entries, keys: part)) }
            } catch  where error.serverCode == "NOGROUP" {
                // Streams outside the parts get no new events, so they need no group.
                if part.index != nil || !part.isSpread { missing.append(part.events) }
            } catch {
                fault = error
            }
        }
        if let fault, batches.isEmpty { throw fault }
        try await self.create(missing, at: "0")
        return batches
    }

    private func create(_ streams: [String], at id: RedisArgument) async throws(RedisError) {
        guard !streams.isEmpty else { return }
        var batch = RedisBatch()
        for stream in streams { batch.append("XGROUP", "CREATE", .text(stream), .text(Self.group), id, "MKSTREAM") }
        for reply in try await self.live.connection.send(batch) {
            do throws(RedisError) {
                _ = try reply.checked()
            } catch  where error.serverCode == "BUSYGROUP" {}
        }
    }
}
