// Carillon · EventLog.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The streams on which upstream apps read the events of their notifications: one for each part,
/// with the events of its users.
///
/// They are bounded: a reader that is too slow loses the oldest events, which shows as the
/// difference between a stream's `entries-added` and its length.
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
    /// The wire form of each field without a value.
    private static let absent = Self.fields.map { RedisBatch.encoded(.text($0), "") }

    private let keys: Keyspace
    /// The command up to its fields, for each part; empty if events are off.
    private let heads: [[UInt8]]

    /// - Parameter length: the approximate number of entries to keep in all parts together; nil
    ///   turns events off.
    package init(keys: Keyspace, length: Int?) {
        self.keys = keys
        guard let length else {
            self.heads = []
            return
        }
        let parts = keys.parts
        let share = Int64(max(1, length / parts.count))
        self.heads = parts.map {
            RedisBatch.encoded("XADD", .text($0.events), "MAXLEN", "~", .integer(share), "*")
        }
    }

    /// Whether events are written.
    package var isOn: Bool { !self.heads.isEmpty }

    /// Adds an event to a batch unless events are off.
    ///
    /// Encoding into one array takes half the time of separate arguments.
    package func add(_ event: LifecycleEvent, in batch: inout RedisBatch) {
        guard self.isOn else { return }
        let label = event.label
        var bytes: [UInt8] = []
        bytes.reserveCapacity(640)
        bytes += self.heads[self.keys.isSpread ? self.keys.index(of: label.user) : 0]
        Self.write(0, event.kind.rawValue, to: &bytes)
        Self.write(1, event.at.rfc3339, to: &bytes)
        Self.write(2, label.id.halves == (0, 0) ? nil : label.id, to: &bytes)
        Self.write(3, label.job, to: &bytes)
        Self.write(4, label.user, to: &bytes)
        Self.write(5, label.org, to: &bytes)
        Self.write(6, label.type, to: &bytes)
        Self.write(7, label.category, to: &bytes)
        Self.write(8, event.channel?.rawValue, to: &bytes)
        Self.write(9, event.platform?.rawValue, to: &bytes)
        Self.write(10, event.app, to: &bytes)
        Self.write(11, event.device, to: &bytes)
        Self.write(12, event.reason, to: &bytes)
        batch.begin(argumentCount: 6 + 2 * Self.fields.count)
        batch.arguments(encoded: bytes)
    }

    private static func write(_ index: Int, _ value: String?, to bytes: inout [UInt8]) {
        guard let value else {
            bytes += Self.absent[index]
            return
        }
        bytes += Self.names[index]
        RedisBatch.encode(value, to: &bytes)
    }

    private static func write(_ index: Int, _ id: NotificationID?, to bytes: inout [UInt8]) {
        guard let id else {
            bytes += Self.absent[index]
            return
        }
        bytes += Self.names[index]
        bytes += "$36\r\n".utf8
        id.append(to: &bytes)
        bytes += "\r\n".utf8
    }

    /// Appends events in batches of their own, and returns a reply for each.
    ///
    /// An event whose server is away gets an error; the others are written.
    ///
    /// - Parameter isPatient: whether the first batch waits for a server that is away.
    @discardableResult
    package func append(
        _ events: [LifecycleEvent],
        on connection: RedisClient,
        isPatient: Bool = true
    ) async -> [RedisReply] {
        guard self.isOn else { return [] }
        var replies: [RedisReply] = []
        var isPatient = isPatient
        while replies.count < events.count {
            var batch = RedisBatch()
            for event in events[replies.count...].prefix(500) { self.add(event, in: &batch) }
            do throws(RedisError) {
                if !isPatient { try connection.failIfAway() }
                let answers = try await connection.send(batch, isPatient: isPatient)
                if answers.contains(where: { if case .error = $0 { true } else { false } }) { isPatient = false }
                replies += answers
            } catch {
                let lost = connection.isCluster ? batch.count : events.count - replies.count
                replies += Array(repeating: RedisReply.error(error), count: lost)
                isPatient = false
            }
        }
        return replies
    }
}
