// Carillon · MailCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation

/// Measures jobs a second from XADD until their e-mails are recorded.
///
/// The yardstick `Yardsticks/mail.c` sends e-mails of about the same size to the same relay over as
/// many connections.
struct MailCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "mail",
        abstract: "Measures jobs a second to recorded e-mails; yardstick: plain C on libcurl."
    )

    @Option(help: "Path of the compiled Yardsticks/mail.c.")
    var yardstick: String

    @Option var users = 5_000
    @Option var jobs = 20_000
    @Option(help: "Connections of the yardstick; must equal the dispatcher's.")
    var connections = 16
    @Option(help: "Warm-up jobs.")
    var warmUp = 500

    func run() async throws {
        let tag = String(UInt32.random(in: .min ... .max), radix: 36)
        let users = (0..<self.users).map { "mail-\(tag)-\($0)" }
        let database = try Environment.database()
        try await Self.register(users, in: database)
        let elapsed = try await self.measure(users, tag, database)
        let output = try Tool.run(
            self.yardstick,
            [
                "-n", String(self.jobs), "-c", String(self.connections), "-C", try Environment.require("PROVIDER_CA"),
                try Environment.require("SMTP_URL"),
            ]
        )
        let plain = try Tool.figure("mails_per_second", in: output)
        var report = Report("job_to_mail_rate")
        report.add("jobs", self.jobs)
        report.add("users", self.users)
        report.add("connections", self.connections)
        report.add("yardstick_libcurl_per_second", plain)
        report.add("per_second", Double(self.jobs) / elapsed.inSeconds)
        report.add("ratio", Double(self.jobs) / elapsed.inSeconds / plain)
        try report.print()
    }

    /// Gives each user an address, and makes e-mail the only channel for the type.
    private static func register(_ users: [String], in pool: PostgresPool) async throws {
        let names = PostgresValue.array(PostgresArray(texts: users))
        try await pool.run([
            PostgresStatement(
                "INSERT INTO carillon.users (user_id) SELECT unnest($1) ON CONFLICT DO NOTHING", [names]),
            PostgresStatement(
                "INSERT INTO carillon.user_settings (user_id, email) SELECT u, u || '@example.com' FROM unnest($1) u",
                [names]),
            PostgresStatement(
                """
                INSERT INTO carillon.preferences (user_id, type, in_app, push, email)
                SELECT u, 'BalanceAlert', false, false, true FROM unnest($1) u
                """,
                [names]),
        ])
    }

    private func measure(_ users: [String], _ tag: String, _ database: PostgresPool) async throws -> Duration {
        let sandbox = try SandboxControl()
        let jobs = JobLoad(redis: try Environment.redis(), stream: "carillon:jobs", type: "BalanceAlert")
        let first = try await sandbox.count("email").accepted
        try await jobs.append(self.warmUp, to: users, rate: 1_000, batch: 8)
        try await Self.await("e-mails in the relay", first + self.warmUp) { try await sandbox.count("email").accepted }
        let start = ContinuousClock.now
        try await jobs.append(self.jobs, to: users)
        try await Self.await("e-mails in the relay", first + self.warmUp + self.jobs) {
            try await sandbox.count("email").accepted
        }
        try await Self.await("recorded e-mails", self.warmUp + self.jobs) {
            let rows = try await database.query(
                """
                SELECT count(*) FROM carillon.notifications
                WHERE status = 'sent' AND sent_via = 'email' AND starts_with(user_id, $1)
                """,
                .text("mail-\(tag)-"))
            return Int(try rows.first?.int8(0) ?? 0)
        }
        return ContinuousClock.now - start
    }

    private static func await(_ what: String, _ wanted: Int, _ count: () async throws -> Int) async throws {
        let deadline = ContinuousClock.now + .seconds(300)
        while true {
            let seen = try await count()
            if seen >= wanted { return }
            guard ContinuousClock.now < deadline else { throw ValidationError("\(what): \(wanted - seen) are missing") }
            // Poll, because neither the sandbox nor the table signals completion.
            try await Task.sleep(for: .milliseconds(20))
        }
    }
}
