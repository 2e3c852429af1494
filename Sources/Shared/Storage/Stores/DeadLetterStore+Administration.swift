// Carillon · DeadLetterStore+Administration.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import FoundationEssentials

extension DeadLetterStore {
    /// A letter as it is kept.
    package struct Letter: Sendable {
        package let id: Int64
        package let stream: String
        package let entry: String
        package let reason: String
        package let at: Timestamp
        /// When it goes back to its stream, if it does.
        package let replayAt: Timestamp?
        /// `[[name, value], …]`; what is not text stands as `{"base64": "…"}`.
        package let json: [UInt8]

        /// The fields as they were.
        package var fields: [(name: String, value: [UInt8])] {
            ((try? JSONParser.parse(self.json))?.array ?? []).map { field in
                let parts = field.array ?? []
                return (
                    String(decoding: Self.bytes(parts.first), as: UTF8.self), Self.bytes(parts.last)
                )
            }
        }

        private static func bytes(_ value: JSONValue?) -> [UInt8] {
            if let text = value?.string { return Array(text.utf8) }
            return value?["base64"]?.string.flatMap { Data(base64Encoded: $0) }.map { Array($0) } ?? []
        }
    }

    /// Which letters are meant; all if nothing is said.
    package struct Filter: Sendable, Equatable {
        package var id: Int64?
        /// How the reason begins.
        package var reason: String?
        /// Where it came from.
        package var stream: String?
        /// The job's type.
        package var type: String?
        /// Not set aside before.
        package var since: Timestamp?
        /// Set aside before.
        package var until: Timestamp?

        package init() {}

        /// Whether it means all letters.
        package var isEmpty: Bool { self == Filter() }

        /// The parameters $1 to $6 of ``condition``.
        fileprivate var parameters: [PostgresValue] {
            [
                self.id.map { .int8($0) } ?? .null(.int8), .text(self.reason), .text(self.stream), .text(self.type),
                .timestamptz(self.since?.microseconds), .timestamptz(self.until?.microseconds),
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
        var letters: [Letter] = []
        for row in result {
            letters.append(
                Letter(
                    id: try row.int8(0),
                    stream: try row.text(1),
                    entry: try row.text(2),
                    reason: try row.text(3),
                    at: Timestamp(microseconds: try row.timestamptz(4)),
                    replayAt: row.isNull(5) ? nil : Timestamp(microseconds: try row.timestamptz(5)),
                    json: try row.optionalJSON(6) ?? []
                )
            )
        }
        return letters
    }

    /// A page of letters, the newest first.
    ///
    /// - Parameter last: the id of the last one of the page before.
    package func list(
        _ filter: Filter,
        before last: Int64? = nil,
        limit: Int
    ) async throws(PostgresError) -> [Letter] {
        let statement = PostgresStatement(
            """
            SELECT \(Self.columns) FROM carillon.dead_letters d WHERE d.id < $7 AND \(Self.condition)
            ORDER BY d.id DESC LIMIT $8
            """,
            filter.parameters + [.int8(last ?? .max), .int4(Int32(clamping: limit))]
        )
        guard let result = try await self.pool.run([statement]).first else { return [] }
        return try Self.read(result)
    }

    /// How many letters there are, and how many of them would go back to their streams.
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
        guard let result = try await self.pool.run([statement], timeout: .seconds(60)).first else { return counts }
        for row in result {
            counts.all += try row.int8(1)
            if takesBack(try row.text(0)) { counts.replayable += try row.int8(2) }
        }
        return counts
    }

    /// Lets letters go back to their streams, one after the other; those that do so already go on as they were.
    ///
    /// - Parameters:
    ///   - takesBack: whether letters can go back to a stream; the others stay.
    ///   - rate: how many a second.
    /// - Returns: how many there are, and when the last of them goes.
    package func replay(
        _ filter: Filter,
        to takesBack: (String) -> Bool,
        rate: Int,
        now: Timestamp
    ) async throws(PostgresError) -> (count: Int, until: Timestamp?) {
        let streams = try await self.origins(filter).filter(takesBack)
        guard !streams.isEmpty else { return (0, nil) }
        let statement = PostgresStatement(
            """
            WITH wanted AS (
                SELECT d.id, row_number() OVER (ORDER BY d.id) AS n FROM carillon.dead_letters d
                WHERE d.replay_at IS NULL AND d.stream = ANY($7) AND \(Self.condition)
            ), changed AS (
                UPDATE carillon.dead_letters d SET replay_at = $8 + (w.n - 1) / $9::float8 * interval '1 second'
                FROM wanted w WHERE d.id = w.id AND d.replay_at IS NULL
                RETURNING d.replay_at
            )
            SELECT count(*), max(replay_at) FROM changed
            """,
            filter.parameters + [
                .array(PostgresArray(texts: streams)), .timestamptz(now.microseconds), .float8(Double(rate)),
            ]
        )
        guard let row = try await self.pool.run([statement], timeout: .seconds(60)).first?.first else {
            return (0, nil)
        }
        return (
            Int(try row.int8(0)), row.isNull(1) ? nil : Timestamp(microseconds: try row.timestamptz(1))
        )
    }

    /// The streams that letters came from which do not go back yet.
    private func origins(_ filter: Filter) async throws(PostgresError) -> [String] {
        let statement = PostgresStatement(
            """
            SELECT DISTINCT d.stream FROM carillon.dead_letters d WHERE d.replay_at IS NULL AND \(Self.condition)
            """,
            filter.parameters
        )
        guard let result = try await self.pool.run([statement], timeout: .seconds(60)).first else { return [] }
        var streams: [String] = []
        for row in result { streams.append(try row.text(0)) }
        return streams
    }

    /// Deletes letters.
    ///
    /// - Returns: how many there were.
    package func discard(_ filter: Filter) async throws(PostgresError) -> Int {
        let statement = PostgresStatement(
            "DELETE FROM carillon.dead_letters d WHERE \(Self.condition)", filter.parameters
        )
        return try await self.pool.run([statement], timeout: .seconds(60)).first?.affectedRows ?? 0
    }

    /// Claims letters that are to go back now; they come up again `hold` later unless they are removed.
    package func claimReplays(
        now: Timestamp,
        hold: Duration,
        limit: Int
    ) async throws(PostgresError) -> [Letter] {
        try Self.read(
            try await self.pool.query(
                """
                WITH due AS (
                    SELECT id FROM carillon.dead_letters WHERE replay_at <= $1
                    ORDER BY replay_at, id LIMIT $3 FOR UPDATE SKIP LOCKED
                ), claimed AS (
                    UPDATE carillon.dead_letters d SET replay_at = $2 FROM due WHERE d.id = due.id
                    RETURNING \(Self.columns)
                )
                SELECT * FROM claimed ORDER BY id
                """,
                .timestamptz(now.microseconds), .timestamptz((now + hold).microseconds),
                .int4(Int32(clamping: limit))
            )
        )
    }

    /// Removes letters that are back in their streams.
    package func remove(_ ids: [Int64]) async throws(PostgresError) {
        var list = PostgresArray(.int8, capacity: ids.count)
        for id in ids { list.append(int8: id) }
        try await self.pool.query("DELETE FROM carillon.dead_letters WHERE id = ANY($1)", .array(list))
    }
}
