// Carillon · InboxReads.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// What many clients ask of their inboxes at the same time: states, and pages.
struct InboxReads: Sendable {
    /// A page that somebody asks for.
    struct PageRequest: Sendable {
        let user: String
        let filter: InboxStore.Filter
        /// The state that the caller has seen.
        let known: InboxStore.State?
    }

    /// How many statements of each kind are under way: enough that one is with the server while another's answer is taken
    /// apart.
    private static let turns = 2
    private static let mostStates = 256
    /// Rows that a statement about several inboxes reads at most, so that its answer stays small.
    private static let mostRows = 768

    let states: ReadQueue<String, InboxStore.State>
    let pages: ReadQueue<PageRequest, InboxStore.Page>

    init(pool: PostgresPool) {
        self.states = ReadQueue(
            turns: Self.turns,
            mayJoin: { _, _, count in count < Self.mostStates },
            read: { (users) throws(PostgresError) in try await Self.states(users, pool) }
        )
        self.pages = ReadQueue(
            turns: Self.turns,
            mayJoin: { first, another, count in
                // A statement has one limit, and one condition.
                first.filter.limit == another.filter.limit && first.filter.unreadOnly == another.filter.unreadOnly
                    && (count + 1) * first.filter.limit <= Self.mostRows
            },
            read: { (requests) throws(PostgresError) in try await Self.pages(requests, pool) }
        )
    }

    static func states(_ users: [String], _ pool: PostgresPool) async throws(PostgresError) -> [InboxStore.State] {
        let result = try await pool.query(
            """
            SELECT u.number, \(InboxSQL.state(of: "b"))
            FROM unnest($1) WITH ORDINALITY AS u (user_id, number) JOIN carillon.inboxes b ON b.user_id = u.user_id
            """,
            .array(PostgresArray(texts: users))
        )
        var states = [InboxStore.State](repeating: InboxStore.State(), count: users.count)
        for row in result { states[try Self.place(row, of: users.count)] = try InboxStore.State(row, at: 1) }
        return states
    }

    private static func pages(
        _ requests: [PageRequest],
        _ pool: PostgresPool
    ) async throws(PostgresError) -> [InboxStore.Page] {
        guard let first = requests.first else { return [] }
        guard requests.count > 1 else { return [try await Self.page(first, pool)] }
        var users = PostgresArray(.text, capacity: requests.count)
        var versions = PostgresArray(.int8, capacity: requests.count)
        var unread = PostgresArray(.int4, capacity: requests.count)
        var totals = PostgresArray(.int4, capacity: requests.count)
        var before = PostgresArray(.uuid, capacity: requests.count)
        var types = PostgresArray(.text, capacity: requests.count)
        for request in requests {
            users.append(request.user)
            // No inbox is at a version below zero, and so none is as seen.
            versions.append(int8: request.known?.version ?? -1)
            unread.append(int4: request.known?.unread ?? -1)
            totals.append(int4: request.known?.total ?? -1)
            before.append(uuid: request.filter.end.halves)
            types.append(request.filter.type)
        }
        let result = try await pool.query(
            first.filter.unreadOnly ? InboxSQL.unreadPages : InboxSQL.pages,
            .array(users), .array(versions), .array(unread), .array(totals), .array(before), .array(types),
            .int4(Int32(clamping: first.filter.limit))
        )
        var pages = [InboxStore.Page](repeating: InboxStore.Page(), count: requests.count)
        for row in result { try pages[try Self.place(row, of: requests.count)].add(row, at: 1) }
        return pages
    }

    /// One page, by the statement for its part of the table alone.
    private static func page(
        _ request: PageRequest,
        _ pool: PostgresPool
    ) async throws(PostgresError) -> InboxStore.Page {
        let filter = request.filter
        let statement = PostgresStatement(
            (filter.unreadOnly ? InboxSQL.unreadPage : InboxSQL.page)[InboxPart.number(of: request.user)],
            InboxStore.parameters(request.user, request.known) + [
                .uuid(filter.end.halves), .text(filter.type), .int4(Int32(clamping: filter.limit)),
            ]
        )
        return try InboxStore.page(try await pool.run([statement]))
    }

    /// The index of the request that a row is for, which its first column numbers from 1.
    private static func place(_ row: PostgresRow, of count: Int) throws(PostgresError) -> Int {
        let place = Int(try row.int8(0)) - 1
        guard (0..<count).contains(place) else { throw PostgresError(.decoding, "a row of no request") }
        return place
    }
}

extension InboxStore.Filter {
    /// The id that all of the page are below.
    var end: NotificationID { self.before ?? NotificationID(high: .max, low: .max) }
}
