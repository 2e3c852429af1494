// Carillon · DigestStore.swift
// SPDX-License-Identifier: Apache-2.0

import JSON
package import Model
package import Postgres

/// What is gathered for digests, in PostgreSQL.
package struct DigestStore: Sendable {
    /// What is to be gathered.
    package struct Item: Sendable {
        package let notification: Notification
        package let key: String
        package let rule: DigestRule

        package init(notification: Notification, key: String, rule: DigestRule) {
            self.notification = notification
            self.key = key
            self.rule = rule
        }
    }

    /// What became of an item.
    package enum Outcome: String, Sendable, CaseIterable {
        /// It comes as a notification of its own.
        case single
        /// It waits for the summary.
        case held
        /// Its job id came before.
        case duplicate
    }

    /// A window that is over.
    package struct Due: Sendable {
        package let id: NotificationID
        package let user: String
        package let org: String
        package let type: String
        package let key: String
        package let lane: Lane
        /// How many items were held and have not fallen out.
        package let count: Int
        /// The first of them.
        package let first: [Line]
    }

    /// An item that a window held back.
    package struct Held: Sendable {
        package let window: NotificationID
        package let id: NotificationID
        package let job: String?
    }

    /// What a summary says of one item.
    package struct Line: Sendable {
        package let id: NotificationID
        package let title: String
        package let body: String
        package let data: [UInt8]?

        package init(id: NotificationID, title: String, body: String, data: [UInt8]?) {
            self.id = id
            self.title = title
            self.body = body
            self.data = data
        }
    }

    /// How many items a summary knows one by one.
    package static let mostLines = 10

    private let pool: PostgresPool

    package init(pool: PostgresPool) {
        self.pool = pool
    }

    /// Adds items to the windows of their keys, in the order of users; the same items again have the same outcomes.
    ///
    /// - Returns: an outcome each, in the order of `items`.
    package func gather(_ items: [Item], now: Timestamp) async throws(PostgresError) -> [Outcome] {
        guard !items.isEmpty else { return [] }
        let parameters = Self.parameters(items) + [.timestamptz(now.microseconds)]
        guard let result = try await self.pool.run([PostgresStatement(Self.gatherItems, parameters)]).first else {
            throw PostgresError(.decoding, "gathering gave no result")
        }
        var outcomes = [Outcome](repeating: .held, count: items.count)
        for row in result {
            let position = Int(try row.int4(0))
            guard outcomes.indices.contains(position), let outcome = Outcome(rawValue: try row.text(1)) else {
                throw PostgresError(.decoding, "an item's outcome is wrong")
            }
            outcomes[position] = outcome
        }
        return outcomes
    }

    /// Takes windows that are over; they come up again at `until` unless they are removed, and take no more items.
    package func take(now: Timestamp, until: Timestamp, limit: Int) async throws(PostgresError) -> [Due] {
        let result = try await self.pool.query(
            Self.takeDue, .timestamptz(now.microseconds), .timestamptz(until.microseconds),
            .int4(Int32(clamping: limit)), .int4(Int32(Self.mostLines))
        )
        var due: [Due] = []
        for row in result {
            due.append(
                Due(
                    id: NotificationID(try row.uuid(0)),
                    user: try row.text(1),
                    org: try row.text(2),
                    type: try row.text(3),
                    key: try row.text(4),
                    lane: Lane(rawValue: try row.text(5)) ?? .normal,
                    count: Int(try row.int4(6)),
                    first: Self.lines(try row.optionalJSON(7))
                )
            )
        }
        return due
    }

    /// What windows held back, the summaries' own items: a page in the order of window and item.
    ///
    /// - Parameter last: the last of the page before; nil for the first page.
    package func held(in windows: [NotificationID], after last: Held?, limit: Int) async throws(PostgresError) -> [Held]
    {
        guard !windows.isEmpty else { return [] }
        let first = NotificationID(high: 0, low: 0)
        let result = try await self.pool.query(
            Self.heldItems, .array(PostgresArray(uuids: windows.map(\.halves))),
            .uuid((last?.window ?? first).halves), .uuid((last?.id ?? first).halves), .int4(Int32(clamping: limit))
        )
        var held: [Held] = []
        for row in result {
            held.append(
                Held(
                    window: NotificationID(try row.uuid(0)),
                    id: NotificationID(try row.uuid(1)),
                    job: try row.optionalText(2)
                )
            )
        }
        return held
    }

    /// Removes windows whose summaries are on their way.
    package func remove(_ ids: [NotificationID]) async throws(PostgresError) {
        guard !ids.isEmpty else { return }
        try await self.pool.query(
            "DELETE FROM carillon.digests WHERE id = ANY($1) AND state = 'closing'",
            .array(PostgresArray(uuids: ids.map(\.halves)))
        )
    }

    /// Forgets up to `limit` items that were gathered before a moment; until then their job ids are known.
    ///
    /// - Returns: how many there were.
    package func forget(before: Timestamp, limit: Int) async throws(PostgresError) -> Int {
        let result = try await self.pool.query(
            """
            DELETE FROM carillon.digest_items WHERE ctid = ANY (ARRAY (
                SELECT i.ctid FROM carillon.digest_items i
                WHERE i.gathered_at < $1 AND NOT EXISTS (SELECT FROM carillon.digests d WHERE d.id = i.digest_id)
                ORDER BY i.gathered_at LIMIT $2
            ))
            """,
            .timestamptz(before.microseconds), .int4(Int32(clamping: limit))
        )
        return result.affectedRows
    }

    private static func lines(_ json: [UInt8]?) -> [Line] {
        guard let json, let lines = (try? JSONParser.parse(json))?.array else { return [] }
        return lines.compactMap { line in
            guard let id = line["id"]?.string.flatMap({ NotificationID($0) }) else { return nil }
            let data = line["data"].flatMap { $0.object == nil ? nil : JSONWriter.bytes(of: $0) }
            return Line(id: id, title: line["title"]?.string ?? "", body: line["body"]?.string ?? "", data: data)
        }
    }

    private static func parameters(_ items: [Item]) -> [PostgresValue] {
        let notifications = items.map(\.notification)
        var jobs = PostgresArray(.text, capacity: items.count)
        var data = PostgresArray(.jsonb, capacity: items.count)
        var entityTypes = PostgresArray(.text, capacity: items.count)
        var entityIDs = PostgresArray(.text, capacity: items.count)
        var spans = PostgresArray(.int8, capacity: items.count)
        var maxima = PostgresArray(.int8, capacity: items.count)
        var sliding = PostgresArray(.bool, capacity: items.count)
        var singles = PostgresArray(.int4, capacity: items.count)
        for item in items {
            jobs.append(item.notification.jobID)
            data.append(json: item.notification.data)
            entityTypes.append(item.notification.entityType)
            entityIDs.append(item.notification.entityID)
            spans.append(int8: item.rule.window.inMicroseconds)
            maxima.append(int8: item.rule.maximum.inMicroseconds)
            sliding.append(bool: item.rule.isSliding)
            singles.append(int4: Int32(clamping: item.rule.singles))
        }
        return [
            .array(PostgresArray(texts: notifications.map(\.user))),
            .array(PostgresArray(uuids: notifications.map(\.id.halves))),
            .array(PostgresArray(texts: notifications.map(\.org))), .array(jobs),
            .array(PostgresArray(texts: notifications.map(\.type))), .array(PostgresArray(texts: items.map(\.key))),
            .array(PostgresArray(texts: notifications.map(\.lane.rawValue))),
            .array(PostgresArray(texts: notifications.map(\.title))),
            .array(PostgresArray(texts: notifications.map(\.body))), .array(data), .array(entityTypes),
            .array(entityIDs), .array(spans), .array(maxima), .array(sliding), .array(singles),
        ]
    }

    private static let gatherItems = """
        SELECT (k.n - 1)::int4, carillon.gather(
            ROW(k.user_id, k.id, k.id, false, k.org_id, k.job_id, k.title, k.body, k.data, k.entity_type, k.entity_id,
                $17)::carillon.digest_items,
            k.type, k.key, k.lane, k.span * interval '1 microsecond', k.maximum * interval '1 microsecond',
            k.sliding, k.singles)
        FROM (
            SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) WITH ORDINALITY
                AS i (user_id, id, org_id, job_id, type, key, lane, title, body, data, entity_type, entity_id, span, maximum,
                    sliding, singles, n)
            ORDER BY i.user_id COLLATE "C", i.org_id COLLATE "C", i.type COLLATE "C", i.key COLLATE "C", i.n
        ) k
        """

    /// $1: windows, $2 and $3: the last window and item, $4: how many.
    private static let heldItems = """
        SELECT i.digest_id, i.notification_id, i.job_id FROM carillon.digest_items i
        WHERE i.digest_id = ANY ($1) AND NOT i.is_single AND (i.digest_id, i.notification_id) > ($2, $3)
        ORDER BY i.digest_id, i.notification_id LIMIT $4
        """

    /// $1: now, $2: when they come up again, $3: how many, $4: how many lines.
    ///
    /// What the user read or deleted since about the same entity falls out of a summary.
    private static let takeDue = """
        WITH taken AS (
            UPDATE carillon.digests d SET state = 'closing', due_at = $2
            WHERE d.id IN (
                SELECT x.id FROM carillon.digests x WHERE x.due_at <= $1 ORDER BY x.due_at LIMIT $3
                FOR UPDATE SKIP LOCKED
            )
            RETURNING d.*
        )
        SELECT t.id, t.user_id, t.org_id, t.type, t.key, t.lane, count(i.notification_id)::int4,
            jsonb_agg(jsonb_build_object('id', i.notification_id, 'title', i.title, 'body', i.body, 'data', i.data)
                ORDER BY i.place) FILTER (WHERE i.place <= $4)
        FROM taken t
        LEFT JOIN LATERAL (
            SELECT h.*, row_number() OVER (ORDER BY h.notification_id) AS place
            FROM carillon.digest_items h
            WHERE h.digest_id = t.id AND NOT h.is_single AND NOT EXISTS (
                SELECT FROM carillon.notifications n
                WHERE n.user_id = t.user_id AND h.entity_id IS NOT NULL AND n.entity_id = h.entity_id
                    AND n.entity_type IS NOT DISTINCT FROM h.entity_type
                    AND (n.read_at >= h.gathered_at OR n.deleted_at >= h.gathered_at)
            )
        ) i ON true
        GROUP BY t.id, t.user_id, t.org_id, t.type, t.key, t.lane
        """
}
