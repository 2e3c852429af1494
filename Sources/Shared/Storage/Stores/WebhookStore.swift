// Carillon · WebhookStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Webhooks and their state.
package struct WebhookStore: Sendable {
    /// The outcome of a registration.
    package enum Registration: Sendable, Equatable {
        case made
        /// The organisation already had this URL: it gets the new kinds, keeps its secret and is
        /// active again.
        case renewed(Webhook)
        /// The limit of webhooks is reached.
        case tooMany
    }

    /// The largest number of webhooks in all, and per organisation.
    package static let most = 1_000
    package static let mostOfOrg = 20

    private static let columns = "id, org_id, url, events, secret, status, status_reason, failing_since, created_at"
    /// The advisory lock of registrations, so that the limits hold: "webhook" in ASCII.
    private static let lock: Int64 = 0x7765_6268_6F6F_6B

    let pool: PostgresPool

    /// Registers a webhook; one with the same organisation and URL is renewed.
    package func register(_ webhook: Webhook) async throws(PostgresError) -> Registration {
        let results = try await self.pool.run([
            PostgresStatement("SELECT pg_advisory_xact_lock($1)", [.int8(Self.lock)]),
            PostgresStatement(
                """
                WITH renewed AS (
                    UPDATE carillon.webhooks SET events = $4, status = 'active', status_reason = NULL,
                        failing_since = NULL, failures = 0
                    WHERE org_id IS NOT DISTINCT FROM $2 AND url = $3
                    RETURNING \(Self.columns)
                ), made AS (
                    INSERT INTO carillon.webhooks (id, org_id, url, events, secret, created_at)
                    SELECT $1, $2, $3, $4, $5, $6
                    WHERE NOT EXISTS (SELECT FROM renewed)
                        AND (SELECT count(*) FROM carillon.webhooks) < $7
                        AND (SELECT count(*) FROM carillon.webhooks WHERE org_id IS NOT DISTINCT FROM $2) < $8
                    RETURNING \(Self.columns)
                )
                SELECT * FROM renewed UNION ALL SELECT * FROM made
                """,
                [
                    .id(webhook.id), .text(webhook.org), .text(webhook.url), Self.json(webhook.kinds),
                    .text(webhook.secret), .timestamp(webhook.createdAt), .int8(Int64(Self.most)),
                    .int8(Int64(Self.mostOfOrg)),
                ]
            ),
        ])
        guard let row = results.last?.first else { return .tooMany }
        let stored = try Self.read(row)
        return stored.id == webhook.id ? .made : .renewed(stored)
    }

    private static func json(_ kinds: Set<LifecycleEvent.Kind>?) -> PostgresValue {
        guard let kinds else { return .null(.jsonb) }
        return .jsonb(JSONWriter.bytes(of: .array(kinds.map(\.rawValue).sorted().map { .string($0) })))
    }

    private static func read(_ row: PostgresRow) throws(PostgresError) -> Webhook {
        let kinds = try row.optionalJSON(3).flatMap { try? JSONParser.parse($0) }?.strings
        var webhook = Webhook(
            id: try row.id(0),
            org: try row.optionalText(1),
            url: try row.text(2),
            kinds: kinds.map { Set($0.compactMap { LifecycleEvent.Kind(rawValue: $0) }) },
            secret: try row.text(4),
            createdAt: try row.timestamp(8)
        )
        webhook.status = Webhook.Status(rawValue: try row.text(5)) ?? .off
        webhook.statusReason = try row.optionalText(6)
        webhook.failingSince = try row.optionalTimestamp(7)
        return webhook
    }

    private static func read(_ result: PostgresResult) throws(PostgresError) -> [Webhook] {
        try result.map { (row) throws(PostgresError) in try Self.read(row) }
    }

    /// A page of webhooks by id.
    ///
    /// - Parameter org: the organisation; nil for all.
    package func list(
        org: String?,
        after last: WebhookID?,
        limit: Int
    ) async throws(PostgresError) -> [Webhook] {
        try Self.read(
            try await self.pool.query(
                """
                SELECT \(Self.columns) FROM carillon.webhooks
                WHERE id > $2 AND ($1::text IS NULL OR org_id = $1) ORDER BY id LIMIT $3
                """,
                .text(org), .id(last ?? .least), .int4(clamping: limit)
            )
        )
    }

    /// Finds one webhook; returns nil if there is none.
    package func find(_ id: WebhookID) async throws(PostgresError) -> Webhook? {
        try Self.read(
            try await self.pool.query("SELECT \(Self.columns) FROM carillon.webhooks WHERE id = $1", .id(id))
        ).first
    }

    /// The webhooks that are not switched off.
    package func live() async throws(PostgresError) -> [Webhook] {
        try Self.read(
            try await self.pool.query(
                "SELECT \(Self.columns) FROM carillon.webhooks WHERE status <> 'off' ORDER BY id LIMIT $1",
                .int4(clamping: Self.most)
            )
        )
    }

    /// Removes a webhook; returns whether it existed.
    @discardableResult
    package func remove(_ id: WebhookID) async throws(PostgresError) -> Bool {
        try await self.pool.delete("DELETE FROM carillon.webhooks WHERE id = $1", .id(id)) > 0
    }

    /// Records a failed request.
    ///
    /// - Returns: the number of consecutive failures and the time of the first; nil if the webhook
    ///   is gone.
    package func recordFailure(
        _ id: WebhookID,
        reason: String,
        at: Timestamp
    ) async throws(PostgresError) -> (count: Int, since: Timestamp)? {
        let result = try await self.pool.query(
            """
            UPDATE carillon.webhooks SET status = 'failing', status_reason = $2, failures = failures + 1,
                failing_since = coalesce(failing_since, $3)
            WHERE id = $1 AND status <> 'off' RETURNING failures, failing_since
            """,
            .id(id), .text(reason), .timestamp(at)
        )
        guard let row = result.first else { return nil }
        return (Int(try row.int4(0)), try row.timestamp(1))
    }

    /// Records that events were dropped because too many were waiting.
    package func recordDropped(_ ids: [WebhookID], reason: String) async throws(PostgresError) {
        try await self.pool.query(
            """
            UPDATE carillon.webhooks SET status = 'failing', status_reason = $2
            WHERE id = ANY($1) AND status = 'active'
            """,
            .ids(ids), .text(reason)
        )
    }

    /// Forgets since when a webhook has failed, because nothing waits for it any more.
    package func forgetFailures(_ id: WebhookID) async throws(PostgresError) {
        try await self.pool.query(
            "UPDATE carillon.webhooks SET failures = 0, failing_since = NULL WHERE id = $1", .id(id))
    }

    /// Records a successful request.
    package func recordSuccess(_ id: WebhookID) async throws(PostgresError) {
        try await self.pool.query(
            """
            UPDATE carillon.webhooks SET status = 'active', status_reason = NULL, failing_since = NULL, failures = 0
            WHERE id = $1 AND status = 'failing'
            """,
            .id(id)
        )
    }

    /// Switches a webhook off until it is registered again.
    ///
    /// - Parameter failingSince: when its failures began.
    /// - Returns: false if the webhook is gone or was renewed since then.
    package func switchOff(
        _ id: WebhookID,
        failingSince: Timestamp,
        reason: String
    ) async throws(PostgresError) -> Bool {
        try await self.pool.query(
            "UPDATE carillon.webhooks SET status = 'off', status_reason = $2 WHERE id = $1 AND failing_since = $3",
            .id(id), .text(reason), .timestamp(failingSince)
        ).affectedRows > 0
    }
}
