// Carillon · SignalRClientTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Glibc
import Support
import Testing

/// The third-party clients signalrcore and pysignalr, run by `CARILLON_TEST_PYTHON` or `python3`.
///
/// Tests are skipped and say so if the packages are missing.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct SignalRClientTests {
    static let python = ProcessInfo.processInfo.environment["CARILLON_TEST_PYTHON"] ?? "python3"

    static let areClientsHere: Bool = {
        let process = Process()
        process.executableURL = URL(filePath: "/usr/bin/env")
        process.arguments = [Self.python, "-c", "import signalrcore, pysignalr"]
        process.standardError = FileHandle.nullDevice
        guard (try? process.run()) != nil else { return false }
        process.waitUntilExit()
        return process.terminationStatus == 0
    }()

    static let hint: Comment = "pip install signalrcore pysignalr, and name that Python in CARILLON_TEST_PYTHON"

    /// Each client with each of its transports.
    static let clients = [
        ["signalr_pysignalr.py"], ["signalr_signalrcore.py", "websockets"], ["signalr_signalrcore.py", "skip"],
        ["signalr_signalrcore.py", "sse"], ["signalr_signalrcore.py", "polling"],
    ]

    private static func start(_ client: [String], _ mode: String, _ rest: [String], url: String, in directory: String)
        async throws -> ChildProcess
    {
        let program = Stack.checkout.appending(path: "Tests/Programs/\(client[0])").path
        return try await ChildProcess.spawn(
            Self.python,
            [program, mode, url] + client.dropFirst() + rest,
            name: "client",
            directory: directory
        )
    }

    /// Both outputs of a client.
    private static func output(of process: ChildProcess) -> String {
        [process.outputFile, process.errorFile]
            .map { (try? String(contentsOfFile: $0, encoding: .utf8)) ?? "" }
            .joined()
    }

    @Test(
        "a client makes calls and gets answers, streams and errors from the conformance program",
        .enabled(if: areClientsHere, hint),
        arguments: clients)
    func conformance(_ client: [String]) async throws {
        let directory = try TemporaryDirectory("conformance")
        let server = try await ChildProcess.spawn(
            TestProducts.path("conformance"),
            ["--ping-interval", "1000", "--ping-timeout", "2000"],
            name: "conformance",
            directory: directory.path
        )
        let url = String(try await server.waitForLine("ready ").dropFirst("ready ".count))
        let process = try await Self.start(client, "conformance", [], url: url, in: directory.path)
        #expect(try await process.waitForExit() == .code(0), "\(Self.output(of: process))")
    }

    // Polls of signalrcore carry no token, so no gateway accepts them.
    @Test(
        "a client gets notifications and reads from a gateway", .enabled(if: areClientsHere, hint),
        arguments: clients.dropLast())
    func gateway(_ client: [String]) async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let process = try await Self.start(
                client,
                "gateway",
                [try await Stack.token(user: "ada"), "hello"],
                url: "http://127.0.0.1:\(gateway.port)",
                in: stack.directory.path
            )
            _ = try await process.waitForLine("listening")
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "hello")])
            #expect(try await process.waitForExit() == .code(0), "\(Self.output(of: process))")
        }
    }

    @Test(
        "pysignalr reconnects with a fresh token after expiry, and after a stop of the gateway",
        .enabled(if: areClientsHere, hint))
    func expiry() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let fresh = try await Stack.token(user: "ada")
            let process = try await Stack.withExpiringToken(user: "ada") { token in
                let process = try await Self.start(
                    ["signalr_pysignalr.py"], "stay", [token, fresh], url: "http://127.0.0.1:\(gateway.port)",
                    in: stack.directory.path)
                try await eventually("it is up, or was refused") {
                    Self.output(of: process).contains("unread 0") || Self.output(of: process).contains("Error")
                }
                return process.output().contains("unread 0") ? process : nil
            }
            func counts() -> Int { process.output().split(separator: "\n").count { $0.hasPrefix("unread 0") } }
            try await eventually("it is back", within: .seconds(120)) { counts() == 2 }
            #expect(try await gateway.process.stop() == .code(0))
            _ = try await stack.startGateway(name: "second", environment: ["GATEWAY_PORT": "\(gateway.port)"])
            try await eventually("it is back once more", within: .seconds(120)) { counts() == 3 }
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "next")])
            _ = try await process.waitForLine("received next", within: .seconds(60))
        }
    }

    // signalrcore retries once, then its reconnection breaks; its apps must start over.
    @Test(
        "pysignalr reconnects after its gateway is killed, and nothing is lost",
        .enabled(if: areClientsHere, hint))
    func killed() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            func notify(_ title: String) async throws {
                try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", title)])
            }
            let process = try await Self.start(
                ["signalr_pysignalr.py"],
                "stay",
                [try await Stack.token(user: "ada")],
                url: "http://127.0.0.1:\(gateway.port)",
                in: stack.directory.path
            )
            func received() -> [String] {
                process.output().split(separator: "\n").filter { $0.hasPrefix("received ") }
                    .map { String($0.dropFirst("received ".count)) }
            }
            _ = try await process.waitForLine("listening")
            try await notify("before")
            try await eventually("it comes") { received() == ["before"] }
            // Unconfirmed notifications would be sent again.
            try await eventually("it is noted") {
                try await stack.bookmarks(user: "ada").contains { $0.hasSuffix(" 1 0") }
            }
            gateway.process.send(SIGKILL)
            try await gateway.process.waitForExit()
            try await notify("missed")
            try await eventually("it is stored") { try await stack.statuses(user: "ada").count == 2 }
            let second = try await stack.startGateway(
                name: "second", environment: ["GATEWAY_PORT": "\(gateway.port)"])
            // It retries after five seconds, then at growing intervals. Only the new connection can
            // print this count.
            _ = try await process.waitForLine("unread 2", within: .seconds(120))
            try await notify("next")
            try await eventually("it goes on") { received().last == "next" }
            #expect(received() == ["before", "missed", "next"])
            let inbox = try await second.call(.get, "/v1/notifications", token: try await Stack.token(user: "ada"))
            #expect(inbox.body["notifications"]?.texts("title") == ["next", "missed", "before"])
        }
    }
}
