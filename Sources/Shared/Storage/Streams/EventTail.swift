// Carillon · EventTail.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Reads the events without a consumer group, so that other readers are not affected.
package struct EventTail: Sendable {
    /// An event with its fields that are not empty, in the order of the stream.
    package struct Entry: Sendable {
        package let id: String
        package let fields: [(name: String, value: String)]
        fileprivate let position: (milliseconds: Int64, number: Int64)

        package subscript(_ name: String) -> String? { self.fields.first { $0.name == name }?.value }

        fileprivate init(_ entry: StreamEntry, id: String) {
            self.id = id
            let numbers = entry.id.split(separator: "-").map { Int64($0) ?? 0 }
            self.position = (numbers.first ?? 0, numbers.last ?? 0)
            self.fields = (entry.fields ?? []).compactMap { name, value in
                value.isEmpty ? nil : (name, String(decoding: value, as: UTF8.self))
            }
        }
    }

    private static let mostAtOnce: Int64 = 1_000
    private static let interval: Duration = .milliseconds(250)

    private let live: Live
    /// The last entry that was seen, for each part's stream.
    private var last: [(stream: String, entry: String)]

    init(live: Live) {
        self.live = live
        self.last = live.keys.parts.map { ($0.events, "0") }
    }

    /// Returns the last events, the newest first, and remembers where new ones begin.
    package mutating func newest(_ count: Int) async throws(RedisError) -> [Entry] {
        var batch = RedisBatch()
        for (stream, _) in self.last {
            // At least one: new events begin after its id.
            batch.append("XREVRANGE", .text(stream), "+", "-", "COUNT", .integer(Int64(max(count, 1))))
        }
        var entries: [Entry] = []
        for (index, reply) in try await self.live.connection.send(batch).enumerated() {
            guard var cursor = try reply.cursor() else { continue }
            let found = try StreamEntry.read(&cursor)
            if let newest = found.first { self.last[index].entry = newest.id }
            entries += found.map { self.entry($0, of: index) }
        }
        return Array(entries.sorted { $0.position > $1.position }.prefix(count))
    }

    /// Waits for events after the last one, and returns them, the oldest first; none when the time
    /// is up.
    package mutating func next(patience: Duration) async throws -> [Entry] {
        guard self.live.keys.isSpread else { return try await self.read(blocking: patience) }
        let start = ContinuousClock.now
        while ContinuousClock.now - start < patience {
            let entries = try await self.read(blocking: nil)
            guard entries.isEmpty else { return entries }
            // The streams are on several masters, and one connection cannot wait for all, so poll.
            try await Task.sleep(for: Self.interval)
        }
        return []
    }

    private mutating func read(blocking patience: Duration?) async throws(RedisError) -> [Entry] {
        var batch = RedisBatch()
        for (stream, entry) in self.last {
            // `BLOCK 0` would wait for ever.
            let wait: [RedisArgument] = patience.map { ["BLOCK", .integer(max(1, $0.inMilliseconds))] } ?? []
            batch.append(
                ["XREAD", "COUNT", .integer(Self.mostAtOnce)] + wait + ["STREAMS", .text(stream), .text(entry)])
        }
        let replies = try await self.live.connection.send(batch, timeout: patience.map { $0 + .seconds(5) })
        var entries: [Entry] = []
        for (index, reply) in replies.enumerated() {
            let found = try StreamEntry.ofStream(reply)
            if let newest = found.last { self.last[index].entry = newest.id }
            entries += found.map { self.entry($0, of: index) }
        }
        return entries.sorted { $0.position < $1.position }
    }

    private func entry(_ entry: StreamEntry, of index: Int) -> Entry {
        Entry(entry, id: self.live.keys.eventName(entry.id, in: self.last[index].stream))
    }
}
