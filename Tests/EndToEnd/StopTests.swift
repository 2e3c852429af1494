// Carillon · StopTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Foundation
import Support
import Testing

/// SIGTERM finishes what was taken and takes nothing more.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct StopTests {
    @Test("a dispatcher stopped at work loses and repeats nothing and exits with 0")
    func dispatcher() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let first = try await stack.startDispatcher(name: "first")
            try await gateway.register(user: "offline", platform: "android", token: "phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "online")
            let count = 2_000
            for number in 0..<count {
                let user = number % 2 == 0 ? "online" : "offline"
                try await stack.append([("user", user), ("type", "payment_received"), ("title", "job \(number)")])
                if number == count / 2 { first.send(SIGTERM) }
            }
            #expect(try await first.waitForExit() == .code(0))
            #expect(!socket.titles.isEmpty)
            #expect(socket.titles.count + (stack.pushed()["phone"]?.count ?? 0) < count, "it was stopped too late")
            // It settled everything it had taken before it left.
            for stream in ["carillon:jobs", "carillon:jobs:critical", "carillon:{fcm}:deliveries:normal"] {
                let pending = try? await stack.connection.send("XPENDING", .text(stream), "dispatchers")
                guard var cursor = try pending?.cursor(), try cursor.array() != nil else { continue }
                let taken = try cursor.integer()
                #expect(taken == 0, "\(stream)")
            }

            let second = try await stack.startDispatcher(name: "second")
            let online = stride(from: 0, to: count, by: 2).map { "job \($0)" }
            let offline = stride(from: 1, to: count, by: 2).map { "job \($0)" }
            try await eventually("every job reached the socket", within: .seconds(60)) {
                socket.titles.count >= online.count
            }
            try await eventually("every job reached the phone", within: .seconds(60)) {
                (stack.pushed()["phone"]?.count ?? 0) >= offline.count
            }
            #expect(socket.titles.sorted() == online.sorted())
            #expect(stack.pushed()["phone"]?.sorted() == offline.sorted())
            #expect(try await second.stop() == .code(0))
        }
    }

    @Test("a port already in use ends the program and names the setting", arguments: ["gateway", "dispatcher"])
    func takenPort(program: String) async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(name: "first")
            let (command, setting) = program == "gateway" ? ("serve", "GATEWAY_PORT") : ("run", "METRICS_PORT")
            let process = try await stack.spawn(
                program,
                [command],
                name: "second",
                environment: [setting: "\(gateway.port)"]
            )
            #expect(try await process.waitForExit() == .code(1))
            #expect(process.errors().contains("\(setting): cannot listen on 127.0.0.1:\(gateway.port)"))
        }
    }
}
