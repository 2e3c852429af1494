// Carillon · RestCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import Support

/// Measures requests a second for a page of an inbox and for the unread count; the yardstick is a
/// plain NIO server that returns the same bytes.
struct RestCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "rest",
        abstract: "Measures requests a second for random users' inboxes."
    )

    @Option var users = 10_000
    @Option(help: "Stored notifications per user.")
    var notifications = 100
    @Option(help: "Seconds of each measurement.")
    var duration = 10
    @Option(help: "Warm-up in seconds before each measurement.")
    var warmUp = 2
    @Option(help: "Keep-alive connections.")
    var connections = 64
    @Option(help: "Path of the script for wrk.")
    var script: String
    @OptionGroup var programs: ProgramOptions

    private static let paths = [
        ("rest_list", "/v1/notifications?limit=20"), ("rest_unread_count", "/v1/notifications/unread-count"),
    ]

    private struct Figure {
        var perSecond = 0.0
        var p50 = 0.0
        var p99 = 0.0
    }

    func run() async throws {
        try await ScratchStack.use(self.programs) { stack in
            let inboxes = StoredInboxes(users: self.users, notificationsPerUser: self.notifications)
            let fillTime = try await seconds { try await inboxes.fill(stack.database.pool) }
            let tokens = try (0..<self.users).map { try Environment.token(user: StoredInboxes.name($0)) }
            let tokenFile = "\(stack.folder)/tokens"
            try tokens.joined(separator: "\n").write(toFile: tokenFile, atomically: true, encoding: .utf8)

            let (gateway, port) = try await stack.gateway()
            let metrics = try await MetricsPage(of: gateway)
            var routes: [String] = []
            var figures: [Figure] = []
            for (name, path) in Self.paths {
                let answer = try await Self.answer("http://127.0.0.1:\(port)\(path)", token: tokens[0])
                let file = "\(stack.folder)/\(name).json"
                try Data(answer).write(to: URL(fileURLWithPath: file))
                routes += ["--route", "\(path.prefix { $0 != "?" })=\(file)"]
                figures.append(try self.measure(port, path, tokenFile))
            }
            let pages = try await metrics.values("carillon_inbox_pages", by: "from")
            try await gateway.stop()

            let (bare, barePort) = try await stack.bareServer(["bare-rest"] + routes)
            for (index, (name, path)) in Self.paths.enumerated() {
                let yardstick = try self.measure(barePort, path, tokenFile)
                var report = Report(name)
                report.add("rows", self.users * self.notifications)
                report.add("users", self.users)
                report.add("seconds_to_fill", fillTime)
                report.add("per_second", figures[index].perSecond)
                report.add("p50_ms", figures[index].p50)
                report.add("p99_ms", figures[index].p99)
                report.add("yardstick_nio_per_second", yardstick.perSecond)
                report.add("yardstick_p50_ms", yardstick.p50)
                report.add("yardstick_p99_ms", yardstick.p99)
                report.add("ratio", figures[index].perSecond / yardstick.perSecond)
                if index == 0 {
                    report.add("share_from_memory", (pages["kept"] ?? 0) / max(1, pages.values.reduce(0, +)))
                }
                try report.print()
            }
            try await bare.stop()
        }
    }

    private func measure(_ port: Int, _ path: String, _ tokens: String) throws -> Figure {
        if self.warmUp > 0 { _ = try self.wrk(port, path, tokens, for: self.warmUp) }
        let output = try self.wrk(port, path, tokens, for: self.duration)
        guard try Tool.figure("failed", in: output) == 0 else {
            throw ValidationError("requests for \(path) failed: \(output)")
        }
        return Figure(
            perSecond: try Tool.figure("per_second", in: output),
            p50: try Tool.figure("p50_ms", in: output),
            p99: try Tool.figure("p99_ms", in: output)
        )
    }

    /// Returns the script's JSON line from wrk's output.
    private func wrk(_ port: Int, _ path: String, _ tokens: String, for duration: Int) throws -> String {
        let output = try Tool.run(
            "wrk",
            [
                "-t", "1", "-c", "\(self.connections)", "-d", "\(duration)s", "-s", self.script,
                "http://127.0.0.1:\(port)", "--", tokens, path,
            ]
        )
        return output.split(separator: "\n").last { $0.hasPrefix("{") }.map { String($0) } ?? output
    }

    private static func answer(_ url: String, token: String) async throws -> [UInt8] {
        var configuration = TransferConfiguration()
        configuration.allowPlainHTTP = true
        let client = try TransferClient(configuration: configuration, logger: Environment.logger)
        let request = TransferRequest(.get, url: url, headers: [("authorization", "Bearer \(token)")])
        let response = try await client.answer(request)
        guard response.status == 200 else { throw ValidationError("the gateway answered \(response.status)") }
        return response.body
    }
}

/// Inboxes filled by SQL: notifications of several types over some months, half of them read.
struct StoredInboxes {
    let users: Int
    let notificationsPerUser: Int

    static func name(_ index: Int) -> String { "reader-\(index)" }

    /// Inserts the rows, then vacuums and analyses the tables.
    func fill(_ pool: PostgresPool) async throws {
        let step = max(1, 100_000 / self.notificationsPerUser)
        for first in stride(from: 0, to: self.users, by: step) {
            try await pool.query(
                Self.notifications,
                .int8(Int64(first)),
                .int8(Int64(min(first + step, self.users) - 1)),
                .int8(Int64(self.notificationsPerUser))
            )
        }
        try await pool.query(
            """
            INSERT INTO carillon.inboxes (user_id, version, unread, total)
            SELECT user_id, max(version), count(*) FILTER (WHERE read_at IS NULL), count(*)
            FROM carillon.notifications GROUP BY user_id
            """
        )
        try await pool.withScriptConnection { try $0.execute("VACUUM (ANALYZE) carillon.notifications") }
        try await pool.withScriptConnection { try $0.execute("VACUUM (ANALYZE) carillon.inboxes") }
        let count = try await pool.query("SELECT count(*) FROM carillon.notifications").first?.int8(0) ?? 0
        guard count == Int64(self.users * self.notificationsPerUser) else {
            throw ValidationError("stored \(count) notifications instead of \(self.users * self.notificationsPerUser)")
        }
    }

    // The id contains the milliseconds, the UUID version and a hash, as the dispatcher creates it.
    private static let notifications = """
        INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, type, severity, delivery, lane,
            channels, title, body, data, status, sent_via, created_at, stored_at, delivered_at, read_at)
        SELECT 'reader-' || u,
            (lpad(to_hex(ms), 12, '0') || '8' || substr(hash, 1, 3) || '8' || substr(hash, 4, 15))::uuid,
            n, 'carillon:jobs/' || ms || '-' || u, '',
            (ARRAY['payment_received', 'invoice_created', 'security_alert'])[1 + n % 3], 'info', 'push', 'normal', 7,
            'Payment received', 'EUR ' || n || ' from Ada', jsonb_build_object('invoice', 'i' || n, 'user', u),
            'delivered', 'socket', to_timestamp(ms / 1000.0), to_timestamp(ms / 1000.0), to_timestamp(ms / 1000.0),
            CASE WHEN n % 2 = 0 THEN to_timestamp(ms / 1000.0) END
        FROM generate_series($1::bigint, $2::bigint) AS u, generate_series(1, $3::bigint) AS n,
            LATERAL (SELECT 1760000000000 + n * 86400000 + u AS ms, md5(u || '/' || n) AS hash) AS made
        ORDER BY u, n
        """
}
