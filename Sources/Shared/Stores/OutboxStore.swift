// Carillon · OutboxStore.swift
// SPDX-License-Identifier: Apache-2.0

package import Model
package import Postgres

/// The outbox of one database: jobs that were committed there and have yet to reach their stream.
package struct OutboxStore: Sendable {
    /// A job as it was enqueued.
    package struct Row: Sendable {
        package let id: Int64
        /// A JSON object.
        package let fields: [UInt8]
        package let at: Timestamp
    }

    /// What waits.
    package struct Backlog: Sendable {
        /// How many rows; no more than ``OutboxStore/mostCounted`` are counted.
        package let count: Int
        /// When the first of them was enqueued.
        package let oldest: Timestamp?
    }

    /// Up to how many rows are counted.
    package static let mostCounted = 10_000
    /// How many bytes of rows are read together, as PostgreSQL stores them; one row is read whatever its size.
    private static let mostBytes: Int64 = 4 * 1024 * 1024
    /// The advisory lock of whoever moves rows: "outbox" in ASCII.
    private static let lock: Int64 = 0x6F75_7462_6F78

    private let pool: PostgresPool

    /// - Parameter pool: one that nobody else uses, as a batch keeps its connection until Redis has it.
    package init(pool: PostgresPool) {
        self.pool = pool
    }

    /// What waits now, in one round trip.
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

    /// Gives the oldest rows to `body`, and deletes them when it returns.
    ///
    /// One at a time of all who do this, by a lock of the transaction: nobody else sees the rows meanwhile, and whoever dies
    /// lets go of it. What `body` throws leaves the rows as they are.
    ///
    /// - Parameters:
    ///   - body: gets the database's name for itself, and the rows in the order of their ids.
    /// - Returns: how many rows were moved; 0 if there are none, or somebody else moves them.
    package func move(
        limit: Int,
        _ body: (_ database: String, _ rows: [Row]) async throws -> Void
    ) async throws -> Int {
        try await self.pool.transaction { transaction in
            let results = try await transaction.run([
                PostgresStatement("SELECT pg_try_advisory_xact_lock($1)", [.int8(Self.lock)]),
                PostgresStatement("SELECT id::text FROM carillon.outbox_database"),
                // A statement of its own: it sees what whoever had the lock before has deleted.
                PostgresStatement(
                    """
                    SELECT id, fields, at FROM (
                        SELECT o.*, sum(pg_column_size(fields)) OVER (ORDER BY id) - pg_column_size(fields) AS before
                        FROM (SELECT * FROM carillon.outbox ORDER BY id LIMIT $1) o
                    ) sized WHERE before < $2 ORDER BY id
                    """,
                    [.int4(Int32(clamping: limit)), .int8(Self.mostBytes)]
                ),
            ])
            guard results.count == 3, let isMine = try results[0].first?.bool(0), isMine,
                let database = try results[1].first?.text(0)
            else { return 0 }
            var rows: [Row] = []
            for row in results[2] {
                rows.append(
                    Row(
                        id: try row.int8(0),
                        fields: try row.optionalJSON(1) ?? [],
                        at: Timestamp(microseconds: try row.timestamptz(2))
                    )
                )
            }
            guard !rows.isEmpty else { return 0 }
            try await body(database, rows)
            var ids = PostgresArray(.int8, capacity: rows.count)
            for row in rows { ids.append(int8: row.id) }
            // Exactly these: ids are committed out of order, so that a lower one may have come meanwhile.
            try await transaction.query("DELETE FROM carillon.outbox WHERE id = ANY($1)", .array(ids))
            return rows.count
        }
    }
}
