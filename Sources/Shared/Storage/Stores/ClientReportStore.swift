// Carillon · ClientReportStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Clients' reports about permission prompts and registrations.
///
/// They are audit rows: kept as long and erased with their user.
package struct ClientReportStore: Sendable {
    /// The subject of a report.
    package enum Kind: String, Sendable, CaseIterable {
        /// The prompt for permission to notify.
        case permission
        /// The registration of a device.
        case registration
    }

    /// The outcome of the reported step.
    package enum Outcome: String, Sendable, CaseIterable {
        case granted, denied, dismissed, failed
    }

    /// A report of a client.
    package struct Report: Sendable {
        let at: Timestamp
        let user: String
        let kind: Kind
        let outcome: Outcome
        let provider: Provider
        let reason: String?

        package init(
            at: Timestamp,
            user: String,
            kind: Kind,
            outcome: Outcome,
            provider: Provider,
            reason: String?
        ) {
            self.at = at
            self.user = user
            self.kind = kind
            self.outcome = outcome
            self.provider = provider
            self.reason = reason
        }
    }

    /// The number of reports of a kind and an outcome.
    package struct Count: Sendable {
        package let kind: String
        package let outcome: String
        package let provider: String
        package let count: Int64
    }

    /// A registration that failed.
    package struct Failed: Sendable {
        package let at: Timestamp
        package let user: String
        package let provider: String
        package let reason: String?
    }

    /// The number of reports that a user may send in an hour.
    package static let mostPerHour = 20
    /// The number of newest reports that are counted.
    private static let mostRows: Int32 = 100_000

    let pool: PostgresPool

    /// Stores a report.
    ///
    /// A repeat within a minute is stored once. If the gateway's clock is ahead, PostgreSQL's time
    /// counts, because one row of a later day would leave that day without an audit partition.
    ///
    /// - Returns: false, without storing it, if the user has reached the limit of the hour.
    package func add(_ report: Report) async throws(PostgresError) -> Bool {
        let results = try await self.pool.run([
            // Serialises a user's reports, so that the count holds.
            PostgresStatement(
                "SELECT pg_advisory_xact_lock(hashtextextended($1, 7))",
                [.text("carillon.client_reports " + report.user)]),
            PostgresStatement(
                """
                WITH known AS (
                    SELECT at, kind, outcome, provider, reason FROM carillon.delivery_attempts
                    WHERE user_id = $2 AND at > least($1, now()) - interval '1 hour'
                        AND kind IN ('permission', 'registration')
                    LIMIT $7
                ), room AS (SELECT count(*) < $7 AS is_left FROM known), added AS (
                    INSERT INTO carillon.delivery_attempts (at, user_id, provider, kind, attempt, outcome, reason)
                    SELECT least($1, now()), $2, $3, $4, 0, $5, $6 FROM room WHERE is_left AND NOT EXISTS (
                        SELECT FROM known k WHERE k.at > least($1, now()) - interval '1 minute' AND k.kind = $4
                            AND k.outcome = $5 AND k.provider = $3 AND k.reason IS NOT DISTINCT FROM $6)
                )
                SELECT is_left FROM room
                """,
                [
                    .timestamp(report.at), .text(report.user), .text(report.provider.rawValue),
                    .text(report.kind.rawValue), .text(report.outcome.rawValue), .text(report.reason),
                    .int8(Int64(Self.mostPerHour)),
                ]
            ),
        ])
        return try results.last?.first?.bool(0) ?? false
    }

    /// Counts the reports since a moment and lists failed registrations, newest first.
    package func summary(
        since: Timestamp,
        limit: Int
    ) async throws(PostgresError) -> (counts: [Count], failed: [Failed]) {
        let results = try await self.pool.run([
            PostgresStatement(
                """
                SELECT r.kind, r.outcome, r.provider, count(*) FROM (
                    SELECT kind, outcome, provider FROM carillon.delivery_attempts
                    WHERE at >= $1 AND kind IN ('permission', 'registration') ORDER BY at DESC LIMIT $2
                ) r GROUP BY 1, 2, 3 ORDER BY 1, 4 DESC, 2, 3
                """,
                [.timestamp(since), .int4(Self.mostRows)]),
            // The condition on both kinds lets the partial index `delivery_attempts_reports` serve.
            PostgresStatement(
                """
                SELECT at, user_id, provider, reason FROM carillon.delivery_attempts
                WHERE at >= $1 AND kind IN ('permission', 'registration') AND kind = 'registration'
                ORDER BY at DESC LIMIT $2
                """,
                [.timestamp(since), .int4(clamping: limit)]),
        ])
        let counts = try results[0].map { (row) throws(PostgresError) in
            Count(kind: try row.text(0), outcome: try row.text(1), provider: try row.text(2), count: try row.int8(3))
        }
        let failed = try results[1].map { (row) throws(PostgresError) in
            Failed(
                at: try row.timestamp(0), user: try row.text(1), provider: try row.text(2),
                reason: try row.optionalText(3))
        }
        return (counts, failed)
    }
}
