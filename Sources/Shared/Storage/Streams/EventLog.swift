// Carillon · EventLog.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The stream on which upstream apps read the events of their notifications.
///
/// It is bounded: a reader that is too slow loses the oldest events, which shows as the difference
/// between the stream's `entries-added` and its length.
package struct EventLog: Sendable {
    /// The fields of every entry, in this order; those that do not apply are empty.
    ///
    /// Redis stores the names once for entries with the same fields.
    static let fields = [
        "event", "at", "notification", "job", "user", "org", "type", "category", "channel", "platform", "app", "device",
        "reason",
    ]

    /// The wire form of each field's name.
    private static let names = Self.fields.map { RedisBatch.encoded(.text($0)) }

    private let length: Int
    /// The command up to its fields.
    private let head: [UInt8]

    /// - Parameter length: the approximate number of entries to keep; nil turns events off.
    package init(keys: Keyspace, length: Int?) {
        self.length = length ?? 0
        self.head = RedisBatch.encoded(
            "XADD", .text(keys.events), "MAXLEN", "~", .integer(Int64(length ?? 0)), "*")
    }

    /// Whether events are written.
    package var isOn: Bool { self.length > 0 }

    /// Adds an event to a batch unless events are off.
    ///
    /// Encoding into one array takes half the time of separate arguments.
    package func add(_ event: LifecycleEvent, in batch: inout RedisBatch) {
        guard self.isOn else { return }
        let label = event.label
        var bytes: [UInt8] = []
        bytes.reserveCapacity(640)
        bytes += self.head
        Self.write(0, event.kind.rawValue, to: &bytes)
        Self.write(1, event.at.rfc3339, to: &bytes)
        Self.write(2, label.id.halves == (0, 0) ? nil : label.id.description, to: &bytes)
        Self.write(3, label.job, to: &bytes)
        Self.write(4, label.user, to: &bytes)
        Self.write(5, label.org, to: &bytes)
        Self.write(6, label.type, to: &bytes)
        Self.write(7, label.category, to: &bytes)
        Self.write(8, event.channel?.rawValue, to: &bytes)
        Self.write(9, event.platform?.rawValue, to: &bytes)
        Self.write(10, event.app, to: &bytes)
        Self.write(11, event.device?.description, to: &bytes)
        Self.write(12, event.reason, to: &bytes)
        batch.begin(argumentCount: 6 + 2 * Self.fields.count)
        batch.arguments(encoded: bytes)
    }

    private static func write(_ place: Int, _ value: String?, to bytes: inout [UInt8]) {
        bytes += Self.names[place]
        RedisBatch.encode(value ?? "", to: &bytes)
    }

    /// Appends events in batches of their own.
    package func append(_ events: [LifecycleEvent], on connection: RedisClient) async throws(RedisError) {
        guard self.isOn else { return }
        var rest = events[...]
        while !rest.isEmpty {
            var batch = RedisBatch()
            for event in rest.prefix(500) { self.add(event, in: &batch) }
            rest = rest.dropFirst(500)
            for reply in try await connection.send(batch) { _ = try reply.checked() }
        }
    }
}

/// The events stream for webhooks, read by one consumer group that all dispatchers share as one
/// consumer.
///
/// Acknowledged entries stay, as upstream apps read them too.
package struct EventFeed: Sendable {
    private static let group = "webhooks"
    private static let consumer = "dispatchers"

    let live: Live

    private var key: String { self.live.keys.events }

    /// Reads up to `count` new events.
    ///
    /// Creates a missing group at the oldest entry.
    package func take(count: Int) async throws(RedisError) -> [StreamEntry] {
        do throws(RedisError) {
            let reply = try await self.live.connection.send(
                "XREADGROUP", "GROUP", .text(Self.group), .text(Self.consumer), "COUNT", .integer(Int64(count)),
                "STREAMS", .text(self.key), ">"
            )
            guard var cursor = try reply.cursor(), try cursor.array() == 1, try cursor.array() != nil else { return [] }
            try cursor.skip()
            return try StreamEntry.read(&cursor)
        } catch  where error.serverCode == "NOGROUP" {
            do throws(RedisError) {
                try await self.live.connection.send(
                    "XGROUP", "CREATE", .text(self.key), .text(Self.group), "0", "MKSTREAM")
            } catch  where error.serverCode == "BUSYGROUP" {}
            return []
        }
    }

    /// Takes over events that a dead dispatcher read and did not acknowledge within `idle`.
    package func takeOver(idle: Duration, count: Int) async throws(RedisError) -> [StreamEntry] {
        do throws(RedisError) {
            let reply = try await self.live.connection.send(
                "XAUTOCLAIM", .text(self.key), .text(Self.group), .text(Self.consumer),
                .integer(idle.components.seconds * 1_000), "0", "COUNT", .integer(Int64(count))
            )
            guard var cursor = try reply.cursor(), try cursor.array() != nil else { return [] }
            try cursor.skip()
            return try StreamEntry.read(&cursor)
        } catch  where error.serverCode == "NOGROUP" {
            return []
        }
    }

    /// Acknowledges events that are in their queues.
    package func acknowledge(_ ids: [String]) async throws(RedisError) {
        guard !ids.isEmpty else { return }
        try await self.live.connection.send(["XACK", .text(self.key), .text(Self.group)] + ids.map { .text($0) })
    }

    /// Skips all events in the stream, as no webhook wants them.
    package func skip() async throws(RedisError) {
        do throws(RedisError) {
            try await self.live.connection.send("XGROUP", "SETID", .text(self.key), .text(Self.group), "$")
        } catch  where error.serverCode == "NOGROUP" || error.message?.contains("requires the key") == true {
            do throws(RedisError) {
                try await self.live.connection.send(
                    "XGROUP", "CREATE", .text(self.key), .text(Self.group), "$", "MKSTREAM")
            } catch  where error.serverCode == "BUSYGROUP" {}
        }
    }
}
