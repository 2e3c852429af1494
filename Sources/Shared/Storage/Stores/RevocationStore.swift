// Carillon · RevocationStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The moments from which users' tokens are valid.
package struct RevocationStore: Sendable {
    /// Invalidates tokens of `user` issued before `before`.
    package struct Revocation: Sendable, Equatable {
        package let user: String
        package let before: Timestamp
        /// The number of the change; later commits have larger ones.
        package let version: Int64
    }

    let pool: PostgresPool

    /// Revokes a user's tokens issued before a moment; a later moment that is set stays.
    ///
    /// - Parameter before: the moment; nil for PostgreSQL's time, which all gateways share.
    package func revoke(user: String, before: Timestamp? = nil) async throws(PostgresError) -> Revocation {
        let result = try await self.pool.query(
            """
            WITH next AS (
                UPDATE carillon.token_revocation_version v SET version = \(EpochSQL.version(of: "v")) + 1
                WHERE v.singleton RETURNING v.version
            )
            INSERT INTO carillon.token_revocations AS r (user_id, revoked_before, version)
            SELECT $1, coalesce($2, clock_timestamp()), version FROM next
            ON CONFLICT (user_id) DO UPDATE
                SET revoked_before = greatest(r.revoked_before, excluded.revoked_before), version = excluded.version
            RETURNING user_id, revoked_before, version
            """,
            .text(user), .timestamp(before)
        )
        guard let row = result.first else { throw PostgresError(.decoding, "a revocation returned no row") }
        return try Self.revocation(row)
    }

    /// The changes after `version`, in order.
    package func changes(since version: Int64, limit: Int) async throws(PostgresError) -> [Revocation] {
        let result = try await self.pool.query(
            """
            SELECT user_id, revoked_before, version FROM carillon.token_revocations
            WHERE version > $1 ORDER BY version LIMIT $2
            """,
            .int8(version),
            .int8(Int64(limit))
        )
        return try result.map { (row) throws(PostgresError) in try Self.revocation(row) }
    }

    /// The moment before which a user's tokens are invalid; nil if all are valid.
    package func moment(of user: String) async throws(PostgresError) -> Timestamp? {
        let result = try await self.pool.query(
            "SELECT revoked_before FROM carillon.token_revocations WHERE user_id = $1",
            .text(user)
        )
        return try result.first?.timestamp(0)
    }

    /// Deletes revocations of users without other data that are older than any token.
    ///
    /// - Returns: the number of revocations deleted.
    package func forget(limit: Int) async throws(PostgresError) -> Int {
        try await self.pool.query(Self.forgetOld, .int8(Int64(limit))).affectedRows
    }

    /// Names the collation of the index of `users`, which differs from that of the other ids.
    ///
    /// A token lives for at most 400 days. $1: limit.
    static let forgetOld = """
        WITH old AS MATERIALIZED (
            SELECT r.user_id FROM carillon.token_revocations r
            WHERE r.revoked_before < now() - interval '400 days'
                AND NOT EXISTS (SELECT FROM carillon.users u WHERE u.user_id = r.user_id COLLATE "default")
                AND NOT EXISTS (SELECT FROM carillon.inboxes b WHERE b.user_id = r.user_id)
            ORDER BY r.revoked_before
            LIMIT $1
        )
        DELETE FROM carillon.token_revocations r USING old o
        WHERE r.user_id = o.user_id AND r.revoked_before < now() - interval '400 days'
        """

    private static func revocation(_ row: PostgresRow) throws(PostgresError) -> Revocation {
        Revocation(
            user: try row.text(0),
            before: try row.timestamp(1),
            version: try row.int8(2)
        )
    }
}

extension RevocationStore.Revocation {
    /// The message that announces it: version, time in microseconds and user.
    package var announcement: String { "\(self.version) \(self.before.microseconds) \(self.user)" }

    /// Reads an announcement; nil if it has another format.
    package init?(announcement: ArraySlice<UInt8>) {
        let parts = announcement.split(separator: UInt8(ascii: " "), maxSplits: 2, omittingEmptySubsequences: false)
            .map { String(decoding: $0, as: UTF8.self) }
        guard parts.count == 3, let version = Int64(parts[0]), let microseconds = Int64(parts[1]) else { return nil }
        self.user = parts[2]
        self.before = Timestamp(microseconds: microseconds)
        self.version = version
    }
}
