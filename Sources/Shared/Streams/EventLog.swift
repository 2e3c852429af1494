// Carillon · EventLog.swift
// SPDX-License-Identifier: Apache-2.0

package import Model
import NIOCore
package import Redis

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

    private static let names = Self.fields.map { RedisBatch.encoded(.text($0)) }
    private static let empty = RedisBatch.encoded("")

    private let length: Int
    /// The command up to its fields.
    private let head: ByteBuffer

    /// - Parameter length: about how many entries are kept; nil to write none.
    package init(keys: Keyspace, length: Int?) {
        self.length = length ?? 0
        self.head = RedisBatch.encoded(
            "XADD", .text(keys.events), "MAXLEN", "~", .integer(Int64(length ?? 0)), "*")
    }

    /// Whether events are written at all.
    package var isOn: Bool { self.length > 0 }

    /// Adds an event to a batch, as one command; nothing if events are off.
    package func add(_ event: LifecycleEvent, in batch: inout RedisBatch) {
        guard self.isOn else { return }
        batch.begin(argumentCount: 6 + 2 * Self.fields.count)
        batch.arguments(encoded: self.head)
        var place = 0
        func next(_ value: String?) {
            batch.arguments(encoded: Self.names[place])
            place += 1
            if let value, !value.isEmpty {
                batch.argument(.text(value))
            } else {
                batch.arguments(encoded: Self.empty)
            }
        }
        let label = event.label
        next(event.kind.rawValue)
        next(event.at.rfc3339)
        next(label.id.description)
        next(label.job)
        next(label.user)
        next(label.org)
        next(label.type)
        next(label.category)
        next(event.channel?.rawValue)
        next(event.platform?.rawValue)
        next(event.app)
        next(event.device?.description)
        next(event.reason)
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
