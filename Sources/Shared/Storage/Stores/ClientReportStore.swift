// Carillon · ClientReportStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// What clients report of prompts and registrations; rows of the audit, kept as long as it and erased with its user.
package struct ClientReportStore: Sendable {
    /// What a report is about.
    package enum Kind: String, Sendable, CaseIterable {
        /// The prompt for permission to notify.
        case permission
        /// The registration of a device.
        case registration
    }

    /// How it ended.
    package enum Outcome: String, Sendable, CaseIterable {
        case granted, denied, dismissed, failed
    }

    /// What a client reports.
    package struct Report: Sendable {
        package let at: Timestamp
        package let user: String
        package let kind: Kind
        package let outcome: Outcome
        package let provider: Provider
        package let reason: String?

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

    /// How many reports there were of a kind and an outcome.
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

    /// What a user may report in an hour.
    package static let mostPerHour = 20
    /// Reports that are counted at most, the newest first.
    private static let mostRows: Int32 = 100_000

    let pool: PostgresPool

    /// Keeps a report; the same one again within a minute is kept once.
    ///
    /// - Returns: false, and nothing is kept, if the user has reported as many within the hour.
    package func add(_ report: Report) async throws(PostgresError) -> Bool {
        let result = try await self.pool.query(
            """
            WITH known AS (
                SELECT at, kind, outcome, provider, reason FROM carillon.delivery_attempts
                WHERE user_id = $2 AND at > $1 - interval '1 hour' AND kind IN ('permission', 'registration')
                LIMIT $7
            ), room AS (SELECT count(*) < $7 AS is_left FROM known), added AS (
                INSERT INTO carillon.delivery_attempts (at, user_id, provider, kind, attempt, outcome, reason)
                SELECT $1, $2, $3, $4, 0, $5, $6 FROM room WHERE is_left AND NOT EXISTS (
                    SELECT FROM known k WHERE k.at > $1 - interval '1 minute' AND k.kind = $4 AND k.outcome = $5
                        AND k.provider = $3 AND k.reason IS NOT DISTINCT FROM $6)
            )
            SELECT is_left FROM room
            """,
            .timestamptz(report.at.microseconds), .text(report.user), .text(report.provider.rawValue),
            .text(report.kind.rawValue), .text(report.outcome.rawValue),
            report.reason.map { .text($0) } ?? .null(.text), .int8(Int64(Self.mostPerHour))
        )
        return try result.first?.bool(0) ?? false
    }

    /// What was reported since a moment: counted, and the registrations that failed, the newest first.
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
                [.timestamptz(since.microseconds), .int4(Self.mostRows)]),
            PostgresStatement(
                """
                SELECT at, user_id, provider, reason FROM carillon.delivery_attempts
                WHERE at >= $1 AND kind IN ('permission', 'registration') AND kind = 'registration'
                ORDER BY at DESC LIMIT $2
                """,
                [.timestamptz(since.microseconds), .int4(Int32(clamping: limit))]),
        ])
        guard results.count == 2 else { throw PostgresError(.decoding, "there are no reports") }
        var counts: [Count] = []
        for row in results[0] {
            counts.append(
                Count(
                    kind: try row.text(0),
                    outcome: try row.text(1),
                    provider: try row.text(2),
                    count: try row.int8(3)
                )
            )
        }
        var failed: [Failed] = []
        for row in results[1] {
            failed.append(
                Failed(
                    at: Timestamp(microseconds: try row.timestamptz(0)),
                    user: try row.text(1),
                    provider: try row.text(2),
                    reason: try row.optionalText(3)
                )
            )
        }
        return (counts, failed)
    }
}
