// Carillon · RateLimits.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// What users have used up of their rates, over all nodes: one key a user and kind, which lapses when its bucket is full.
package struct TokenBuckets: Sendable {
    let live: Live

    /// Takes tokens, also those that are not there.
    ///
    /// - Parameters:
    ///   - kind: what is bounded; part of the key.
    ///   - burst: tokens that a full bucket holds.
    /// - Returns: in how many milliseconds the bucket holds a token again; 0 if it still does.
    package func take(
        _ count: Int,
        kind: String,
        user: String,
        perSecond: Int,
        burst: Int
    ) async throws(RedisError) -> Int64 {
        try await self.run(
            StreamScripts.takeTokens, count, kind: kind, user: user, perSecond: perSecond, burst: burst)
    }

    /// Takes as many of so many tokens as there are.
    ///
    /// - Parameters:
    ///   - kind: what is bounded; part of the key.
    ///   - burst: tokens that a full bucket holds.
    /// - Returns: how many were taken.
    package func takeAvailable(
        _ count: Int,
        kind: String,
        user: String,
        perSecond: Int,
        burst: Int
    ) async throws(RedisError) -> Int {
        Int(
            try await self.run(
                StreamScripts.takeAvailableTokens, count, kind: kind, user: user, perSecond: perSecond, burst: burst))
    }

    private func run(
        _ script: RedisScript,
        _ count: Int,
        kind: String,
        user: String,
        perSecond: Int,
        burst: Int
    ) async throws(RedisError) -> Int64 {
        var batch = RedisBatch()
        batch.append(
            script,
            keys: [.text(self.live.keys.bucket(kind, user))],
            arguments: [.text("\(perSecond)"), .text("\(burst)"), .text("\(count)")]
        )
        guard let reply = try await self.live.connection.send(batch).first else { return 0 }
        return try reply.integer()
    }
}

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

/// A provider's rate for one account, shared by all dispatchers and by the account's apps.
package struct SendingTurns: Sendable {
    let live: Live

    /// Takes turns to send, as many as there are.
    ///
    /// - Parameter perSecond: the account's rate, which all who take turns of it must say alike: it is what the bucket's level is
    ///   counted by.
    /// - Returns: how many were taken, and in how many milliseconds there is another.
    package func take(
        _ count: Int,
        provider: Provider,
        account: String,
        perSecond: Int
    ) async throws(RedisError) -> (taken: Int, wait: Int64) {
        let reply = try await self.live.connection.run(
            StreamScripts.takeTurns,
            keys: [.text(self.live.keys.bucket("send", "\(provider.rawValue):\(account)"))],
            arguments: [.integer(Int64(perSecond)), .integer(Int64(max(1, perSecond / 4))), .integer(Int64(count))]
        )
        guard var cursor = try reply.cursor(), try cursor.array() != nil else { return (0, 1_000) }
        return (Int(try cursor.integer()), try cursor.integer())
    }
}

/// Until when nothing is sent by a provider's accounts, whichever dispatcher was asked to wait: a hash a provider, with a field
/// an account, which ends with the last of them.
package struct SendingPauses: Sendable {
    /// Until when one account is left alone.
    package struct Pause: Sendable, Equatable {
        package let provider: Provider
        /// What the provider counts messages by.
        package let account: String
        /// Which of the provider's services; nil where it is one.
        package let service: String?
        package let until: Timestamp

        package init(provider: Provider, account: String, service: String? = nil, until: Timestamp) {
            self.provider = provider
            self.account = account
            self.service = service
            self.until = until
        }
    }

    let live: Live

    /// Tells of pauses, of which a later one that is known stays, and hears which there are, in one round trip.
    ///
    /// - Parameter providers: those whose pauses are asked for.
    /// - Returns: what is not over.
    package func exchange(
        _ told: [Pause],
        of providers: [Provider],
        now: Timestamp
    ) async throws(RedisError) -> [Pause] {
        var batch = RedisBatch()
        for pause in told {
            batch.append(
                StreamScripts.keepPause,
                keys: [.text(self.live.keys.pauses(pause.provider))],
                arguments: [
                    .text(Self.field(pause)), .integer(pause.until.milliseconds), .integer(now.milliseconds),
                ]
            )
        }
        for provider in providers { batch.append("HGETALL", .text(self.live.keys.pauses(provider))) }
        guard !batch.isEmpty else { return [] }
        let replies = try await self.live.connection.send(batch)
        for reply in replies.prefix(told.count) { _ = try reply.checked() }
        var pauses: [Pause] = []
        for (provider, reply) in zip(providers, replies.dropFirst(told.count)) {
            let fields = try reply.strings()
            for index in stride(from: 0, to: fields.count - 1, by: 2) {
                guard let pause = Self.pause(provider, fields[index], fields[index + 1]), pause.until > now else {
                    continue
                }
                pauses.append(pause)
            }
        }
        return pauses
    }

    /// The service first, which has no spaces; an account may.
    private static func field(_ pause: Pause) -> String { "\(pause.service ?? "-") \(pause.account)" }

    private static func pause(_ provider: Provider, _ field: String, _ moment: String) -> Pause? {
        let parts = field.split(separator: " ", maxSplits: 1)
        guard parts.count == 2, let milliseconds = Int64(moment) else { return nil }
        return Pause(
            provider: provider,
            account: String(parts[1]),
            service: parts[0] == "-" ? nil : String(parts[0]),
            until: Timestamp(milliseconds: milliseconds)
        )
    }
}
