// Carillon · IdleCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import NIOPosix
import Synchronization

/// What an idle socket costs a gateway of its own: memory, and the time to open it.
struct IdleCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "idle",
        abstract: "Memory of idle sockets that are authenticated and present."
    )

    @Option var sockets = 19_000
    @Option(help: "What the sockets speak: \(LoadDialect.allCases.map(\.rawValue).joined(separator: ", ")).")
    var dialect = LoadDialect.native
    @Option(help: "How long they stay idle, in seconds.")
    var idle = 30
    @OptionGroup var programs: ProgramOptions

    func run() async throws {
        try await ScratchStack.use(self.programs) { stack in
            let (gateway, port) = try await stack.gateway()
            let load = SocketLoad(
                group: MultiThreadedEventLoopGroup(numberOfThreads: 1),
                dialect: self.dialect
            )
            // The first sockets pay for what all share: prepared statements, pools, code pages.
            let first = SocketLoad(
                group: MultiThreadedEventLoopGroup(numberOfThreads: 1),
                dialect: self.dialect
            )
            try await first.connect(port: port, users: try LoadUser.named((0..<100).map { "first-\($0)" }))
            await first.close()
            // What the first sockets leave is cleared by and by, and nothing tells when that is done.
            try await Task.sleep(for: .seconds(2))

            let before = Environment.residentMemory(pid: gateway.pid)
            let users = try LoadUser.named((0..<self.sockets).map { "idle-\($0)" })
            let elapsed = try await seconds { try await load.connect(port: port, users: users) }
            let opened = Environment.residentMemory(pid: gateway.pid)
            // The time of idleness is what is measured.
            try await Task.sleep(for: .seconds(self.idle))
            let after = Environment.residentMemory(pid: gateway.pid)
            let closed = load.seen.withLock { $0.closed }
            let present = try await stack.presences(of: "idle-")
            guard closed == 0, present == self.sockets else {
                throw ValidationError("\(closed) sockets were closed, \(present) of \(self.sockets) users are present")
            }
            var report = Report("idle_sockets")
            report.add("dialect", self.dialect.rawValue)
            report.add("sockets", self.sockets)
            report.add("connects_per_second", Double(self.sockets) / elapsed)
            report.add("resident_before_mb", Double(before) / 1_048_576)
            report.add("resident_after_mb", Double(after) / 1_048_576)
            report.add("bytes_per_socket_when_opened", Double(opened - before) / Double(self.sockets))
            report.add("bytes_per_socket", Double(after - before) / Double(self.sockets))
            try report.print()
            try await gateway.end()
        }
    }
}
