// Carillon · DeadLetterStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The dead-letter queue.
package struct DeadLetterStore: Sendable {
    let pool: PostgresPool
    /// The time limit of statements that read many letters, which may be large.
    var patience: Duration = .seconds(60)

    /// Stores dead letters; a known origin is left as it is.
    ///
    /// - Parameter replacesKnown: whether to replace letters of the same origin that have another
    ///   reason or a scheduled replay. A broadcast that fails again has the same origin. A replay
    ///   that is under way does not remove the new letter.
    /// - Returns: the number of letters stored.
    @discardableResult
    package func add(_ letters: [DeadLetter], replacesKnown: Bool = false) async throws(PostgresError) -> Int {
        guard !letters.isEmpty else { return 0 }
        return try await self.pool.query(
            """
            INSERT INTO carillon.dead_letters AS d (stream, entry, reason, fields, at)
            SELECT DISTINCT ON (n.stream, n.entry) n.stream, n.entry, n.reason, n.fields, n.at
            FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY AS n (stream, entry, reason, fields, at, ordinal)
            ORDER BY n.stream, n.entry, n.ordinal
            ON CONFLICT (stream, entry) DO UPDATE
            SET reason = excluded.reason, fields = excluded.fields, at = excluded.at, replay_at = NULL
            WHERE $6 AND (d.replay_at IS NOT NULL OR d.reason <> excluded.reason)
            """,
            .texts(letters.map(\.stream)), .texts(letters.map(\.entry)), .texts(letters.map(\.reason)),
            .jsons(letters.map { FieldsColumn.json($0.fields) }), .timestamps(letters.map(\.at)),
            .bool(replacesKnown)
        ).affectedRows
    }

    /// The reason of the dead letter with this origin; nil if there is none.
    package func reason(stream: String, entry: String) async throws(PostgresError) -> String? {
        let result = try await self.pool.query(
            "SELECT reason FROM carillon.dead_letters WHERE stream = $1 AND entry = $2", .text(stream), .text(entry)
        )
        return try result.first?.text(0)
    }

    /// Removes a user: deletes dead letters for this user alone and removes the name from the
    /// others.
    ///
    /// - Returns: the number of dead letters changed.
    package func erase(user: String) async throws(PostgresError) -> Int {
        var count = 0
        var last = (stream: "", entry: "")
        while true {
            let start = last
            // The page bounds how many are unpacked at a time.
            let result = try await self.pool.query(
                """
                WITH page AS MATERIALIZED (
                    SELECT stream, entry, fields FROM carillon.dead_letters
                    WHERE (stream, entry) > ($2, $3) ORDER BY stream, entry LIMIT 100
                )
                SELECT d.stream, d.entry, CASE WHEN \(FieldsErasure.mayName("$1", in: "d.fields")) THEN d.fields END
                FROM page d ORDER BY d.stream, d.entry
                """,
                .text(user), .text(last.stream), .text(last.entry), timeout: self.patience
            )
            var changes: [PostgresStatement] = []
            for row in result {
                last = (try row.text(0), try row.text(1))
                let json = try row.optionalJSON(2) ?? []
                let fields = FieldsColumn.values(json)
                let read: [PostgresValue] = [.text(last.stream), .text(last.entry), .jsonb(json)]
                switch FieldsErasure.change(fields, user: user) {
                case .none: break
                case .remove:
                    changes.append(
                        PostgresStatement(
                            "DELETE FROM carillon.dead_letters WHERE stream = $1 AND entry = $2 AND fields = $3", read
                        )
                    )
                case .replace(let fields):
                    changes.append(
                        PostgresStatement(
                            """
                            UPDATE carillon.dead_letters SET fields = $4
                            WHERE stream = $1 AND entry = $2 AND fields = $3
                            """,
                            read + [.jsonb(JSONWriter.bytes(of: .array(fields)))]
                        )
                    )
                }
            }
            var changed = 0
            if !changes.isEmpty {
                for done in try await self.pool.run(changes, timeout: self.patience) { changed += done.affectedRows }
            }
            count += changed
            if changed < changes.count {
                // Another erasure or a replay changed some meanwhile: read the page again.
                last = start
            } else if result.isEmpty {
                return count
            }
        }
    }
}

extension DeadLetterStore {
    /// A stored dead letter.
    package struct Letter: Sendable {
        package let id: Int64
        package let stream: String
        package let entry: String
        package let reason: String
        package let at: Timestamp
        /// When it is replayed; nil if it is not.
        package let replayAt: Timestamp?
        /// The fields as a ``FieldsColumn``.
        let json: [UInt8]

        /// The original fields.
        package var fields: [(name: String, value: [UInt8])] { FieldsColumn.fields(self.json) }
    }

    /// Selects dead letters; all by default.
    package struct Filter: Sendable, Equatable {
        package var id: Int64?
        /// A prefix of the reason.
        package var reason: String?
        /// The stream of its origin.
        package var stream: String?
        /// The job's type.
        package var type: String?
        /// The earliest time of the dead letter.
        package var since: Timestamp?
        /// The time before which it was written.
        package var until: Timestamp?

        package init(id: Int64? = nil) { self.id = id }

        /// Whether it selects all dead letters.
        package var isEmpty: Bool { self == Filter() }

        /// The parameters $1 to $6 of ``condition``.
        fileprivate var parameters: [PostgresValue] {
            [
                self.id.map { .int8($0) } ?? .null(.int8), .text(self.reason), .text(self.stream), .text(self.type),
                .timestamp(self.since), .timestamp(self.until),
            ]
        }
    }

    private static let condition = """
        ($1::int8 IS NULL OR d.id = $1) AND ($2::text IS NULL OR starts_with(d.reason, $2))
            AND ($3::text IS NULL OR d.stream = $3)
            AND ($4::text IS NULL OR jsonb_path_exists(
                d.fields, 'strict $[*] ? (@[0] == "type" && @[1] == $t)', jsonb_build_object('t', $4::text)))
            AND ($5::timestamptz IS NULL OR d.at >= $5) AND ($6::timestamptz IS NULL OR d.at < $6)
        """
    private static let columns = "d.id, d.stream, d.entry, d.reason, d.at, d.replay_at, d.fields"

    private static func read(_ result: PostgresResult) throws(PostgresError) -> [Letter] {
        try result.map { (row) throws(PostgresError) in
            Letter(
                id: try row.int8(0),
                stream: try row.text(1),
                entry: try row.text(2),
                reason: try row.text(3),
                at: try row.timestamp(4),
                replayAt: try row.optionalTimestamp(5),
                json: try row.optionalJSON(6) ?? []
            )
        }
    }

    /// The bytes at which a page of letters, as JSON, ends; the last letter may exceed it.
    private static let pageBytes: Int64 = 4 * 1_048_576

    /// The SQL of the bytes of all letters before the row `d` in an order.
    private static func bytesBefore(in order: String) -> String {
        """
        coalesce(sum(octet_length(d.fields::text)) OVER (
            ORDER BY \(order) ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)
        """
    }

    /// Dead letters, newest first; fewer than `limit` if they are large.
    ///
    /// - Parameter last: the last id of the previous page.
    package func list(
        _ filter: Filter,
        before last: Int64? = nil,
        limit: Int
    ) async throws(PostgresError) -> [Letter] {
        try await self.page(filter, before: last, limit: limit).letters
    }

    /// Finds one dead letter; returns nil if there is none.
    package func find(_ id: Int64) async throws(PostgresError) -> Letter? {
        try await self.list(Filter(id: id), limit: 1).first
    }

    /// A page of ``list(_:before:limit:)``, and whether there are more letters.
    package func page(
        _ filter: Filter,
        before last: Int64?,
        limit: Int
    ) async throws(PostgresError) -> (letters: [Letter], hasMore: Bool) {
        let statement = PostgresStatement(
            """
            SELECT \(Self.columns), d.found FROM (
                SELECT d.*, count(*) OVER () AS found, \(Self.bytesBefore(in: "d.id DESC")) AS before
                FROM (
                    SELECT \(Self.columns) FROM carillon.dead_letters d WHERE d.id < $7 AND \(Self.condition)
                    ORDER BY d.id DESC LIMIT $8
                ) d
            ) d
            WHERE d.before < $9 ORDER BY d.id DESC
            """,
            filter.parameters + [.int8(last ?? .max), .int4(clamping: limit + 1), .int8(Self.pageBytes)]
        )
        let result = try await self.pool.query(statement, timeout: self.patience)
        let letters = try Self.read(result).prefix(limit)
        let found = try result.first?.int8(7) ?? 0
        return (Array(letters), found > letters.count)
    }

    /// A reason with the dead letters of one stream that have it.
    package struct Reason: Sendable {
        package let reason: String
        package let stream: String
        package let count: Int64
        /// The number of them without a scheduled replay.
        package let open: Int64
        package let oldestAt: Timestamp
        package let newestAt: Timestamp
    }

    /// The reasons of dead letters, the most frequent first.
    package func reasons(_ filter: Filter, limit: Int) async throws(PostgresError) -> [Reason] {
        let statement = PostgresStatement(
            """
            SELECT d.reason, d.stream, count(*), count(*) FILTER (WHERE d.replay_at IS NULL), min(d.at), max(d.at)
            FROM carillon.dead_letters d WHERE \(Self.condition)
            GROUP BY d.reason, d.stream ORDER BY 3 DESC, 1, 2 LIMIT $7
            """,
            filter.parameters + [.int4(clamping: limit)])
        return try await self.pool.query(statement, timeout: self.patience).map { (row) throws(PostgresError) in
            Reason(
                reason: try row.text(0), stream: try row.text(1), count: try row.int8(2), open: try row.int8(3),
                oldestAt: try row.timestamp(4), newestAt: try row.timestamp(5))
        }
    }

    /// Replaces the fields of a dead letter that has no scheduled replay, and schedules one.
    ///
    /// - Returns: when it is due; nil if there is no such letter.
    package func replay(
        _ id: Int64,
        with fields: [(name: String, value: [UInt8])]
    ) async throws(PostgresError) -> Timestamp? {
        try await self.pool.query(
            """
            UPDATE carillon.dead_letters SET fields = $2, replay_at = now() WHERE id = $1 AND replay_at IS NULL
            RETURNING replay_at
            """,
            .int8(id), .jsonb(FieldsColumn.json(fields))
        ).first?.timestamp(0)
    }

    /// The number of dead letters, and how many of them a replay would return to their streams.
    package func count(
        _ filter: Filter,
        to takesBack: (String) -> Bool
    ) async throws(PostgresError) -> (all: Int64, replayable: Int64) {
        let statement = PostgresStatement(
            """
            SELECT d.stream, count(*), count(*) FILTER (WHERE d.replay_at IS NULL)
            FROM carillon.dead_letters d WHERE \(Self.condition) GROUP BY d.stream
            """,
            filter.parameters
        )
        var counts: (all: Int64, replayable: Int64) = (0, 0)
        for row in try await self.pool.query(statement, timeout: self.patience) {
            counts.all += try row.int8(1)
            if takesBack(try row.text(0)) { counts.replayable += try row.int8(2) }
        }
        return counts
    }

    /// Schedules dead letters for a replay one after the other; earlier schedules stay.
    ///
    /// They are due by PostgreSQL's clock, as dispatchers claim them by it.
    ///
    /// - Parameters:
    ///   - takesBack: whether a stream accepts replays; dead letters of other streams stay.
    ///   - rate: replays per second.
    /// - Returns: the number of dead letters scheduled, and when the last one is due.
    package func replay(
        _ filter: Filter,
        to takesBack: (String) -> Bool,
        rate: Int
    ) async throws(PostgresError) -> (count: Int, until: Timestamp?) {
        let streams = try await self.origins(filter).filter(takesBack)
        guard !streams.isEmpty else { return (0, nil) }
        let statement = PostgresStatement(
            """
            WITH wanted AS (
                SELECT d.id, row_number() OVER (ORDER BY d.id) AS n FROM carillon.dead_letters d
                WHERE d.replay_at IS NULL AND d.stream = ANY($7) AND \(Self.condition)
            ), changed AS (
                UPDATE carillon.dead_letters d SET replay_at = now() + (w.n - 1) / $8::float8 * interval '1 second'
                FROM wanted w WHERE d.id = w.id AND d.replay_at IS NULL
                RETURNING d.replay_at
            )
            SELECT count(*), max(replay_at) FROM changed
            """,
            filter.parameters + [.texts(streams), .float8(Double(rate))]
        )
        guard let row = try await self.pool.query(statement, timeout: self.patience).first else { return (0, nil) }
        return (Int(try row.int8(0)), try row.optionalTimestamp(1))
    }

    /// The origin streams of dead letters without a scheduled replay.
    private func origins(_ filter: Filter) async throws(PostgresError) -> [String] {
        let statement = PostgresStatement(
            """
            SELECT DISTINCT d.stream FROM carillon.dead_letters d WHERE d.replay_at IS NULL AND \(Self.condition)
            """,
            filter.parameters
        )
        return try await self.pool.query(statement, timeout: self.patience).texts()
    }

    /// Deletes dead letters.
    ///
    /// - Returns: the number deleted.
    package func discard(_ filter: Filter) async throws(PostgresError) -> Int {
        let statement = PostgresStatement(
            "DELETE FROM carillon.dead_letters d WHERE \(Self.condition)", filter.parameters
        )
        return try await self.pool.runDurably([statement], timeout: self.patience)[0].affectedRows
    }

    /// Claims due replays; they are due again after `hold` unless they are removed.
    ///
    /// - Returns: the claimed letters, fewer than `limit` if they are large, and whether more may
    ///   be due.
    package func claimReplays(
        now: Timestamp,
        hold: Duration,
        limit: Int
    ) async throws(PostgresError) -> (letters: [Letter], hasMore: Bool) {
        let result = try await self.pool.query(
            """
            WITH due AS (
                SELECT id, replay_at, fields FROM carillon.dead_letters WHERE replay_at <= $1
                ORDER BY replay_at, id LIMIT $3 FOR UPDATE SKIP LOCKED
            ), sized AS (
                SELECT d.id, \(Self.bytesBefore(in: "d.replay_at, d.id")) AS before FROM due d
            ), claimed AS (
                UPDATE carillon.dead_letters d SET replay_at = $2 FROM sized s WHERE d.id = s.id AND s.before < $4
                RETURNING \(Self.columns)
            )
            SELECT c.*, (SELECT count(*) FROM due) FROM claimed c ORDER BY c.id
            """,
            .timestamp(now), .timestamp(now + hold), .int4(clamping: limit), .int8(Self.pageBytes),
            timeout: self.patience
        )
        let letters = try Self.read(result)
        let found = try result.first?.int8(7) ?? 0
        return (letters, found == limit || found > letters.count)
    }

    /// Removes claimed dead letters that are back in their streams.
    ///
    /// One that failed again meanwhile, or that another dispatcher claimed, stays.
    package func remove(_ letters: [Letter]) async throws(PostgresError) {
        try await self.pool.query(
            """
            DELETE FROM carillon.dead_letters d USING unnest($1, $2) AS c (id, replay_at)
            WHERE d.id = c.id AND d.replay_at = c.replay_at
            """,
            .int8s(letters.map(\.id)), .timestamps(letters.map(\.replayAt)))
    }
}

extension DeadLetterStore.Letter {
    package static let shape = Shape<DeadLetterStore.Letter>(
        "DeadLetter",
        [
            "id": .value(.integer) { $0.id },
            "stream": .value(.string) { $0.stream },
            "entry": .value(.string) { $0.entry },
            "reason": .value(.string) { $0.reason },
            "at": .value(.time) { $0.at },
            "replay_at": .value(.time) { $0.replayAt },
            "fields": .written(
                .list(of: .list(of: .anything, min: 2, max: 2), max: 100_000),
                "Names and values in order; binary values are objects with `base64`."
            ) { $1.raw($0.json) },
        ])
}
