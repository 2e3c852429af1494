// Carillon · InboxReads.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Reads of inboxes: short ones share statements, and long ones take half of the connections.
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
    private let scans: InboxScans
    private let pool: PostgresPool

    init(pool: PostgresPool) {
        self.states = ReadQueue(
            turns: Self.turns,
            mayJoin: { _, _, count in count < Self.mostStates },
            read: { (users) throws(PostgresError) in try await Self.states(users, pool) }
        )
        self.pages = Self.pageQueue { (requests) throws(PostgresError) in try await Self.pages(requests, pool) }
        // Proofs and pages use the other connections, as the pool avoids slow ones.
        self.scans = InboxScans(turns: max(1, pool.size / 2))
        self.pool = pool
    }

    /// Returns a queue of reads of pages.
    ///
    /// - Parameters:
    ///   - patience: how long a read may have waited when its turn comes.
    ///   - mostWaiting: the most reads that wait.
    static func pageQueue(
        patience: Duration = .seconds(10),
        mostWaiting: Int = 10_000,
        _ read: @escaping @Sendable ([PageRequest]) async throws(PostgresError) -> [InboxStore.Page]
    ) -> ReadQueue<PageRequest, InboxStore.Page> {
        ReadQueue(
            turns: Self.turns,
            patience: patience,
            mostWaiting: mostWaiting,
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

    /// Reads rows with a statement that may look at the user's whole inbox.
    ///
    /// - Parameter parameters: those after the user, which is $1.
    func scan(
        _ sql: String,
        user: String,
        _ parameters: PostgresValue...
    ) async throws(PostgresError) -> PostgresResult {
        let statement = PostgresStatement(sql, [.text(user)] + parameters)
        return try await self.scans.run(for: user) { () throws(PostgresError) in try await self.pool.query(statement) }
    }
}

extension InboxStore.Filter {
    /// The upper bound of the ids on the page.
    var end: NotificationID { self.before ?? .greatest }
}
