// Carillon · RevocationRegister.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Storage
import Synchronization

/// From when on each user's tokens are good.
///
/// PostgreSQL has the truth; every gateway holds a copy, so that checking a token asks nobody. A change is announced to all
/// gateways through Redis, and whoever misses that reads it with the next look, two seconds later.
package final class RevocationRegister: Sendable {
    private static let pageSize = 10_000
    /// For how long after their revocation tokens may live that an erased user has left behind.
    private static let longestTokenLife: Duration = .seconds(400 * 86_400)

    private let store: RevocationStore
    private let redis: RedisConnection
    private let keys: Keyspace
    private let now: @Sendable () -> Timestamp
    private let logger: Logger
    private let ledger: Mutex<RevocationLedger>
    private let bell = Bell()

    package init(
        store: RevocationStore,
        redis: RedisConnection,
        keys: Keyspace,
        held: Int = 100_000,
        now: @escaping @Sendable () -> Timestamp,
        logger: Logger
    ) {
        self.store = store
        self.redis = redis
        self.keys = keys
        self.now = now
        self.logger = logger
        self.ledger = Mutex(RevocationLedger(bounds: .init(held: held)))
    }

    /// Asserts that a caller's token was not revoked; one that does not say when it was made counts as the oldest.
    ///
    /// - Throws: ``TokenFault``: `refused`, or `unavailable` if it is not known and cannot be looked up.
    package func check(_ caller: Caller) async throws(TokenFault) {
        guard let before = try await self.moment(of: caller.user) else { return }
        guard let issuedAt = caller.issuedAt, issuedAt >= before else { throw TokenFault("the token was revoked") }
    }

    private func moment(of user: String) async throws(TokenFault) -> Timestamp? {
        let (answer, version) = self.ledger.withLock { ($0.answer(user: user, now: .now), $0.version) }
        if case .known(let before) = answer { return before }
        IdentityMetrics.revocationLookups.increment()
        do throws(PostgresError) {
            let before = try await self.store.moment(of: user)
            self.ledger.withLock { $0.remember(user: user, before: before, version: version, now: .now) }
            return before
        } catch {
            throw TokenFault(.unavailable, "it cannot be checked now whether the token was revoked")
        }
    }

    /// Revokes all tokens of a user that were made before now.
    ///
    /// It stands when this returns: here at once, on other gateways with the announcement.
    package func revoke(user: String) async throws(PostgresError) -> Timestamp {
        let revocation = try await self.store.revoke(user: user, before: self.now())
        self.ledger.withLock { $0.note(revocation) }
        self.wake()
        do throws(RedisError) {
            try await self.redis.send("PUBLISH", .text(self.keys.revocationsChannel), .integer(revocation.version))
        } catch {
            self.logger.warning("revocation not announced", metadata: ["error": "\(error)"])
        }
        return revocation.before
    }

    /// Forgets what no token of an erased user can depend on any more.
    package func forgetErased() async throws(PostgresError) {
        let life = Self.longestTokenLife
        let count = try await self.store.forget(before: self.now() + (.zero - life))
        guard count > 0 else { return }
        self.logger.info("revocations of erased users forgotten", metadata: ["users.count": "\(count)"])
    }

    // MARK: The copy

    /// Something has changed, or may have.
    package func wake() {
        self.bell.ring()
    }

    /// Sleeps until something may have changed.
    func wait(atMost limit: Duration) async {
        await self.bell.wait(atMost: limit)
    }

    /// Reads what has changed since the last time, a page at most; for one caller at a time.
    package func load() async throws(PostgresError) -> (revocations: [RevocationStore.Revocation], isLast: Bool) {
        let since = self.ledger.withLock { $0.version }
        let page = try await self.store.changes(since: since, limit: Self.pageSize)
        let isLast = page.count < Self.pageSize
        let count = self.ledger.withLock { ledger in
            ledger.take(page, isLast: isLast)
            return ledger.count
        }
        IdentityMetrics.revocationsHeld.set(count)
        return (page, isLast)
    }
}
