// Carillon · WaitingRetries.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The deliveries that wait in the ``RetrySet``, as they were when a repair first asked about their
/// stream.
///
/// Each set is read once, however many deliveries a repair asks about. A delivery that has left a
/// set since then is on its way, so it still counts.
package actor WaitingRetries {
    private static let page: Int64 = 1_000

    /// A delivery, whatever its try.
    private struct Identity: Hashable {
        let notification: NotificationID
        let device: NotificationID
        let callsForAttention: Bool
        let isRetraction: Bool

        init(_ work: DeliveryWork) {
            self.notification = work.notification
            self.device = work.device
            self.callsForAttention = work.callsForAttention
            self.isRetraction = work.isRetraction
        }
    }

    let live: Live
    private let most: Int
    private var sets: [String: Set<Identity>] = [:]
    private var remembered = 0
    /// How many waiting deliveries were not read because of the bound; they count as not waiting.
    package private(set) var unread = 0

    /// - Parameter most: how many deliveries of all sets are remembered, within a page.
    package init(_ live: Live, most: Int) {
        self.live = live
        self.most = most
    }

    /// Tells which deliveries of one stream wait for their next try.
    ///
    /// - Returns: a value for each delivery, in order.
    package func contain(
        _ works: [DeliveryWork],
        provider: Provider,
        lane: Lane
    ) async throws(RedisError) -> [Bool] {
        let key = self.live.keys.retries(provider, lane)
        if self.sets[key] == nil {
            let (waiting, unread) = try await self.read(key)
            self.sets[key] = waiting
            self.remembered += waiting.count
            self.unread += unread
        }
        let waiting = self.sets[key] ?? []
        return works.map { waiting.contains(Identity($0)) }
    }

    /// Reads a set, or the part of it that fits.
    private func read(_ key: String) async throws(RedisError) -> (waiting: Set<Identity>, unread: Int) {
        var waiting: Set<Identity> = []
        var count = 0
        var cursor = "0"
        repeat {
            let reply = try await self.live.connection.send(
                "ZSCAN", .text(key), .text(cursor), "COUNT", .integer(Self.page))
            guard var items = try reply.cursor(), try items.array() == 2 else {
                throw RedisError(.malformedReply, "ZSCAN returned no page")
            }
            cursor = try items.string() ?? "0"
            for _ in 0..<(try items.array() ?? 0) / 2 {
                let member = try items.bytes() ?? []
                try items.skip()
                count += 1
                if let work = try? DeliveryWork(member) { waiting.insert(Identity(work)) }
            }
            guard self.remembered + waiting.count < self.most else { break }
        } while cursor != "0"
        guard cursor != "0" else { return (waiting, 0) }
        let all = Int(try await self.live.connection.send("ZCARD", .text(key)).integer())
        return (waiting, max(all - count, 0))
    }
}
