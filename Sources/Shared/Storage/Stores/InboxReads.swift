// Carillon · InboxReads.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Synchronization

/// Reads of states and pages that many clients request at the same time.
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
    /// Pages of feeds, each by a statement of its own.
    let feeds: ReadQueue<PageRequest, InboxStore.Page>

    init(pool: PostgresPool) {
        self.states = ReadQueue(
            turns: Self.turns,
            mayJoin: { _, _, count in count < Self.mostStates },
            read: { (users) throws(PostgresError) in try await Self.states(users, pool) }
        )
        self.pages = Self.pageQueue { (requests) throws(PostgresError) in try await Self.pages(requests, pool) }
        self.feeds = ReadQueue(
            turns: Self.turns,
            // It may look at a whole inbox, for which no other user's page should wait.
            mayJoin: { _, _, _ in false },
            read: { (requests) throws(PostgresError) in
                var pages: [InboxStore.Page] = []
                for request in requests { pages.append(try await Self.feed(request, pool)) }
                return pages
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
        for row in result { states[try Self.place(row, of: users.count)] = try InboxStore.State(row, at: 1) }
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
        for row in result { try pages[try Self.place(row, of: requests.count)].add(row, at: 1) }
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

    private static func feed(
        _ request: PageRequest,
        _ pool: PostgresPool
    ) async throws(PostgresError) -> InboxStore.Page {
        let filter = request.filter
        return try InboxStore.Page(
            try await pool.query(
                filter.unreadOnly ? InboxSQL.unreadFeed : InboxSQL.feed,
                .text(request.user), .id(filter.end), .int4(clamping: filter.limit), .text(filter.type),
                .text(filter.category), .text(filter.org)))
    }

    /// Returns the index of a row's request, which its first column numbers from 1.
    private static func place(_ row: PostgresRow, of count: Int) throws(PostgresError) -> Int {
        let place = Int(try row.int8(0)) - 1
        guard (0..<count).contains(place) else { throw PostgresError(.decoding, "a row of no request") }
        return place
    }
}

extension InboxStore.Filter {
    /// The upper bound of the ids on the page.
    var end: NotificationID { self.before ?? .greatest }
}

/// The statements of ``InboxStore`` that read pages and record receipts.
enum InboxSQL {
    /// The number of columns of a state; a page's rows begin with them.
    static let stateColumns = 6

    /// The columns of a state, of an inbox called `alias`, whose row may be missing.
    ///
    /// `greatest` ignores nulls, so a missing inbox has the base of the epoch, as its first row
    /// will.
    static func state(of alias: String) -> String {
        """
        \(EpochSQL.version(of: alias)), coalesce(\(alias).unread, 0), coalesce(\(alias).total, 0), \
        \(EpochSQL.floor(of: alias)), coalesce(\(alias).begun_at, 'epoch'), coalesce(\(alias).notes, 0)
        """
    }

    private static let noState = [String](repeating: "NULL", count: Self.stateColumns).joined(separator: ", ")

    /// $1: users.
    ///
    /// The first column numbers them from 1.
    static let states = """
        SELECT u.number, \(Self.state(of: "b"))
        FROM unnest($1) WITH ORDINALITY AS u (user_id, number)
        LEFT JOIN carillon.inboxes b ON b.user_id = u.user_id
        """

    /// $1: user, $2: only ids below this, $3: limit.
    static let page = Self.page(where: "x.deleted_at IS NULL")
    static let unreadPage = Self.page(where: Self.isUnread("x"), limit: Self.unreadLimit("$3", of: "$1"))

    /// $1 to $3 as in ``page``, $4: type, $5: category, $6: organisation, each or null.
    static let feed = Self.page(where: "\(Self.isOfFeed) AND x.deleted_at IS NULL")
    static let unreadFeed = Self.page(
        where: "\(Self.isOfFeed) AND \(Self.isUnread("x"))", limit: Self.unreadLimit("$3", of: "$1"))
    private static let isOfFeed = """
        ($4::text IS NULL OR x.type = $4) AND ($5::text IS NULL OR x.category = $5) \
        AND ($6::text IS NULL OR x.org_id = $6)
        """

    /// $1: user, $2: organisation or null.
    static let unreadByCategory = """
        SELECT coalesce(u.category, ''), count(*)::int4
        FROM (
            SELECT x.category FROM carillon.notifications x
            WHERE x.user_id = $1 AND ($2::text IS NULL OR x.org_id = $2) AND \(Self.isUnread("x"))
            ORDER BY x.id DESC LIMIT \(Self.unreadLimit("10000", of: "$1"))
        ) u
        GROUP BY 1 ORDER BY 1
        """

    /// Whether `row` is in its inbox and was not read.
    static func isUnread(_ row: String) -> String {
        "\(row).read_at IS NULL AND \(row).deleted_at IS NULL AND \(row).version > 0"
    }

    /// A limit that ends a scan for unread notifications once it has found all of a user's.
    ///
    /// Unread notifications have no index: it would add a tenth to the time of each insert, and
    /// marking a row read would add entries to all indexes.
    static func unreadLimit(_ limit: String, of user: String) -> String {
        "least(\(limit), (SELECT s.unread FROM carillon.inboxes s WHERE s.user_id = \(user)))"
    }

    private static func page(where condition: String, limit: String = "$3") -> String {
        Self.rows("x.id < $2 AND \(condition) AND x.version > 0", order: "x.id DESC", limit: limit)
    }

    /// $1: user, $2: the version after which it begins, $3: limit.
    static let changes = Self.rows(
        """
        x.version > $2 AND EXISTS (
            SELECT FROM carillon.inboxes s WHERE s.user_id = $1
                AND $2 BETWEEN \(EpochSQL.floor(of: "s")) AND \(EpochSQL.version(of: "s"))
        )
        """, order: "x.version, x.id", limit: "$3")

    /// A row of the state alone, then a row for each notification without the state: nulls cost
    /// next to nothing, and no row is sorted or copied for a join.
    ///
    /// A branch with a limit is never read in parallel, so its order holds.
    private static func rows(_ condition: String, order: String, limit: String) -> String {
        """
        SELECT \(Self.state(of: "b")), \(InboxRow.nulls)
        FROM (SELECT) AS one LEFT JOIN carillon.inboxes b ON b.user_id = $1
        UNION ALL (
            SELECT \(Self.noState), \(InboxRow.list(of: "x")) FROM carillon.notifications x
            WHERE x.user_id = $1 AND \(condition)
            ORDER BY \(order) LIMIT \(limit)
        )
        """
    }

    /// Several inboxes at once.
    ///
    /// $1 and $2: for each the user and the upper bound of ids; $3: limit. The first column numbers
    /// the inboxes from 1.
    static let pages = Self.pages(where: "x.deleted_at IS NULL", limit: "$3")
    static let unreadPages = Self.pages(where: Self.isUnread("x"), limit: Self.unreadLimit("$3", of: "u.user_id"))

    private static func pages(where condition: String, limit: String) -> String {
        """
        SELECT u.number, page.*
        FROM unnest($1, $2) WITH ORDINALITY AS u (user_id, before, number)
        CROSS JOIN LATERAL (
            SELECT \(Self.state(of: "b")), \(InboxRow.nulls)
            FROM (SELECT) AS one LEFT JOIN carillon.inboxes b ON b.user_id = u.user_id
            UNION ALL (
                SELECT \(Self.noState), \(InboxRow.list(of: "x")) FROM carillon.notifications x
                WHERE x.user_id = u.user_id AND x.id < u.before AND \(condition) AND x.version > 0
                ORDER BY x.id DESC LIMIT \(limit)
            )
        ) page
        """
    }

    /// Whether the job of a notification, in a table called `alias`, was never cancelled, not even
    /// while a provider had the notification.
    static func isNotWithdrawn(of alias: String? = nil) -> String {
        let row = alias.map { "\($0)." } ?? ""
        return """
            \(row)status <> '\(NotificationStatus.cancelled.rawValue)' \
            AND \(row)status_reason IS DISTINCT FROM '\(RecordedReason.cancelledTooLate.rawValue)'
            """
    }

    /// A notification that has reached its user ($1): listed, archived, or pushed only, but not
    /// suppressed.
    static let isReceived = """
        (deleted_at IS NULL OR deleted_at > now() AND \(Self.isNotWithdrawn()) AND EXISTS (
            SELECT FROM carillon.archived a WHERE a.user_id = $1 AND a.notification_id = id
        )) AND (version > 0 OR status <> 'suppressed')
        """

    private static let received = "user_id = $1 AND id = $2 AND \(Self.isReceived)"

    /// $1: user, $2: id, $3: when.
    static let opened = """
        WITH known AS (SELECT 1 FROM carillon.notifications WHERE \(Self.received)),
        n AS (
            UPDATE carillon.notifications n SET opened_at = $3 WHERE \(Self.received) AND opened_at IS NULL
            RETURNING \(EndpointColumns.source)
        )
        SELECT \(EndpointColumns.list) FROM known k LEFT JOIN n ON true \(EndpointColumns.join)
        """

    /// $1: user, $2: id, $3: the button's id.
    static let button = """
        SELECT \(LabelColumns.list),
            (n.data -> 'actions' @> jsonb_build_array(jsonb_build_object('id', $3::text))) IS TRUE
        FROM carillon.notifications n WHERE \(Self.received)
        """

    /// $1: user, $2: id, $3: when, $4: the value of `sent_via`.
    static let delivered = """
        WITH known AS (SELECT lane FROM carillon.notifications WHERE \(Self.received)),
        n AS (
            UPDATE carillon.notifications n
            SET status = 'delivered', status_reason = NULL, delivered_at = $3, sent_via = coalesce(sent_via, $4)
            WHERE \(Self.received) AND status IN ('pending', 'sent', 'deferred', 'failed')
            RETURNING \(EndpointColumns.source)
        )
        SELECT k.lane, \(EndpointColumns.list) FROM known k LEFT JOIN n ON true \(EndpointColumns.join)
        """
}

/// Combines concurrent reads into one statement.
///
/// A caller that finds a free turn reads alone and at once. Callers that come while every turn is
/// taken wait, and share the next statement: the busier the server, the more a statement answers.
/// No caller joins a statement in flight, so each sees what was committed before it asked.
///
/// Waiting callers are bounded in number and time; further ones fail with `overloaded`. If the
/// server does not answer, all waiting callers fail too: in its turn each would wait as long again.
final class ReadQueue<Key: Sendable, Value: Sendable>: Sendable {
    private struct Waiting {
        let key: Key
        let since: ContinuousClock.Instant
        // An unsafe one is sound here: it is resumed once, by the task that removes it from the
        // waiting callers, or at once if it finds no place among them.
        let continuation: UnsafeContinuation<Result<Value, PostgresError>, Never>
    }

    private struct State {
        /// Statements in flight.
        var running = 0
        /// In the order of arrival.
        var waiting: [Waiting] = []
    }

    private let turns: Int
    private let patience: Duration
    private let mostWaiting: Int
    private let mayJoin: @Sendable (_ first: Key, _ another: Key, _ count: Int) -> Bool
    private let read: @Sendable ([Key]) async throws(PostgresError) -> [Value]
    private let state = Mutex(State())

    /// - Parameters:
    ///   - turns: the most statements in flight.
    ///   - patience: how long a caller may have waited when its turn comes.
    ///   - mostWaiting: the most callers that wait.
    ///   - mayJoin: whether `another` may share a statement with `first` and `count` keys in all.
    ///   - read: returns one value for each key, in their order.
    init(
        turns: Int,
        patience: Duration = .seconds(10),
        mostWaiting: Int = 10_000,
        mayJoin: @escaping @Sendable (_ first: Key, _ another: Key, _ count: Int) -> Bool,
        read: @escaping @Sendable ([Key]) async throws(PostgresError) -> [Value]
    ) {
        self.turns = turns
        self.patience = patience
        self.mostWaiting = mostWaiting
        self.mayJoin = mayJoin
        self.read = read
    }

    /// Reads the value of one key.
    ///
    /// - Throws: ``PostgresError``, with code `overloaded` if too many callers wait or it has
    ///   waited too long.
    func value(_ key: Key) async throws(PostgresError) -> Value {
        if self.state.withLock({ self.takeTurn(&$0) }) {
            let result = await self.alone(key)
            self.failWaiting(after: result)
            self.handOn()
            return try result.get()
        }
        let result = await withUnsafeContinuation {
            (continuation: UnsafeContinuation<Result<Value, PostgresError>, Never>) in
            let (hasPlace, mustServe) = self.state.withLock { state in
                guard state.waiting.count < self.mostWaiting else { return (false, false) }
                state.waiting.append(Waiting(key: key, since: .now, continuation: continuation))
                // A turn may have ended meanwhile.
                return (true, self.takeTurn(&state))
            }
            if !hasPlace { continuation.resume(returning: Self.overload) }
            if mustServe { Task { await self.serve() } }
        }
        return try result.get()
    }

    private static var overload: Result<Value, PostgresError> {
        .failure(PostgresError(.overloaded, "too many reads of inboxes wait"))
    }

    /// Fails all waiting callers if the server did not answer.
    private func failWaiting(after result: Result<Value, PostgresError>) {
        guard Self.isOutage(result) else { return }
        let waiting = self.state.withLock { state in
            defer { state.waiting = [] }
            return state.waiting
        }
        for caller in waiting { caller.continuation.resume(returning: result) }
    }

    /// Whether the server did not answer in time.
    private static func isOutage(_ result: Result<Value, PostgresError>) -> Bool {
        guard case .failure(let error) = result else { return false }
        return error.code == .unavailable || error.code == .timeout
    }

    private func takeTurn(_ state: inout State) -> Bool {
        guard state.running < self.turns else { return false }
        state.running += 1
        return true
    }

    /// Ends a turn, or passes it to waiting callers.
    private func handOn() {
        let isOver = self.state.withLock { state in
            guard state.waiting.isEmpty else { return false }
            state.running -= 1
            return true
        }
        if !isOver { Task { await self.serve() } }
    }

    /// Serves waiting callers until there are none, then ends the turn.
    private func serve() async {
        while true {
            let (late, batch) = self.state.withLock { state in
                let late = self.takeLate(&state)
                let batch = self.takeBatch(&state)
                if batch.isEmpty { state.running -= 1 }
                return (late, batch)
            }
            for waiting in late { waiting.continuation.resume(returning: Self.overload) }
            guard !batch.isEmpty else { return }
            let results = await self.results(batch.map(\.key))
            if let last = results.last { self.failWaiting(after: last) }
            for (waiting, result) in zip(batch, results) { waiting.continuation.resume(returning: result) }
        }
    }

    /// Removes the callers that have waited too long.
    private func takeLate(_ state: inout State) -> [Waiting] {
        let oldest = ContinuousClock.now - self.patience
        let late = Array(state.waiting.prefix { $0.since <= oldest })
        state.waiting.removeFirst(late.count)
        return late
    }

    /// Removes the first waiting caller and those that may join it.
    private func takeBatch(_ state: inout State) -> [Waiting] {
        guard let first = state.waiting.first else { return [] }
        var batch: [Waiting] = []
        var left: [Waiting] = []
        for waiting in state.waiting {
            if batch.isEmpty || self.mayJoin(first.key, waiting.key, batch.count) {
                batch.append(waiting)
            } else {
                left.append(waiting)
            }
        }
        state.waiting = left
        return batch
    }

    private func results(_ keys: [Key]) async -> [Result<Value, PostgresError>] {
        do throws(PostgresError) {
            let values = try await self.read(keys)
            guard values.count == keys.count else { throw PostgresError(.decoding, "expected one value for each key") }
            return values.map { .success($0) }
        } catch {
            // One key may be at fault, so read each alone, unless the server is: after a timeout
            // (57014) or a shutdown (57P01) each would wait long.
            guard error.code == .server, !error.isTransient, keys.count > 1 else {
                return keys.map { _ in .failure(error) }
            }
            var results: [Result<Value, PostgresError>] = []
            for key in keys {
                let result = await self.alone(key)
                results.append(result)
                guard Self.isOutage(result) else { continue }
                results += repeatElement(result, count: keys.count - results.count)
                break
            }
            return results
        }
    }

    private func alone(_ key: Key) async -> Result<Value, PostgresError> {
        do throws(PostgresError) {
            guard let value = try await self.read([key]).first else {
                throw PostgresError(.decoding, "expected a value for each key")
            }
            return .success(value)
        } catch {
            return .failure(error)
        }
    }
}
