// Carillon · EventFeed.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

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
