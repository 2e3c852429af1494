// Carillon · UsageCaps.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// How many interruptions users had lately: a sorted set a user and cap, whose members are notification ids.
///
/// A set lapses with its span, and holds no more members than its cap allows.
package struct UsageCaps: Sendable {
    /// One cap that a notification counts against.
    package struct Cap: Sendable, Equatable {
        /// What is counted, such as `type:news`; part of the key.
        package let name: String
        package let limit: FrequencyCap

        package init(name: String, limit: FrequencyCap) {
            self.name = name
            self.limit = limit
        }
    }

    /// A notification and what it counts against.
    package struct Use: Sendable {
        package let user: String
        package let notification: NotificationID
        package let caps: [Cap]

        package init(user: String, notification: NotificationID, caps: [Cap]) {
            self.user = user
            self.notification = notification
            self.caps = caps
        }
    }

    let live: Live

    /// Counts notifications in their order, in one round trip; what was counted before counts once.
    ///
    /// - Parameter isAnew: whether what was counted before counts as of now instead, for what was held back in between.
    /// - Returns: of each the index of the first cap that was reached, in which case it does not count; nil if none was.
    package func use(_ uses: [Use], now: Timestamp, isAnew: Bool = false) async throws(RedisError) -> [Int?] {
        var batch = RedisBatch()
        for use in uses {
            batch.append(
                isAnew ? StreamScripts.useCapAnew : StreamScripts.useCap,
                keys: use.caps.map { .text(self.live.keys.usage($0.name, use.user)) },
                arguments: [.text(use.notification.description), .integer(now.milliseconds)]
                    + use.caps.flatMap { cap -> [RedisArgument] in
                        [.integer(cap.limit.window.inMicroseconds / 1_000), .integer(Int64(cap.limit.count))]
                    }
            )
        }
        guard !batch.isEmpty else { return [] }
        var reached: [Int?] = []
        for reply in try await self.live.connection.send(batch) {
            let number = Int(try reply.integer())
            reached.append(number > 0 ? number - 1 : nil)
        }
        return reached
    }

    /// Which of a user's caps one more would reach, in one round trip; counts nothing.
    ///
    /// - Returns: the index of the first one; nil if there is none.
    package func reached(_ caps: [Cap], user: String, now: Timestamp) async throws(RedisError) -> Int? {
        guard !caps.isEmpty else { return nil }
        var batch = RedisBatch()
        for cap in caps {
            let since = now.milliseconds - cap.limit.window.inMicroseconds / 1_000
            batch.append("ZCOUNT", .text(self.live.keys.usage(cap.name, user)), .text("(\(since)"), "+inf")
        }
        var counts: [Int64] = []
        for reply in try await self.live.connection.send(batch) { counts.append(try reply.integer()) }
        return zip(caps.indices, counts).first { index, count in count >= caps[index].limit.count }?.0
    }
}
