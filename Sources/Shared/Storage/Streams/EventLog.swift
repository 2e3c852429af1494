// Carillon · EventLog.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The stream on which upstream apps read what became of their notifications.
///
/// It is bounded: what falls off its end is lost to whoever has not read it, and shows as the difference between the
/// stream's `entries-added` and its length.
package struct EventLog: Sendable {
    /// The fields of every entry, in this order; what does not apply is empty.
    ///
    /// Redis keeps names only once where entries have the same.
    package static let fields = [
        "event", "at", "notification", "job", "user", "org", "type", "category", "channel", "platform", "app", "device",
        "reason",
    ]

    /// Each field's name in its wire form.
    private static let names = Self.fields.map { RedisBatch.encoded(.text($0)) }

    private let length: Int
    /// The command up to its fields.
    private let head: [UInt8]

    /// - Parameter length: about how many entries are kept; nil to write none.
    package init(keys: Keyspace, length: Int?) {
        self.length = length ?? 0
        self.head = RedisBatch.encoded(
            "XADD", .text(keys.events), "MAXLEN", "~", .integer(Int64(length ?? 0)), "*")
    }

    /// Whether events are written at all.
    package var isOn: Bool { self.length > 0 }

    /// Adds an event to a batch, as one command; nothing if events are off.
    ///
    /// It is put together in an array, which takes half the time of as many arguments.
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

    /// Appends events by themselves, in batches.
    package func append(_ events: [LifecycleEvent], on connection: RedisConnection) async throws(RedisError) {
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

/// The events' stream as the webhooks read it: one consumer group, which all dispatchers share as one consumer.
///
/// Entries are acknowledged and stay, since apps read them too.
package struct EventFeed: Sendable {
    private static let group = "webhooks"
    private static let consumer = "dispatchers"

    let live: Live

    private var key: String { self.live.keys.events }

    /// Takes up to `count` events that nobody has taken; makes the group again if it is gone, from the oldest entry on.
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

    /// Takes over what was taken and not acknowledged for a while, by a dispatcher that died.
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

    /// Notes that events are where they belong.
    package func acknowledge(_ ids: [String]) async throws(RedisError) {
        guard !ids.isEmpty else { return }
        try await self.live.connection.send(["XACK", .text(self.key), .text(Self.group)] + ids.map { .text($0) })
    }

    /// Passes over all that is there, as nobody is to be told of it.
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
