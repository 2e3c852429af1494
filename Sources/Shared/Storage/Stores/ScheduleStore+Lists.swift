// Carillon · ScheduleStore+Lists.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

extension ScheduleStore {
    /// Those that follow a zone's clocks, by id; what is being fired is left out.
    ///
    /// - Parameter last: the last one of the page before.
    package func zoned(
        after last: NotificationID?,
        now: Timestamp,
        limit: Int
    ) async throws(PostgresError) -> [Schedule] {
        try Self.schedules(
            try await self.pool.query(
                ScheduleSQL.zoned, .uuid(last?.halves ?? (0, 0)), .timestamptz(now.microseconds),
                .int4(Int32(clamping: limit))
            )
        )
    }

    /// The version of the time-zone data that moments were computed with; nil if nobody has noted one.
    package func zoneVersion() async throws(PostgresError) -> String? {
        try await self.pool.query("SELECT version FROM carillon.zone_data").first?.text(0)
    }

    /// Notes with which version of the time-zone data moments were computed.
    package func noteZoneVersion(_ version: String) async throws(PostgresError) {
        try await self.pool.query(
            """
            INSERT INTO carillon.zone_data (version) VALUES ($1)
            ON CONFLICT (singleton) DO UPDATE SET version = excluded.version
            """,
            .text(version)
        )
    }

    /// Lets one that failed wait for an occurrence again.
    package func revive(_ id: NotificationID, at moment: Timestamp) async throws(PostgresError) {
        try await self.pool.query(
            """
            UPDATE carillon.schedules SET state = 'waiting', state_reason = NULL, due_at = $2, wake_at = $2, attempts = 0,
                wall_day = NULL, wall_minutes = NULL
            WHERE id = $1 AND state = 'failed'
            """,
            .uuid(id.halves), .timestamptz(moment.microseconds)
        )
    }

    /// One schedule.
    package func find(_ id: NotificationID) async throws(PostgresError) -> Schedule? {
        try Self.schedules(
            try await self.pool.query(
                "SELECT \(ScheduleColumns.list) FROM carillon.schedules s WHERE s.id = $1", .uuid(id.halves)
            )
        ).first
    }

    /// A page of all schedules, or of an organisation's, in the order of their ids.
    package func page(
        after last: NotificationID?,
        org: String?,
        limit: Int
    ) async throws(PostgresError) -> [Schedule] {
        try Self.schedules(
            try await self.pool.query(
                ScheduleSQL.page, .uuid(last?.halves ?? (0, 0)), .text(org), .int4(Int32(clamping: limit))
            )
        )
    }

    /// Takes a schedule away; whether there was one.
    package func cancel(_ id: NotificationID) async throws(PostgresError) -> Bool {
        try await self.pool.query("DELETE FROM carillon.schedules WHERE id = $1", .uuid(id.halves)).affectedRows > 0
    }

    /// How many rows of a job wait.
    package func count(_ name: CancellationStore.Name) async throws(PostgresError) -> Int {
        let result = try await self.pool.query(
            ScheduleSQL.count, .text(name.org), .array(PostgresArray(texts: name.ids)),
            .array(PostgresArray(texts: name.entries))
        )
        return Int(try result.first?.int8(0) ?? 0)
    }

    /// Lets what waits of a cancelled job come now, to be stored as cancelled; what was stored without an id is taken away.
    ///
    /// To be called when the cancellation is recorded.
    package func callOff(_ name: CancellationStore.Name, at: Timestamp) async throws(PostgresError) {
        try await self.pool.run([
            PostgresStatement(
                """
                UPDATE carillon.schedules SET wake_at = $3
                WHERE org_id = $1 AND job_id = ANY($2) AND cron IS NULL AND wake_at > $3 AND attempts = 0
                """,
                [.text(name.org), .array(PostgresArray(texts: name.ids)), .timestamptz(at.microseconds)]
            ),
            PostgresStatement(
                """
                DELETE FROM carillon.schedules
                WHERE org_id = $1 AND source = ANY($2) AND job_id IS NULL AND source <> 'api'
                """,
                [.text(name.org), .array(PostgresArray(texts: name.entries))]
            ),
        ])
    }

    /// Takes a user out of the schedules for several; those for the user alone are known by their column `user_id`.
    ///
    /// - Returns: how many were changed or taken away.
    package func erase(user: String) async throws(PostgresError) -> Int {
        var last: (UInt64, UInt64) = (0, 0)
        var count = 0
        while true {
            let result = try await self.pool.query(ScheduleSQL.naming, .text(user), .uuid(last))
            var changes: [PostgresStatement] = []
            for row in result {
                last = try row.uuid(0)
                let fields = try row.optionalJSON(1).flatMap { try? JSONParser.parse($0) }?.array ?? []
                switch DeadLetterErasure.change(fields, user: user) {
                case .none: break
                case .remove:
                    changes.append(PostgresStatement("DELETE FROM carillon.schedules WHERE id = $1", [.uuid(last)]))
                case .replace(let fields):
                    changes.append(
                        PostgresStatement(
                            "UPDATE carillon.schedules SET fields = $2 WHERE id = $1",
                            [.uuid(last), .jsonb(JSONWriter.bytes(of: .array(fields)))]
                        )
                    )
                }
            }
            if !changes.isEmpty { try await self.pool.run(changes) }
            count += changes.count
            if result.isEmpty { return count }
        }
    }

    private static func schedules(_ result: PostgresResult) throws(PostgresError) -> [Schedule] {
        var schedules: [Schedule] = []
        for row in result { schedules.append(try ScheduleColumns.read(row)) }
        return schedules
    }
}
