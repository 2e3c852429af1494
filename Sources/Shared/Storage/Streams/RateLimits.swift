// Carillon · RateLimits.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Token buckets across all processes: one key per user and kind, or per provider's account, which
/// expires when the bucket is full.
///
/// All callers must pass the same rate and capacity for a bucket, as its level derives from them.
package struct TokenBuckets: Sendable {
    /// A user's action that is limited; its raw value is part of the key.
    package enum Kind: String, Sendable, CaseIterable {
        /// REST calls.
        case calls
        /// Messages from sockets.
        case messages
        /// New sockets and streams.
        case openings
        /// Snoozes and test sends.
        case ownSends = "own_sends"
        /// Calls that repeat events of a notification.
        case repeatedEvents = "repeated_events"
        /// Changes of quiet hours or of the zone.
        case quietHours = "quiet_hours"
        /// Removals of read notifications from other devices.
        case retractions = "retract"
    }

    let live: Live

    /// Takes tokens, even more than the bucket holds.
    ///
    /// Fails at once while the bucket's server is away.
    ///
    /// - Parameter burst: the capacity of the bucket.
    /// - Returns: the milliseconds until the bucket holds a token again; 0 if it does now.
    package func take(
        _ count: Int,
        kind: Kind,
        user: String,
        perSecond: Int,
        burst: Int
    ) async throws(RedisError) -> Int64 {
        try await self.run(
            StreamScripts.takeTokens, count, from: self.live.keys.bucket(kind.rawValue, user),
            perSecond: Double(perSecond), burst: burst
        ).integer()
    }

    /// Takes the available tokens, up to `count`.
    ///
    /// Fails at once while the bucket's server is away.
    ///
    /// - Parameters:
    ///   - perSecond: the rate; may be less than 1.
    ///   - burst: the capacity of the bucket.
    /// - Returns: the number of tokens taken and the milliseconds until the next one.
    package func takeAvailable(
        _ count: Int,
        kind: Kind,
        user: String,
        perSecond: Double,
        burst: Int
    ) async throws(RedisError) -> (taken: Int, wait: Int64) {
        try await self.takeAvailable(
            count, from: self.live.keys.bucket(kind.rawValue, user), perSecond: perSecond, burst: burst)
    }

    /// The same for the calls to a provider; `account` names the provider and its account.
    package func takeAvailable(
        _ count: Int,
        account: String,
        perSecond: Double,
        burst: Int
    ) async throws(RedisError) -> (taken: Int, wait: Int64) {
        try await self.takeAvailable(
            count, from: self.live.keys.bucket("send", account), perSecond: perSecond, burst: burst)
    }

    private func takeAvailable(
        _ count: Int,
        from key: String,
        perSecond: Double,
        burst: Int
    ) async throws(RedisError) -> (taken: Int, wait: Int64) {
        let reply = try await self.run(StreamScripts.takeTurns, count, from: key, perSecond: perSecond, burst: burst)
        guard var cursor = try reply.cursor(), try cursor.array() != nil else { return (0, 1_000) }
        return (Int(try cursor.integer()), try cursor.integer())
    }

    private func run(
        _ script: RedisScript,
        _ count: Int,
        from key: String,
        perSecond: Double,
        burst: Int
    ) async throws(RedisError) -> RedisReply {
        var batch = RedisBatch()
        batch.append(
            script,
            keys: [.text(key)],
            arguments: [.text("\(perSecond)"), .text("\(burst)"), .text("\(count)")]
        )
        return try await self.live.connection.run(batch, isPatient: false)[0]
    }
}

/// Recent interruptions of users: one sorted set per user and cap, whose members are notification
/// ids.
///
/// A set expires with its window and has at most as many members as its cap allows.
package struct UsageCaps: Sendable {
    /// A cap that a notification counts against.
    package struct Cap: Sendable, Equatable {
        /// The counted subject, such as `type:news`; part of the key.
        let name: String
        let limit: FrequencyCap

        package init(name: String, limit: FrequencyCap) {
            self.name = name
            self.limit = limit
        }
    }

    /// A notification and its caps.
    package struct Use: Sendable {
        let user: String
        package let notification: NotificationID
        let caps: [Cap]

        package init(user: String, notification: NotificationID, caps: [Cap]) {
            self.user = user
            self.notification = notification
            self.caps = caps
        }
    }

    let live: Live

    /// Counts notifications in order, in one round trip; a repeated notification counts once.
    ///
    /// - Parameter recounts: whether to count repeated notifications again, as of now, because they
    ///   were held back.
    /// - Returns: for each notification the index of the first reached cap, in which case it is not
    ///   counted; nil if no cap is reached.
    package func use(_ uses: [Use], now: Timestamp, recounts: Bool = false) async throws(RedisError) -> [Int?] {
        var batch = RedisBatch()
        for use in uses {
            var arguments: [RedisArgument] = [
                .text(use.notification.description), .integer(now.milliseconds), .integer(recounts ? 1 : 0),
            ]
            for cap in use.caps {
                arguments += [.integer(cap.limit.window.inMilliseconds), .integer(Int64(cap.limit.count))]
            }
            batch.append(
                StreamScripts.useCap,
                keys: use.caps.map { .text(self.live.keys.usage($0.name, use.user)) },
                arguments: arguments
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

    /// Finds the first cap that a user has reached, in one round trip, without counting.
    ///
    /// - Returns: the index of the cap; nil if none is reached.
    package func reached(_ caps: [Cap], user: String, now: Timestamp) async throws(RedisError) -> Int? {
        guard !caps.isEmpty else { return nil }
        var batch = RedisBatch()
        for cap in caps {
            let since = now.milliseconds - cap.limit.window.inMilliseconds
            // Later members were counted before the clock stepped back.
            let end = now.milliseconds + 60_000
            batch.append(
                "ZCOUNT", .text(self.live.keys.usage(cap.name, user)), .text("(\(since)"), .text("(\(end)"))
        }
        var counts: [Int64] = []
        for reply in try await self.live.connection.send(batch) { counts.append(try reply.integer()) }
        return zip(caps.indices, counts).first { index, count in count >= caps[index].limit.count }?.0
    }
}

/// Pauses of providers' accounts, shared by all dispatchers: one hash per provider with one field
/// per account, removed with its last field.
package struct SendingPauses: Sendable {
    /// The pause of one account.
    package struct Pause: Sendable, Equatable {
        package let provider: Provider
        /// The account by which the provider counts messages.
        package let account: String
        /// The push service, for providers with several; nil otherwise.
        package let service: String?
        package let until: Timestamp

        package init(provider: Provider, account: String, service: String? = nil, until: Timestamp) {
            self.provider = provider
            self.account = account
            self.service = service
            self.until = until
        }
    }

    /// The longest pause, whatever the provider asks for.
    ///
    /// Apple is known to need this much. A provider that needs more repeats its answer, and a
    /// faulty answer cannot stop an app for a day.
    package static let longest: Duration = .seconds(20 * 60)

    let live: Live

    /// Returns the latest end of a pause; a later end was noted before the clock stepped back.
    package static func latestEnd(now: Timestamp) -> Timestamp { now + Self.longest + .seconds(5) }

    /// Publishes pauses and returns the current ones in one round trip.
    ///
    /// A known later end wins.
    ///
    /// - Parameter providers: the providers whose pauses are returned.
    /// - Returns: the pauses that have not ended.
    package func exchange(
        _ unshared: [Pause],
        of providers: [Provider],
        now: Timestamp
    ) async throws(RedisError) -> [Pause] {
        let latest = Self.latestEnd(now: now)
        var batch = RedisBatch()
        for pause in unshared {
            batch.append(
                StreamScripts.keepPause,
                keys: [.text(self.live.keys.pauses(pause.provider))],
                arguments: [
                    .text(Self.field(pause)), .integer(pause.until.milliseconds), .integer(now.milliseconds),
                    .integer(latest.milliseconds),
                ]
            )
        }
        for provider in providers { batch.append("HGETALL", .text(self.live.keys.pauses(provider))) }
        guard !batch.isEmpty else { return [] }
        let replies = try await self.live.connection.send(batch)
        for reply in replies.prefix(unshared.count) { _ = try reply.checked() }
        var pauses: [Pause] = []
        for (provider, reply) in zip(providers, replies.dropFirst(unshared.count)) {
            let fields = try reply.strings()
            for index in stride(from: 0, to: fields.count - 1, by: 2) {
                guard let pause = Self.pause(provider, fields[index], fields[index + 1]), pause.until > now,
                    pause.until <= latest
                else { continue }
                pauses.append(pause)
            }
        }
        return pauses
    }

    /// The service comes first, as it has no spaces; an account may have some.
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
