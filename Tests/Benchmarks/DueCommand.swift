// Carillon · DueCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import Support

/// Measures how long it takes to send everything that is due in the same second, among a million
/// waiting rows.
struct DueCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "due",
        abstract: "Measures the seconds until all scheduled or deferred rows of one second are sent."
    )

    /// The time between filling the tables and the due second.
    private static let lead: Duration = .seconds(5)

    @Option(help: "Waiting rows of each kind.")
    var rows = 1_000_000
    @Option(help: "Rows of each kind that are due in the same second.")
    var due = 10_000
    @Option var dispatchers = 1
    @OptionGroup var programs: ProgramOptions

    private struct Course {
        /// Seconds from the due second until the last row fired, and until the last notification is
        /// stored as sent.
        var fired = 0.0
        var sent = 0.0
    }

    func run() async throws {
        try await ScratchStack.use(self.programs) { stack in
            var programs: [ChildProcess] = []
            for number in 0..<self.dispatchers { programs.append(try await stack.dispatcher(name: "due-\(number)")) }
            for program in programs { _ = try await program.waitForLine("ready ") }
            for (kind, table) in [("scheduled", "schedules"), ("deferred", "follow_ups")] {
                let pool = stack.database.pool
                let waiting = kind == "scheduled" ? Self.waitingSchedules : Self.waitingFollowUps
                try await pool.query(waiting, .int4(Int32(clamping: self.rows - self.due)), timeout: .seconds(300))
                try await pool.withScriptConnection { try $0.execute("VACUUM ANALYZE carillon.\(table)") }
                // The yardstick: the least cost of storing as many rows.
                let plain = try await seconds {
                    try await pool.query(Self.plainInsert, .int4(Int32(clamping: self.due)))
                }
                let course = try await self.fire(kind, table, programs, stack)
                var report = Report("due")
                report.add("kind", kind)
                report.add("rows", self.rows)
                report.add("due", self.due)
                report.add("dispatchers", self.dispatchers)
                report.add("fired_after_s", course.fired)
                report.add("all_sent_after_s", course.sent)
                report.add("per_second", Double(self.due) / course.sent)
                report.add("yardstick_plain_insert_s", plain)
                try report.print()
            }
            for program in programs { try await program.stop() }
        }
    }

    /// Inserts the due rows and waits until all are sent.
    private func fire(
        _ kind: String,
        _ table: String,
        _ programs: [ChildProcess],
        _ stack: ScratchStack
    ) async throws -> Course {
        let pool = stack.database.pool
        let count = PostgresValue.int4(Int32(clamping: self.due))
        let statements =
            kind == "scheduled"
            ? [PostgresStatement(Self.dueSchedules, [count])]
            : [PostgresStatement(Self.deferred, [count]), PostgresStatement(Self.dueFollowUps, [count])]
        try await pool.run(statements)
        let start = ContinuousClock.now + Self.lead
        var course = Course()
        while true {
            // Uses an index, so that polling does not slow down the firing.
            let moment = kind == "scheduled" ? "part NOT LIKE '% %' AND lane = 1 AND wake_at" : "due_at"
            let result = try await pool.query(
                """
                SELECT (SELECT count(*) FROM carillon.\(table) WHERE \(moment) < now() + interval '1 hour'),
                    (SELECT count(*) FROM carillon.notifications WHERE org_id = 'due-\(kind)' AND status = 'sent')
                """
            )
            guard let row = result.first else { throw ValidationError("PostgreSQL returned no counts") }
            let elapsed = (ContinuousClock.now - start).inSeconds
            if try row.int8(0) == 0, course.fired == 0 { course.fired = elapsed }
            if course.fired > 0, try row.int8(1) >= Int64(self.due) {
                course.sent = elapsed
                return course
            }
            for program in programs where program.exit != nil {
                throw ValidationError("a dispatcher ended: \(program.tail())")
            }
            guard elapsed < 120 else { throw ValidationError("firing took longer than 120 s") }
            // Poll, because nothing signals that the rows are gone.
            try await Task.sleep(for: .milliseconds(50))
        }
    }

    private static let fields = """
        jsonb_build_array(jsonb_build_array('user', 'due-' || n), jsonb_build_array('type', 'invoice_created'),
            jsonb_build_array('org', 'due-scheduled'), jsonb_build_array('title', 'due'))
        """

    /// Schedules spread over the coming year.
    private static let waitingSchedules = """
        INSERT INTO carillon.schedules (id, org_id, part, user_id, source, lane, fields, content, due_at, wake_at, created_at)
        SELECT gen_random_uuid(), 'later', '', 'later-' || n, 'x', 1, \(Self.fields), n, t, t, now()
        FROM (SELECT n, now() + interval '1 day' + n % 31000000 * interval '1 second' AS t
            FROM generate_series(1, $1::int4) n) s
        """

    private static let dueSchedules = """
        INSERT INTO carillon.schedules (id, org_id, part, user_id, source, lane, fields, content, due_at, wake_at, created_at)
        SELECT gen_random_uuid(), 'due-scheduled', '', 'due-' || n, 'x', 1, \(Self.fields), n, t, t, now()
        FROM (SELECT n, now() + interval '5 seconds' AS t FROM generate_series(1, $1::int4) n) s
        """

    private static let waitingFollowUps = """
        INSERT INTO carillon.follow_ups (user_id, notification_id, kind, due_at)
        SELECT 'later-' || n % 100000, gen_random_uuid(), 'release',
            now() + interval '1 day' + n % 31000000 * interval '1 second'
        FROM generate_series(1, $1::int4) n
        """

    /// Notifications of users without a device, which stay in the inbox when quiet hours end.
    private static let deferred = """
        INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, type, severity, delivery, lane,
            channels, title, body, status, status_reason, created_at)
        SELECT 'due-' || n, ('018f0000-0000-8000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 1, 'x', 'due-deferred',
            'payment_received', 'info', 'push', 'normal', 3, 'due', '', 'deferred', 'quiet_hours', now()
        FROM generate_series(1, $1::int4) n
        """

    private static let dueFollowUps = """
        INSERT INTO carillon.follow_ups (user_id, notification_id, kind, due_at)
        SELECT 'due-' || n, ('018f0000-0000-8000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'release',
            now() + interval '5 seconds'
        FROM generate_series(1, $1::int4) n
        """

    private static let plainInsert = """
        INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, type, severity, delivery, lane,
            channels, title, body, status, created_at)
        SELECT 'plain-' || n, gen_random_uuid(), 1, 'x', 'plain', 'payment_received', 'info', 'push', 'normal', 3, 'due', '',
            'sent', now()
        FROM generate_series(1, $1::int4) n
        """
}
