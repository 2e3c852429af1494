// Carillon · JobListStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Recent jobs and the notifications of one, for operators.
package struct JobListStore: Sendable {
    /// The jobs that a list shows.
    package struct Filter: Sendable {
        package var type: String?
        package var status: NotificationStatus?
        package var org: String?
        /// The earliest time of storing.
        package var since: Timestamp?
        /// The time before which all were stored.
        package var until: Timestamp?
        /// Where the page begins; nil for the newest.
        package var after: Cursor?
        package var limit = 20

        package init() {}
    }

    /// A job, with the notifications that a page has inspected.
    package struct Item: Sendable {
        package let org: String
        /// The job's own id; nil if it has none.
        package let job: String?
        package let entry: String
        package let type: String
        package let title: String
        package let lane: String
        package let newestAt: Timestamp
        package fileprivate(set) var oldestAt: Timestamp
        /// The number of notifications by status.
        package fileprivate(set) var statuses: [(status: String, count: Int64)] = []
    }

    /// The end of a page: the last notification that it inspected.
    package struct Cursor: Sendable, Equatable {
        let at: Timestamp
        let user: String
        let id: NotificationID

        /// The text that ``init(_:)`` reads.
        package var text: String { "\(self.at.microseconds).\(self.id).\(self.user)" }

        /// Reads the text of a cursor; nil if it is malformed.
        package init?(_ text: String) {
            // A combining mark at a user's start forms one `Character` with the dot before it.
            let parts = text.unicodeScalars.split(separator: ".", maxSplits: 2, omittingEmptySubsequences: false)
                .map { String($0) }
            guard parts.count == 3, let at = Int64(parts[0]), let id = NotificationID(parts[1]),
                Timestamp(microseconds: at).isWritable
            else { return nil }
            self.init(at: Timestamp(microseconds: at), user: parts[2], id: id)
        }

        init(at: Timestamp, user: String, id: NotificationID) {
            self.at = at
            self.user = user
            self.id = id
        }
    }

    /// A page of jobs.
    package struct Page: Sendable {
        package let jobs: [Item]
        /// Where the next page begins; nil at the end.
        package let next: Cursor?
        /// When the last inspected notification was stored; nil if there was none.
        package let reached: Timestamp?
    }

    /// A page of a job's notifications.
    package struct NotificationPage: Sendable {
        package let items: [PeopleStore.Item]
        /// The user after whom the next page begins; nil at the end.
        package let next: String?
    }

    let pool: PostgresPool
    /// The most notifications that a page inspects.
    var mostLooked: Int32 = 20_000

    /// Returns a page of the jobs whose notifications were stored last, newest first.
    ///
    /// A page ends after ``mostLooked`` notifications, so it may have less than its limit; the
    /// notifications of a large job lie on several pages.
    package func list(_ filter: Filter) async throws(PostgresError) -> Page {
        let end = filter.after
        let result = try await self.pool.query(
            Self.page, .timestamp(end?.at ?? filter.until), .text(end?.user ?? ""),
            .id(end?.id ?? .least), .timestamp(filter.since),
            .text(filter.type), .text(filter.status?.rawValue), .text(filter.org),
            .int4(clamping: filter.limit), .int4(self.mostLooked), timeout: .seconds(20))
        var jobs: [Item] = []
        var next: Cursor?
        var reached: Timestamp?
        for row in result {
            guard try row.text(0) == "job" else {
                let cursor = Cursor(at: try row.timestamp(7), user: try row.text(1), id: try row.id(10))
                reached = cursor.at
                if try row.int8(9) > 0 { next = cursor }
                continue
            }
            let oldest = try row.timestamp(8)
            let item = Item(
                org: try row.text(1), job: try row.optionalText(2), entry: try row.text(3), type: try row.text(4),
                title: try row.text(5), lane: try row.text(6), newestAt: try row.timestamp(7), oldestAt: oldest)
            let status = (status: try row.text(11), count: try row.int8(9))
            if let last = jobs.last, ExactText(last.org) == ExactText(item.org),
                last.job.map({ ExactText($0) }) == item.job.map({ ExactText($0) }),
                last.job != nil || last.entry == item.entry
            {
                jobs[jobs.count - 1].statuses.append(status)
                jobs[jobs.count - 1].oldestAt = min(last.oldestAt, oldest)
            } else {
                jobs.append(item)
                jobs[jobs.count - 1].statuses = [status]
            }
        }
        return Page(jobs: jobs, next: next, reached: reached)
    }

    /// Returns the notifications of a job by user, starting after the user `last`.
    ///
    /// A page ends after ``mostLooked`` notifications, so with a status it may have less than its
    /// limit, even none, and more may follow.
    ///
    /// - Parameter user: the only user whose notifications are wanted; nil for all.
    package func notifications(
        of name: CancellationStore.Name,
        status: NotificationStatus?,
        user: String? = nil,
        after last: String,
        limit: Int
    ) async throws(PostgresError) -> NotificationPage {
        let filter: [PostgresValue] = [
            .text(last), .text(status?.rawValue), .int4(clamping: limit + 1), .text(user), .int4(self.mostLooked),
        ]
        for id in name.ids {
            let result = try await self.read("n.job_id = $2", [.text(name.org), .text(id)] + filter)
            // The search by entry below may take long, so it is only for jobs without such an id.
            guard result.isEmpty, try await !self.has(id, org: name.org) else {
                return try self.page(result, status: status, limit: limit)
            }
        }
        guard !name.entries.isEmpty else { return NotificationPage(items: [], next: nil) }
        let (from, until) = name.span
        let result = try await self.read(
            "n.job_entry = ANY($2) AND n.stored_at >= $8 AND n.stored_at < $9",
            [.text(name.org), .texts(name.entries)] + filter + [.timestamp(from), .timestamp(until)])
        return try self.page(result, status: status, limit: limit)
    }

    private func has(_ job: String, org: String) async throws(PostgresError) -> Bool {
        try await !self.pool.query(
            "SELECT FROM carillon.notifications WHERE org_id = $1 AND job_id = $2 LIMIT 1", .text(org), .text(job)
        ).isEmpty
    }

    /// Reads notifications with their number among those inspected; always includes the last
    /// inspected one, whatever its status.
    ///
    /// - Parameters:
    ///   - condition: selects a job by $2.
    ///   - parameters: $1: organisation, $2: job, $3: last user, $4: status, $5: limit, $6: user,
    ///     $7: notifications to inspect.
    private func read(
        _ condition: String,
        _ parameters: [PostgresValue]
    ) async throws(PostgresError) -> PostgresResult {
        let statement = PostgresStatement(
            """
            SELECT n.sent_via, a.archived_at, \(NotificationColumns.list), n.number
            FROM (
                SELECT n.*, row_number() OVER (ORDER BY n.user_id) AS number FROM carillon.notifications n
                WHERE n.org_id = $1 AND \(condition) AND n.user_id > $3 AND ($6::text IS NULL OR n.user_id = $6)
                ORDER BY n.user_id LIMIT $7
            ) n
            LEFT JOIN carillon.archived a ON a.user_id = n.user_id AND a.notification_id = n.id
            WHERE $4::text IS NULL OR n.status = $4 OR n.number = $7
            ORDER BY n.user_id LIMIT $5
            """,
            parameters)
        return try await self.pool.query(statement, timeout: .seconds(20))
    }

    /// Makes a page of rows, without the last inspected notification if its status is not wanted.
    ///
    /// - Parameter result: rows of ``read(_:_:)``, one more than the limit if there are so many.
    private func page(
        _ result: PostgresResult,
        status: NotificationStatus?,
        limit: Int
    ) throws(PostgresError) -> NotificationPage {
        let items = try PeopleStore.items(result)
        if items.count > limit {
            return NotificationPage(items: Array(items.prefix(limit)), next: items[limit - 1].notification.user)
        }
        let number = try result.last?.int8(2 + NotificationColumns.all.count)
        let next = number == Int64(self.mostLooked) ? items.last?.notification.user : nil
        let isWanted = { (item: PeopleStore.Item) in status == nil || item.notification.status == status }
        return NotificationPage(items: items.filter(isWanted), next: next)
    }

    /// The rows of a page: one per job and status, then one with the cursor at the page's end.
    ///
    /// $1 to $3: the cursor after which it begins, $1 null for the newest, $4: earliest time, $5:
    /// type, $6: status, $7: organisation, $8: jobs, $9: notifications to inspect.
    private static let page = """
        WITH looked AS MATERIALIZED (
            SELECT n.stored_at, n.user_id, n.id, n.org_id, n.job_id, n.job_entry, n.type, n.title, n.lane, n.status
            FROM carillon.notifications n
            WHERE n.stored_at <= coalesce($1, 'infinity'::timestamptz)
                AND (n.stored_at, n.user_id, n.id) < (coalesce($1, 'infinity'::timestamptz), $2, $3)
                AND n.stored_at >= coalesce($4, '-infinity'::timestamptz)
            ORDER BY n.stored_at DESC, n.user_id DESC, n.id DESC LIMIT $9
        ), first AS (
            SELECT l.*, row_number() OVER (
                PARTITION BY org_id, coalesce(job_id, job_entry) ORDER BY stored_at DESC, user_id DESC, id DESC
            ) AS row_of_job
            FROM looked l
            WHERE ($5::text IS NULL OR type = $5) AND ($6::text IS NULL OR status = $6)
                AND ($7::text IS NULL OR org_id = $7)
        ), counted AS (
            SELECT f.*, count(*) FILTER (WHERE row_of_job = 1) OVER (ORDER BY stored_at DESC, user_id DESC, id DESC) AS number
            FROM first f
        ), kept AS (SELECT * FROM counted WHERE number <= $8),
        jobs AS (
            SELECT 'job' AS kind, org_id, job_id, min(job_entry) AS entry, min(type) AS type,
                (array_agg(title ORDER BY stored_at DESC))[1] AS title, min(lane) AS lane, max(stored_at) AS newest,
                min(stored_at) AS oldest, count(*) AS count, NULL::uuid AS id, status,
                max(max(stored_at)) OVER (PARTITION BY org_id, coalesce(job_id, job_entry)) AS job_newest
            FROM kept GROUP BY org_id, job_id, coalesce(job_id, job_entry), status
        ), ends AS (
            (SELECT stored_at, user_id, id, 1::int8 AS goes_on FROM kept
                WHERE EXISTS (SELECT FROM counted WHERE number > $8)
                ORDER BY stored_at, user_id, id LIMIT 1)
            UNION ALL
            (SELECT stored_at, user_id, id, ((SELECT count(*) FROM looked) >= $9)::int::int8 FROM looked
                WHERE NOT EXISTS (SELECT FROM counted WHERE number > $8)
                ORDER BY stored_at, user_id, id LIMIT 1)
        )
        SELECT kind, org_id, job_id, entry, type, title, lane, newest, oldest, count, id, status
        FROM (
            SELECT kind, org_id, job_id, entry, type, title, lane, job_newest AS newest, oldest, count, id, status
            FROM jobs
            UNION ALL
            SELECT 'end', user_id, NULL, NULL, NULL, NULL, NULL, stored_at, NULL, goes_on, id, NULL FROM ends
        ) rows
        ORDER BY kind DESC, newest DESC, org_id, coalesce(job_id, entry), count DESC, status
        """
}
