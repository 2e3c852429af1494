// Carillon · OutboxStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The outbox of one database: committed jobs that are not in their stream yet.
package struct OutboxStore: Sendable {
    /// A job as it was enqueued.
    package struct Row: Sendable {
        package let id: Int64
        /// A JSON object.
        package let fields: [UInt8]
        package let at: Timestamp
    }

    /// The waiting rows.
    package struct Backlog: Sendable {
        /// The number of rows, counted up to ``OutboxStore/mostCounted``.
        package let count: Int
        /// When the oldest row was enqueued.
        package let oldest: Timestamp?
    }

    /// Rows that stay because their lanes are full.
    package struct Held: Sendable {
        package let lanes: Set<Lane>
        fileprivate let typesByLane: [Lane: [String]]

        /// - Parameters:
        ///   - lanes: the full lanes.
        ///   - typesByLane: the types of each lane except ``Lane/normal``, for rows that name no
        ///     lane.
        package init(lanes: Set<Lane>, typesByLane: [Lane: [String]]) {
            self.lanes = lanes
            self.typesByLane = typesByLane
        }
    }

    /// The number up to which rows are counted.
    static let mostCounted = 10_000
    /// The number of bytes to read together, as PostgreSQL stores them; a single row may be larger.
    private static let mostBytes: Int64 = 4 * 1024 * 1024
    /// The advisory lock of the relay that moves rows: "outbox" in ASCII.
    private static let lock: Int64 = 0x6F75_7462_6F78
    private static let identity = "SELECT id::text FROM carillon.outbox_database"

    /// A pool of the relay's own: a batch keeps its connection until Redis has the jobs.
    let pool: PostgresPool
    /// How long a relay may hold the lock between statements before the server ends its session.
    var idleLimit: Duration = .seconds(30)

    /// Returns the identity of the database, which backups and copies keep; nil if it lost the row.
    package func identity() async throws(PostgresError) -> String? {
        try await self.pool.query(Self.identity).first?.text(0)
    }

    /// The waiting rows, in one round trip.
    package func backlog() async throws(PostgresError) -> Backlog {
        let result = try await self.pool.query(
            """
            SELECT (SELECT count(*) FROM (SELECT FROM carillon.outbox ORDER BY id LIMIT $1) w),
                (SELECT at FROM carillon.outbox ORDER BY id LIMIT 1)
            """,
            .int4(Int32(Self.mostCounted))
        )
        guard let row = result.first else { return Backlog(count: 0, oldest: nil) }
        let oldest = row.isNull(1) ? nil : Timestamp(microseconds: try row.timestamptz(1))
        return Backlog(count: Int(try row.int8(0)), oldest: oldest)
    }

    /// Passes the oldest rows to `body`, and deletes those that it returns.
    ///
    /// A transaction lock lets one relay move rows at a time; a relay that dies, or stalls for
    /// longer than ``idleLimit``, loses it. If `body` throws, the rows stay.
    ///
    /// - Parameters:
    ///   - held: the rows to skip; nil for none. Every row before one that is not skipped is
    ///     inspected.
    ///   - waiting: the ids of further rows to skip.
    ///   - body: gets the database's identity and the rows in order of id; returns the ids of those
    ///     that Redis has.
    /// - Returns: the number of rows moved; nil if there are none or another relay moves them.
    package func move(
        limit: Int,
        leaving held: Held? = nil,
        skipping waiting: [Int64] = [],
        _ body: (_ database: String, _ rows: [Row]) async throws -> [Int64]
    ) async throws -> Int? {
        try await self.pool.transaction { transaction in
            let locked = try await transaction.run([
                PostgresStatement(
                    "SELECT set_config('idle_in_transaction_session_timeout', $1, true)",
                    [.text("\(self.idleLimit.inMicroseconds / 1_000)ms")]),
                PostgresStatement("SELECT pg_try_advisory_xact_lock($1)", [.int8(Self.lock)]),
            ])
            guard let isMine = try locked.last?.first?.bool(0), isMine else { return nil }
            let results = try await transaction.run([
                PostgresStatement(Self.identity),
                // After the lock's statement, so that it sees the deletions of the previous holder.
                Self.oldest(limit: limit, leaving: held, skipping: waiting),
            ])
            guard results.count == 2, let database = try results[0].first?.text(0) else { return nil }
            var rows: [Row] = []
            for row in results[1] {
                rows.append(
                    Row(
                        id: try row.int8(0),
                        fields: try row.optionalJSON(1) ?? [],
                        at: Timestamp(microseconds: try row.timestamptz(2))
                    )
                )
            }
            guard !rows.isEmpty else { return nil }
            let moved = try await body(database, rows)
            guard !moved.isEmpty else { return 0 }
            // Ids are committed out of order, so a lower one may have appeared since.
            try await transaction.query("DELETE FROM carillon.outbox WHERE id = ANY($1)", .array(Self.array(moved)))
            return moved.count
        }
    }

    private static func array(_ ids: [Int64]) -> PostgresArray {
        var array = PostgresArray(.int8, capacity: ids.count)
        for id in ids { array.append(int8: id) }
        return array
    }

    private static func oldest(limit: Int, leaving held: Held?, skipping waiting: [Int64]) -> PostgresStatement {
        var conditions: [String] = []
        var parameters: [PostgresValue] = [.int4(Int32(clamping: limit)), .int8(Self.mostBytes)]
        if let held {
            parameters += [
                .array(PostgresArray(texts: held.lanes.map(\.rawValue))),
                .array(PostgresArray(texts: held.typesByLane[.critical] ?? [])),
                .array(PostgresArray(texts: held.typesByLane[.bulk] ?? [])),
            ]
            conditions.append(Self.isNotHeld)
        }
        if !waiting.isEmpty {
            parameters.append(.array(Self.array(waiting)))
            // As a subquery, which PostgreSQL always hashes.
            conditions.append("id NOT IN (SELECT unnest($\(parameters.count)::int8[]))")
        }
        let condition = conditions.isEmpty ? "" : "WHERE " + conditions.joined(separator: " AND ")
        return PostgresStatement(
            """
            SELECT id, fields, at FROM (
                SELECT o.*, sum(pg_column_size(fields)) OVER (ORDER BY id) - pg_column_size(fields) AS before
                FROM (SELECT * FROM carillon.outbox \(condition) ORDER BY id LIMIT $1) o
            ) sized WHERE before < $2 ORDER BY id
            """,
            parameters
        )
    }

    /// The lane is the job's, or its type's.
    ///
    /// $3: full lanes, $4 and $5: the types of lanes critical and bulk.
    private static let isNotHeld = """
        CASE WHEN lane IN ('critical', 'normal', 'bulk') THEN lane WHEN fields ->> 'type' = ANY ($4) THEN 'critical'
            WHEN fields ->> 'type' = ANY ($5) THEN 'bulk' ELSE 'normal' END <> ALL ($3)
        """
}
