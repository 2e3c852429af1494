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

    /// Rows that stay because their lanes, or the overflows of their organisations, are full.
    package struct Held: Sendable {
        package let lanes: Set<Lane>
        fileprivate let typesByLane: [Lane: [String]]
        fileprivate let orgs: [String]

        /// - Parameters:
        ///   - lanes: the full lanes.
        ///   - typesByLane: the types of each lane except ``Lane/normal``, for rows that name no
        ///     lane.
        ///   - orgs: the organisations with a full overflow.
        package init(lanes: Set<Lane>, typesByLane: [Lane: [String]], orgs: [String]) {
            self.lanes = lanes
            self.typesByLane = typesByLane
            self.orgs = orgs
        }
    }

    /// The number up to which rows are counted.
    static let mostCounted = 10_000
    /// The bytes of texts at which a read ends.
    private static let mostBytes: Int64 = 4 * 1024 * 1024
    /// The advisory lock of the relay that moves rows: "outbox" in ASCII.
    private static let lock: Int64 = 0x6F75_7462_6F78

    /// A pool of the relay's own: a batch keeps its connection until Redis has the jobs.
    let pool: PostgresPool
    /// How long a relay may hold the lock between statements before the server ends its session.
    var idleLimit: Duration = .seconds(30)

    /// The waiting rows, read once.
    package func backlog() async throws(PostgresError) -> Backlog {
        let result = try await self.pool.query(
            "SELECT count(*), min(at) FROM (SELECT at FROM carillon.outbox ORDER BY id LIMIT $1) w",
            .int4(clamping: Self.mostCounted)
        )
        guard let row = result.first else { return Backlog(count: 0, oldest: nil) }
        return Backlog(count: Int(try row.int8(0)), oldest: try row.optionalTimestamp(1))
    }

    /// Passes the oldest rows to `body`, and deletes those that it returns.
    ///
    /// A transaction lock lets one relay move rows at a time; a relay that dies, or stalls for
    /// longer than ``idleLimit``, loses it. If `body` throws, the rows stay.
    ///
    /// - Parameters:
    ///   - limit: the most rows; fewer are read if they are large.
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
                    [.text("\(self.idleLimit.inMilliseconds)ms")]),
                PostgresStatement("SELECT pg_try_advisory_xact_lock($1)", [.int8(Self.lock)]),
            ])
            guard let isMine = try locked.last?.first?.bool(0), isMine else { return nil }
            // After the lock's statement, so that it sees the deletions of the previous holder.
            let results = try await transaction.run([
                PostgresStatement(LayoutStore.identity), Self.oldest(limit: limit, leaving: held, skipping: waiting),
            ])
            guard let database = try results[0].first?.text(0) else { return nil }
            let rows = try results[1].map { (row) throws(PostgresError) -> Row in
                Row(id: try row.int8(0), fields: try row.optionalJSON(1) ?? [], at: try row.timestamp(2))
            }
            guard !rows.isEmpty else { return nil }
            let moved = try await body(database, rows)
            guard !moved.isEmpty else { return 0 }
            // Ids are committed out of order, so a lower one may have appeared since.
            try await transaction.query("DELETE FROM carillon.outbox WHERE id = ANY($1)", .int8s(moved))
            return moved.count
        }
    }

    /// Reads the oldest rows; fewer than `limit` if they are large.
    ///
    /// $1: `limit`, $2: ``mostBytes``, which the last row may exceed.
    private static func oldest(limit: Int, leaving held: Held?, skipping waiting: [Int64]) -> PostgresStatement {
        var conditions: [String] = []
        var parameters: [PostgresValue] = [.int4(clamping: limit), .int8(Self.mostBytes)]
        if let held {
            parameters += [
                .texts(held.lanes.map(\.rawValue)), .texts(held.typesByLane[.critical] ?? []),
                .texts(held.typesByLane[.bulk] ?? []), .texts(held.orgs),
            ]
            conditions.append(Self.isNotHeld)
        }
        if !waiting.isEmpty {
            parameters.append(.int8s(waiting))
            // As a subquery, which PostgreSQL always hashes.
            conditions.append("id NOT IN (SELECT unnest($\(parameters.count)::int8[]))")
        }
        let condition = conditions.isEmpty ? "" : "WHERE " + conditions.joined(separator: " AND ")
        return PostgresStatement(
            """
            SELECT id, fields, at FROM (
                SELECT o.*, sum(bytes) OVER (ORDER BY id) - bytes AS before
                FROM (SELECT id, fields, at, bytes FROM carillon.outbox \(condition) ORDER BY id LIMIT $1) o
            ) sized WHERE before < $2 ORDER BY id
            """,
            parameters
        )
    }

    /// Whether a row is not held back; its lane is the job's, or that of its type.
    ///
    /// $3: full lanes, $4 and $5: the types of lanes critical and bulk, $6: organisations with a
    /// full overflow.
    private static let isNotHeld = """
        CASE WHEN lane IN ('critical', 'normal', 'bulk') THEN lane WHEN fields ->> 'type' = ANY ($4) THEN 'critical'
            WHEN fields ->> 'type' = ANY ($5) THEN 'bulk' ELSE 'normal' END <> ALL ($3)
        AND coalesce(fields ->> 'org', '') <> ALL ($6)
        """
}
