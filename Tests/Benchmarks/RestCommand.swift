// Carillon · RestCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation

/// Requests a second for a page of an inbox and for the unread count, beside a bare Hummingbird route that answers with
/// the same bytes.
struct RestCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "rest",
        abstract: "Requests a second for random users' inboxes."
    )

    @Option var users = 10_000
    @Option(help: "Stored notifications of each user.")
    var notifications = 100
    @Option(help: "Seconds of each measurement.")
    var duration = 10
    @Option(help: "Seconds of the load before each measurement.")
    var warmUp = 2
    @Option(help: "Keep-alive connections of the load.")
    var connections = 64
    @Option(help: "The load's script for wrk.")
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
            try await gateway.end()

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
                report.add("yardstick_hummingbird_per_second", yardstick.perSecond)
                report.add("yardstick_p50_ms", yardstick.p50)
                report.add("yardstick_p99_ms", yardstick.p99)
                report.add("ratio", figures[index].perSecond / yardstick.perSecond)
                if index == 0 {
                    report.add("share_from_memory", (pages["kept"] ?? 0) / max(1, pages.values.reduce(0, +)))
                }
                try report.print()
            }
            try await bare.end()
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

    /// What the load prints in the end, after words of its own.
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
        switch await client.perform(request) {
        case .answered(let response) where response.status == 200: return response.body
        case .answered(let response): throw ValidationError("the gateway answered \(response.status)")
        case .unanswered(let failure): throw ValidationError("the gateway did not answer: \(failure)")
        }
    }
}
