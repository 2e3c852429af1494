// Carillon · Retries.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The scope of a circuit breaker, for which deliveries are held back: an app, or one push service
/// of an app.
package struct BreakerScope: Hashable, Sendable {
    package let app: String
    /// The service's origin; nil for the whole app.
    package let service: String?

    package init(_ app: String, service: String? = nil) {
        self.app = app
        self.service = service
    }

    /// Reads a name of Redis: an origin has no space, while an app's name may have some.
    init(name: String) {
        guard let space = name.lastIndex(of: " "), name[space...].hasPrefix(" https://") else {
            self.init(name)
            return
        }
        self.init(String(name[..<space]), service: String(name[name.index(after: space)...]))
    }

    /// The name in Redis.
    var name: String { self.service.map { "\(self.app) \($0)" } ?? self.app }
}

/// Deliveries that wait for a retry or are held back, by due time.
///
/// Deliveries that a circuit breaker or a rate limit holds back wait in a set for each app, and for
/// each push service that is unavailable, so that none delays another. Deliveries that wait for
/// credentials or settings are among the retries.
package struct RetrySet: Sendable {
    /// Deliveries that are overdue by this much return even while their breaker is open.
    package static let overdue: Duration = .seconds(600)

    let live: Live

    /// The key of a scope's held-back deliveries; of the retries if `scope` is nil.
    static func key(_ keys: Keyspace, _ provider: Provider, _ lane: Lane, scope: BreakerScope?) -> RedisArgument {
        .text(scope.map { keys.held(provider, lane, $0) } ?? keys.retries(provider, lane))
    }

    /// Adds a delivery to a batch.
    ///
    /// - Parameter scope: the app or service that it is held back for; nil for a retry.
    package func add(
        _ work: DeliveryWork,
        due: Timestamp,
        provider: Provider,
        lane: Lane,
        scope: BreakerScope? = nil,
        in batch: inout RedisBatch
    ) {
        let keys = self.live.keys.part(of: work.user)
        batch.append(
            "ZADD", Self.key(keys, provider, lane, scope: scope), .integer(due.milliseconds), .bytes(work.bytes))
        // Last, because a scope whose set is empty is removed.
        if let scope { batch.append("SADD", .text(keys.held(provider, lane)), .text(scope.name)) }
    }

    /// Due deliveries of one set that are to be moved.
    package struct Move: Sendable {
        /// The app or service that they are held back for; nil for retries.
        package let scope: BreakerScope?
        /// The last moment at which they are due.
        package let dueBy: Timestamp
        /// The most that are moved.
        package let limit: Int

        package init(scope: BreakerScope?, dueBy: Timestamp, limit: Int) {
            self.scope = scope
            self.dueBy = dueBy
            self.limit = limit
        }
    }

    /// Moves due deliveries of several sets back to their stream, in one round trip; removes scopes
    /// that have none left.
    ///
    /// - Returns: the number of deliveries moved, for each set.
    package func moveDue(_ moves: [Move], provider: Provider, lane: Lane) async throws(RedisError) -> [Int] {
        let keys = self.live.keys
        var batch = RedisBatch()
        for move in moves {
            var names: [RedisArgument] = [
                Self.key(keys, provider, lane, scope: move.scope), .text(keys.deliveries(provider, lane)),
            ]
            var arguments: [RedisArgument] = [.integer(move.dueBy.milliseconds), .integer(Int64(move.limit))]
            if let scope = move.scope {
                names.append(.text(keys.held(provider, lane)))
                arguments.append(.text(scope.name))
            }
            batch.append(StreamScripts.moveDue, keys: names, arguments: arguments)
        }
        return try await self.live.connection.run(batch).map { reply throws(RedisError) in Int(try reply.integer()) }
    }

    /// Returns the apps and services with held-back deliveries, in no order.
    package func heldScopes(provider: Provider, lane: Lane) async throws(RedisError) -> [BreakerScope] {
        try Self.scopes(try await self.live.connection.send("SMEMBERS", .text(self.live.keys.held(provider, lane))))
    }

    /// Reads the names of scopes.
    static func scopes(_ reply: RedisReply) throws(RedisError) -> [BreakerScope] {
        try reply.strings().map { BreakerScope(name: $0) }
    }

    /// Returns the providers with waiting deliveries, in one round trip.
    ///
    /// In a cluster, it fails at once while the part's master is away.
    package func waiting(of providers: [Provider]) async throws(RedisError) -> Set<Provider> {
        var batch = RedisBatch()
        for provider in providers {
            let keys = Lane.allCases.flatMap {
                [self.live.keys.retries(provider, $0), self.live.keys.held(provider, $0)]
            }
            batch.begin(argumentCount: 1 + keys.count)
            batch.argument("EXISTS")
            for key in keys { batch.argument(.text(key)) }
        }
        guard !batch.isEmpty else { return [] }
        var waiting: Set<Provider> = []
        for (provider, reply) in zip(providers, try await self.live.connection.send(batch, isPatient: false)) {
            if try reply.integer() > 0 { waiting.insert(provider) }
        }
        return waiting
    }

    /// Returns when the first retry of a lane is due, or the first delivery held back for one of
    /// these scopes; nil if none waits.
    package func firstDue(
        provider: Provider,
        lane: Lane,
        held scopes: [BreakerScope]
    ) async throws(RedisError) -> Timestamp? {
        let keys = [self.live.keys.retries(provider, lane)] + scopes.map { self.live.keys.held(provider, lane, $0) }
        return try await self.live.firstMoments(of: keys).compactMap(\.self).min()
    }

    /// Returns the number of waiting deliveries.
    ///
    /// - Parameter scope: the app or service that they are held back for; nil for retries.
    package func count(provider: Provider, lane: Lane, scope: BreakerScope? = nil) async throws(RedisError) -> Int {
        let key = Self.key(self.live.keys, provider, lane, scope: scope)
        return Int(try await self.live.connection.send("ZCARD", key).integer())
    }
}

extension Live {
    /// Returns how many deliveries of a lane wait in all parts: in their streams, for a retry, or
    /// held back.
    ///
    /// - Parameter isPatient: whether to wait for a server of a cluster that is away.
    package func waitingDeliveries(
        of providers: Set<Provider>,
        lane: Lane,
        isPatient: Bool = true
    ) async throws(RedisError) -> Int64 {
        var kinds: [(keys: Keyspace, provider: Provider)] = []
        var batch = RedisBatch()
        for keys in self.keys.parts {
            for provider in providers {
                kinds.append((keys, provider))
                batch.append("XLEN", .text(keys.deliveries(provider, lane)))
                batch.append("ZCARD", .text(keys.retries(provider, lane)))
                batch.append("SMEMBERS", .text(keys.held(provider, lane)))
            }
        }
        let replies = try await self.connection.send(batch, isPatient: isPatient)
        var count: Int64 = 0
        var held = RedisBatch()
        for (index, kind) in kinds.enumerated() {
            count += try replies[3 * index].integer()
            count += try replies[3 * index + 1].integer()
            for scope in try RetrySet.scopes(replies[3 * index + 2]) {
                held.append("ZCARD", .text(kind.keys.held(kind.provider, lane, scope)))
            }
        }
        for reply in try await self.connection.send(held, isPatient: isPatient) { count += try reply.integer() }
        return count
    }
}

/// A summary of a set of retries or of held-back deliveries.
struct WaitingSummary: Sendable {
    /// The number of members to inspect at each end of a set for the oldest.
    static let sample = 64
    /// The number of commands that read a set.
    static let questions = 3

    private(set) var count = 0
    private(set) var firstDue: Timestamp?
    /// Since when the oldest inspected member has waited.
    private(set) var since: Timestamp?

    init() {}

    /// Adds the commands that read a set to a batch.
    static func ask(_ key: RedisArgument, in batch: inout RedisBatch) {
        batch.append("ZCARD", key)
        batch.append("ZRANGE", key, "0", .integer(Int64(self.sample - 1)), "WITHSCORES")
        batch.append("ZRANGE", key, .integer(Int64(-self.sample)), "-1", "WITHSCORES")
    }

    /// Reads the replies to ``questions`` commands.
    init(_ replies: ArraySlice<RedisReply>) throws(RedisError) {
        self.count = Int(try replies[replies.startIndex].integer())
        for reply in replies.dropFirst() {
            let members = try reply.strings()
            for index in stride(from: 0, to: members.count - 1, by: 2) {
                guard let score = Int64(members[index + 1]) else { continue }
                let due = Timestamp(milliseconds: score)
                self.firstDue = min(self.firstDue ?? due, due)
                let since = (try? DeliveryWork(members[index].utf8))?.since ?? due
                self.since = min(self.since ?? since, since)
            }
        }
    }

    mutating func add(_ other: WaitingSummary) {
        self.count += other.count
        self.since = [self.since, other.since].compactMap(\.self).min()
    }
}

/// The deliveries in the ``RetrySet``, as of the first time that a repair or a sweep asks about
/// their stream.
///
/// Reads each set once per repair or sweep. A delivery that has left a set since is in flight, so
/// it still counts.
package actor WaitingRetries {
    private static let page: Int64 = 1_000

    /// A delivery, whatever its attempt.
    private struct Identity: Hashable {
        let notification: NotificationID
        let device: DeviceID
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
    /// The hashes of the deliveries that wait for a stream, by the key of its retries.
    ///
    /// The identities would take five times the memory. Among 2,000,000 hashes of 64 bits, a
    /// delivery that was lost is taken for another one with a chance of 1 in 10^13.
    private var sets: [String: Set<Int>] = [:]
    private var remembered = 0
    /// The number of waiting deliveries beyond the bound, which were not read and count as not
    /// waiting.
    package private(set) var unread = 0

    /// - Parameter most: the number of deliveries of all sets to remember, rounded up to a page.
    package init(_ live: Live, most: Int) {
        self.live = live
        self.most = most
    }

    /// Whether each delivery of a stream waits for its retry, or is held back.
    ///
    /// - Returns: a value for each delivery, in order.
    package func contain(
        _ works: [DeliveryWork],
        provider: Provider,
        lane: Lane
    ) async throws(RedisError) -> [Bool] {
        var areWaiting: [Bool] = []
        for work in works {
            let part = self.live.keys.part(of: work.user)
            let key = part.retries(provider, lane)
            if self.sets[key] == nil { self.sets[key] = try await self.read(part, provider, lane) }
            areWaiting.append(self.sets[key]?.contains(Identity(work).hashValue) ?? false)
        }
        return areWaiting
    }

    /// Reads the sets of a part for a lane.
    private func read(_ part: Keyspace, _ provider: Provider, _ lane: Lane) async throws(RedisError) -> Set<Int> {
        let scopes = try await self.live.with(part).retries.heldScopes(provider: provider, lane: lane)
        var waiting: Set<Int> = []
        var unread = 0
        for key in [part.retries(provider, lane)] + scopes.map({ part.held(provider, lane, $0) }) {
            unread += try await self.read(key, into: &waiting)
        }
        self.remembered += waiting.count
        self.unread += unread
        return waiting
    }

    /// Reads a set up to the bound.
    ///
    /// - Returns: the number of members that were not read.
    private func read(_ key: String, into waiting: inout Set<Int>) async throws(RedisError) -> Int {
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
                if let work = try? DeliveryWork(member) { waiting.insert(Identity(work).hashValue) }
            }
            guard self.remembered + waiting.count < self.most else { break }
        } while cursor != "0"
        guard cursor != "0" else { return 0 }
        let all = Int(try await self.live.connection.send("ZCARD", .text(key)).integer())
        return max(all - count, 0)
    }
}
