// Carillon · IdleCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import NIOPosix
import Support

/// Measures the memory of an idle socket in each dialect and the time to open it; the yardstick is
/// plain NIO channels.
struct IdleCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "idle",
        abstract: "Measures the memory of idle, authenticated sockets; yardstick: plain NIO channels."
    )

    @Option var sockets = 19_000
    @Option(help: "Dialect of the sockets; all of them by default, each with a new gateway.")
    var dialect: LoadDialect?
    @Option(help: "Idle time in seconds.")
    var idle = 30
    @OptionGroup var programs: ProgramOptions

    private struct Figure {
        var connectsPerSecond = 0.0
        /// The server's memory in bytes before the sockets, right after opening them, and after the
        /// idle time.
        var before = 0
        var opened = 0
        var after = 0
    }

    func run() async throws {
        let bare = try await self.measure(.bare, .native)
        var report = Report("idle_bare_sockets")
        self.add(bare, to: &report)
        try report.print()

        for dialect in self.dialect.map({ [$0] }) ?? LoadDialect.allCases {
            let gateway = try await self.measure(.gateway, dialect)
            report = Report("idle_sockets")
            report.add("dialect", dialect.rawValue)
            self.add(gateway, to: &report)
            report.add("limit_kb_per_socket", dialect.limit)
            report.add("yardstick_nio_kb_per_socket", self.kilobytes(bare.after - bare.before))
            report.add("ratio", Double(gateway.after - gateway.before) / Double(bare.after - bare.before))
            try report.print()
        }
    }

    /// Measures a fresh server on fresh databases, so that no other users affect it.
    private func measure(_ kind: SocketServer.Kind, _ dialect: LoadDialect) async throws -> Figure {
        var figure = Figure()
        try await ScratchStack.use(self.programs) { stack in
            let server = try await SocketServer.start(kind, in: stack)
            let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
            try await server.warmUp(SocketLoad(group: group, dialect: dialect), sockets: 100)
            // Wait for the cleanup after the warm-up; nothing signals its end.
            try await Task.sleep(for: .seconds(2))

            let load = SocketLoad(group: group, dialect: dialect)
            let users = try server.users((0..<self.sockets).map { "idle-\($0)" })
            figure.before = server.program.residentMemory
            let elapsed = try await seconds { try await load.connect(port: server.port, users: users) }
            figure.connectsPerSecond = Double(self.sockets) / elapsed
            figure.opened = server.program.residentMemory
            // The idle time to measure.
            try await Task.sleep(for: .seconds(self.idle))
            figure.after = server.program.residentMemory
            try await server.check(load, of: "idle-", count: self.sockets, in: stack)
            try await server.end(load)
        }
        return figure
    }

    private func add(_ figure: Figure, to report: inout Report) {
        report.add("sockets", self.sockets)
        report.add("connects_per_second", figure.connectsPerSecond)
        report.add("resident_before_mb", Double(figure.before) / 1_048_576)
        report.add("resident_after_mb", Double(figure.after) / 1_048_576)
        report.add("kb_per_socket_when_opened", self.kilobytes(figure.opened - figure.before))
        report.add("kb_per_socket", self.kilobytes(figure.after - figure.before))
    }

    /// Returns the share of each socket in `bytes`, in kB (1,000 bytes).
    private func kilobytes(_ bytes: Int) -> Double {
        Double(bytes) / Double(self.sockets) / 1_000
    }
}

extension LoadDialect {
    /// The memory limit for an idle socket, in kB.
    fileprivate var limit: Int {
        switch self {
        case .native: 4
        case .socketio, .signalr: 5
        case .sse: 6
        }
    }
}
