// Carillon · RevocationRegister.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Operations
import ServiceLifecycle
import Sockets
import Storage
import Synchronization

/// The time before which each user's tokens are revoked.
///
/// PostgreSQL stores it and every gateway keeps a copy, so verifying a token needs no query.
/// Changes are announced through Redis and apply without PostgreSQL. A gateway that misses one
/// reads it within two seconds.
package final class RevocationRegister: Sendable {
    private static let pageSize = 10_000

    private let store: RevocationStore
    private let live: Live
    private let logger: Logger
    private let ledger: Mutex<RevocationLedger>
    private let alarm = Alarm()

    package init(
        store: RevocationStore,
        live: Live,
        bound: Int = 750_000,
        logger: Logger
    ) {
        self.store = store
        self.live = live
        self.logger = logger
        self.ledger = Mutex(RevocationLedger(bound: bound))
    }

    /// Checks that a caller's token was not revoked; a token without a time of issue counts as the
    /// oldest.
    ///
    /// - Throws: ``TokenFault``: `refused`, or `unavailable` if the revocation cannot be looked up.
    func check(_ caller: Caller) async throws(TokenFault) {
        guard let before = try await self.moment(of: caller.user) else { return }
        guard let issuedAt = caller.issuedAt, issuedAt >= before else { throw TokenFault("the token was revoked") }
    }

    private func moment(of user: String) async throws(TokenFault) -> Timestamp? {
        if case .known(let before) = self.ledger.withLock({ $0.answer(user: user) }) { return before }
        do throws(PostgresError) {
            return try await self.store.moment(of: user)
        } catch {
            throw TokenFault(.unavailable, "revocations cannot be checked now")
        }
    }

    /// Revokes all tokens of a user that were issued before now, by PostgreSQL's clock.
    ///
    /// It takes effect here at once, and on other gateways when they get the announcement.
    func revoke(user: String) async throws(PostgresError) -> Timestamp {
        let revocation = try await self.store.revoke(user: user)
        self.ledger.withLock { $0.apply(revocation) }
        self.wake()
        do throws(RedisError) {
            try await self.live.connection.send(
                "PUBLISH", .text(self.live.keys.revocationsChannel), .text(revocation.announcement))
        } catch {
            self.logger.warning(
                "cannot announce revocation; other gateways apply it within 2 s", metadata: ["error": "\(error)"])
        }
        return revocation.before
    }

    /// Applies another gateway's announcement at once, and wakes the reader of changes.
    ///
    /// - Returns: the revocation; nil if the announcement has another format.
    func hear(_ announcement: ArraySlice<UInt8>) -> RevocationStore.Revocation? {
        let revocation = RevocationStore.Revocation(announcement: announcement)
        if let revocation { self.ledger.withLock { $0.apply(revocation) } }
        self.wake()
        return revocation
    }

    /// Deletes a page of erased users' revocations that are older than any valid token.
    func forgetErased() async throws(PostgresError) {
        let count = try await self.store.forget(limit: Self.pageSize)
        guard count > 0 else { return }
        self.logger.info("deleted old revocations of erased users", metadata: ["users.count": "\(count)"])
    }

    // MARK: The copy

    /// Wakes the reader of changes.
    func wake() {
        self.alarm.ring()
    }

    /// Waits for a possible change.
    func wait(atMost limit: Duration) async {
        await self.alarm.wait(atMost: limit)
    }

    /// Reads at most one page of changes; only one caller at a time.
    func load() async throws(PostgresError) -> (revocations: [RevocationStore.Revocation], isLast: Bool) {
        let since = self.ledger.withLock { $0.version }
        let page = try await self.store.changes(since: since, limit: Self.pageSize)
        let isLast = page.count < Self.pageSize
        let count = self.ledger.withLock { ledger in
            ledger.apply(page, isLast: isLast)
            return ledger.count
        }
        IdentityMetrics.revocationsHeld.set(count)
        return (page, isLast)
    }
}

/// A gateway's copy of the revocations, of all users if they fit.
///
/// Until the copy is complete, and once it is full, the gateway looks up each user who is not in
/// it.
struct RevocationLedger {
    enum Answer {
        /// The time before which the user's tokens are revoked; nil if none are.
        case known(Timestamp?)
        case unknown
    }

    /// The most users: 750,000 take 100 MB with ids of 36 bytes; beyond 786,432 the table doubles.
    private let bound: Int
    private var held: [ExactText: Timestamp] = [:]
    /// The last change that was applied in order.
    private(set) var version: Int64 = 0
    private var isLoaded = false

    init(bound: Int) {
        self.bound = bound
    }

    /// The number of users in the copy.
    var count: Int { self.held.count }

    func answer(user: String) -> Answer {
        if let before = self.held[ExactText(user)] { return .known(before) }
        return self.isLoaded && self.held.count < self.bound ? .known(nil) : .unknown
    }

    /// Applies changes in order, from ``version`` on.
    ///
    /// - Parameter isLast: whether there are no further changes.
    mutating func apply(_ revocations: [RevocationStore.Revocation], isLast: Bool) {
        for revocation in revocations {
            self.apply(revocation)
            self.version = max(self.version, revocation.version)
        }
        if isLast { self.isLoaded = true }
    }

    /// Applies a single change out of order.
    mutating func apply(_ revocation: RevocationStore.Revocation) {
        let user = ExactText(revocation.user)
        if let before = self.held[user] {
            self.held[user] = max(before, revocation.before)
        } else if self.held.count < self.bound {
            self.held[user] = revocation.before
        }
    }
}

/// Updates this gateway's copy of revocations, and closes the sockets of revoked tokens.
package struct RevocationService: Service {
    private static let interval: Duration = .seconds(2)
    /// How long a revocation is reapplied: a socket may open shortly after its token was checked.
    private static let aftermath: Duration = .seconds(30)
    /// The interval of the cleanup after erased users.
    private static let cleaning: Duration = .seconds(3_600)
    /// The most revocations to reapply; older ones are applied only once.
    private static let mostRecent = 10_000

    private let register: RevocationRegister
    private let hub: SocketHub
    private let logger: Logger

    package init(register: RevocationRegister, hub: SocketHub, logger: Logger) {
        self.register = register
        self.hub = hub
        self.logger = logger
    }

    package func run() async throws {
        await cancelWhenGracefulShutdown {
            var recent: [(revocation: RevocationStore.Revocation, until: ContinuousClock.Instant)] = []
            var isFailing = false
            var cleanAt = ContinuousClock.now
            while !Task.isCancelled, !Task.isShuttingDownGracefully {
                let now = ContinuousClock.now
                do {
                    recent += try await self.load().map { ($0, now + Self.aftermath) }
                    isFailing = false
                } catch {
                    if !isFailing {
                        self.logger.warning(
                            "cannot read revocations; retrying every 2 s", metadata: ["error": "\(error)"])
                    }
                    isFailing = true
                }
                recent = recent.suffix(Self.mostRecent).filter { $0.until > now }
                if !recent.isEmpty { self.hub.revoke(recent.map { ($0.revocation.user, $0.revocation.before) }) }
                if now >= cleanAt {
                    cleanAt = now + Self.cleaning
                    await self.clean()
                }
                await self.register.wait(atMost: Self.interval)
            }
        }
    }

    private func clean() async {
        do throws(PostgresError) {
            try await self.register.forgetErased()
        } catch {
            self.logger.warning(
                "cannot delete old revocations of erased users; retrying in an hour", metadata: ["error": "\(error)"])
        }
    }

    private func load() async throws -> [RevocationStore.Revocation] {
        var all: [RevocationStore.Revocation] = []
        while true {
            let (revocations, isLast) = try await self.register.load()
            // Close the sockets of each page at once, because only a bounded number of revocations
            // is kept.
            self.hub.revoke(revocations.map { ($0.user, $0.before) })
            all = (all + revocations).suffix(Self.mostRecent)
            if isLast { return all }
        }
    }
}
