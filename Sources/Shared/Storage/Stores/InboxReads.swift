// Carillon · InboxReads.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Reads of inboxes through queues: short ones share statements, and long ones take few
/// connections.
struct InboxReads: Sendable {
    struct PageRequest: Sendable {
        let user: String
        let filter: InboxStore.Filter
    }

    /// Statements of each kind in flight: while the server runs one, the answer of another is
    /// decoded.
    private static let turns = 2
    private static let mostStates = 256
    /// The most rows of a statement about several inboxes.
    private static let mostRows = 768

    let states: ReadQueue<String, InboxStore.State>
    let pages: ReadQueue<PageRequest, InboxStore.Page>
    /// Statements that may look at a whole inbox, two at a time, so that connections are left for
    /// the proofs and pages of others.
    let scans: ReadQueue<PostgresStatement, PostgresResult>

    init(pool: PostgresPool) {
        self.states = ReadQueue(
            turns: Self.turns,
            mayJoin: { _, _, count in count < Self.mostStates },
            read: { (users) throws(PostgresError) in try await Self.states(users, pool) }
        )
        self.pages = Self.pageQueue { (requests) throws(PostgresError) in try await Self.pages(requests, pool) }
        self.scans = ReadQueue(
            turns: Self.turns,
            failsTogether: false,
            mayJoin: { _, _, _ in false },
            read: { (statements) throws(PostgresError) in
                var results: [PostgresResult] = []
                for statement in statements { results.append(try await pool.query(statement)) }
                return results
            }
        )
    }

    /// Returns a queue of reads of pages.
    static func pageQueue(
        _ read: @escaping @Sendable ([PageRequest]) async throws(PostgresError) -> [InboxStore.Page]
    ) -> ReadQueue<PageRequest, InboxStore.Page> {
        ReadQueue(
            turns: Self.turns,
            mayJoin: { first, another, count in
                // A statement has one limit and one condition.
                first.filter.limit == another.filter.limit && first.filter.unreadOnly == another.filter.unreadOnly
                    && (count + 1) * first.filter.limit <= Self.mostRows
            },
            read: read
        )
    }

    static func states(_ users: [String], _ pool: PostgresPool) async throws(PostgresError) -> [InboxStore.State] {
        let result = try await pool.query(InboxSQL.states, .texts(users))
        var states = [InboxStore.State](repeating: InboxStore.State(), count: users.count)
        for row in result { states[try row.position(in: users.count)] = try InboxStore.State(row, at: 1) }
        return states
    }

    static func pages(
        _ requests: [PageRequest],
        _ pool: PostgresPool
    ) async throws(PostgresError) -> [InboxStore.Page] {
        guard let first = requests.first else { return [] }
        guard requests.count > 1 else { return [try await Self.page(first, pool)] }
        let result = try await pool.query(
            first.filter.unreadOnly ? InboxSQL.unreadPages : InboxSQL.pages,
            .texts(requests.map(\.user)), .ids(requests.map(\.filter.end)), .int4(clamping: first.filter.limit)
        )
        var pages = [InboxStore.Page](repeating: InboxStore.Page(), count: requests.count)
        for row in result { try pages[try row.position(in: requests.count)].add(row, at: 1) }
        return pages
    }

    private static func page(
        _ request: PageRequest,
        _ pool: PostgresPool
    ) async throws(PostgresError) -> InboxStore.Page {
        let filter = request.filter
        return try InboxStore.Page(
            try await pool.query(
                filter.unreadOnly ? InboxSQL.unreadPage : InboxSQL.page,
                .text(request.user), .id(filter.end), .int4(clamping: filter.limit)))
    }

    /// Reads rows with a statement that may look at a whole inbox.
    func scan(_ sql: String, _ parameters: PostgresValue...) async throws(PostgresError) -> PostgresResult {
        try await self.scans.value(PostgresStatement(sql, parameters))
    }
}

extension InboxStore.Filter {
    /// The upper bound of the ids on the page.
    var end: NotificationID { self.before ?? .greatest }
}
