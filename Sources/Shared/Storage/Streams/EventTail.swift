// Carillon · EventTail.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Reads the event stream as an onlooker, without a consumer group.
package struct EventTail: Sendable {
    /// An event with its fields that are not empty, in the order of the stream.
    package struct Entry: Sendable {
        package let id: String
        package let fields: [(name: String, value: String)]

        package subscript(_ name: String) -> String? { self.fields.first { $0.name == name }?.value }

        fileprivate init(_ entry: StreamEntry) {
            self.id = entry.id
            self.fields = (entry.fields ?? []).compactMap { name, value in
                value.isEmpty ? nil : (name, String(decoding: value, as: UTF8.self))
            }
        }
    }

    private static let mostAtOnce: Int64 = 1_000

    let live: Live

    private var key: RedisArgument { .text(self.live.keys.events) }

    /// Returns the last events, the newest first.
    package func newest(_ count: Int) async throws(RedisError) -> [Entry] {
        let reply = try await self.live.connection.send(
            "XREVRANGE", self.key, "+", "-", "COUNT", .integer(Int64(count)))
        guard var cursor = try reply.cursor() else { return [] }
        return try StreamEntry.read(&cursor).map { Entry($0) }
    }

    /// Waits for events after an id, and returns them, the oldest first; none when the time is up.
    package func after(_ id: String, patience: Duration) async throws(RedisError) -> [Entry] {
        let reply = try await self.live.connection.send(
            "XREAD", "COUNT", .integer(Self.mostAtOnce), "BLOCK",
            .integer(patience.components.seconds * 1_000), "STREAMS", self.key, .text(id),
            timeout: patience + .seconds(5))
        guard var cursor = try reply.cursor(), try cursor.array() == 1, try cursor.array() != nil else { return [] }
        try cursor.skip()
        return try StreamEntry.read(&cursor).map { Entry($0) }
    }
}
