// Carillon · SignalRClientTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Glibc
import NIOCore
import NIOPosix
import Support
import Testing

/// The conformance program's `/hub` and `/echo`, byte by byte.
@Suite(.timeLimit(.minutes(10)))
struct SignalRConformanceTests {
    /// Runs `body` with the program's port.
    private static func with(_ options: [String] = [], _ body: (Int) async throws -> Void) async throws {
        let directory = try TemporaryDirectory("conformance")
        let server = try await ChildProcess.spawn(
            TestProducts.path("conformance"),
            options,
            name: "conformance",
            directory: directory.path
        )
        let line = try await server.waitForLine("ready http://127.0.0.1:")
        try await body(try #require(line.split(separator: ":").last.flatMap { Int($0) }))
        #expect(try await server.stop() == .code(0))
    }

    private static func open(_ port: Int, handshake: [UInt8] = TestSignalR.handshake) async throws -> TestSocket {
        let socket = try await TestSocket.open(port: port, token: nil, path: "/hub")
        try await eventually("it is up") { socket.status == 101 }
        try await socket.send(opcode: 1, payload: handshake)
        try await eventually("the handshake is answered") { !socket.messages.isEmpty }
        return socket
    }

    @Test("records are read from text and binary frames, several in one or one over several")
    func records() async throws {
        try await Self.with { port in
            let socket = try await Self.open(
                port, handshake: TestSignalR.handshake + TestSignalR.call("Echo", "1", id: "a"))
            try await eventually("the call after the handshake is answered") { socket.messages.completion("a") != nil }
            let bytes =
                TestSignalR.call("Echo", "[{\"k\":\"\u{2028}ä\"}]", id: "b") + TestSignalR.call("Add", "1,2", id: "c")
            try await socket.send(opcode: 2, payload: bytes)
            try await eventually("both are answered") { socket.messages.completion("c")?["result"]?.integer == 3 }
            #expect(socket.messages.completion("b")?["result"]?.array?.first?["k"]?.string == "\u{2028}ä")
            #expect(socket.messages.arguments("Receive").count == 2)
            let call = TestSignalR.call("Add", "20,3", id: "d")
            try await socket.send(opcode: 1, payload: Array(call.prefix(20)))
            try await socket.send(opcode: 1, payload: Array(call.dropFirst(20)))
            try await eventually("it is answered") { socket.messages.completion("d")?["result"]?.integer == 23 }
        }
    }

    @Test("streams send their items in order, while other calls are answered, and end early when cancelled")
    func streams() async throws {
        try await Self.with { port in
            let socket = try await Self.open(port)
            func items(_ id: String) -> [Int64] {
                socket.messages.filter { $0["type"]?.integer == 2 && $0["invocationId"]?.string == id }
                    .compactMap { $0["item"]?.integer }
            }
            let endless = #"{"type":4,"invocationId":"t","target":"Stream","arguments":[1000000]}"#
            try await socket.send(opcode: 1, payload: TestSignalR.record(endless))
            try await eventually("it begins") { !items("t").isEmpty }
            let short = #"{"type":4,"invocationId":"s","target":"stream","arguments":[250]}"#
            try await socket.send(
                opcode: 1, payload: TestSignalR.record(short) + TestSignalR.call("Add", "1,2", id: "a"))
            try await eventually("the call is answered") { socket.messages.completion("a")?["result"]?.integer == 3 }
            try await eventually("the short stream ends") { socket.messages.completion("s") != nil }
            #expect(items("s") == Array(0..<250))
            #expect(socket.messages.completion("t") == nil)
            let cancel = #"{"type":5,"invocationId":"t"}"#
            try await socket.send(opcode: 1, payload: TestSignalR.record(cancel))
            try await eventually("the other ends") { socket.messages.completion("t") != nil }
            let sent = items("t")
            #expect(sent.count < 1_000_000)
            #expect(sent == Array(0..<Int64(sent.count)))
        }
    }

    @Test("a call of the wrong kind, and one of a missing method, are answered with an error")
    func refusals() async throws {
        try await Self.with { port in
            let socket = try await Self.open(port)
            let missing = TestSignalR.record(#"{"type":4,"invocationId":"4","target":"Missing","arguments":[]}"#)
            let stream = TestSignalR.record(#"{"type":4,"invocationId":"1","target":"add","arguments":[1,2]}"#)
            let wrong: [(call: [UInt8], id: String, error: String)] = [
                (stream, "1", "the non-streaming 'add' method"),
                (TestSignalR.call("Missing", id: "2"), "2", "'Missing'"),
                (TestSignalR.call("Stream", "1", id: "3"), "3", "the streaming 'Stream' method"),
                (missing, "4", "'Missing'"),
            ]
            for (call, id, error) in wrong {
                try await socket.send(opcode: 1, payload: call)
                try await eventually("it is refused") {
                    socket.messages.completion(id)?["error"]?.string?.contains(error) == true
                }
            }
        }
    }

    @Test("the server pings a quiet client and disconnects a silent one")
    func liveness() async throws {
        try await Self.with(["--ping-interval", "200", "--ping-timeout", "3000"]) { port in
            let socket = try await Self.open(port)
            try await eventually("it pings") { socket.messages.contains { $0["type"]?.integer == 6 } }
            #expect(try await socket.waitForClose() == 1000)
            #expect(socket.messages.close?["allowReconnect"]?.bool == true)
        }
    }

    @Test("each end of a connection has its close code, error and permission to reconnect")
    func ends() async throws {
        try await Self.with(["--max-payload", "2000"]) { port in
            let kicked = try await Self.open(port)
            try await kicked.send(opcode: 1, payload: TestSignalR.call("Kick", "true", id: "1"))
            #expect(try await kicked.waitForClose() == 1000)
            #expect(kicked.messages.close?["allowReconnect"]?.bool == true)
            let stopped = try await Self.open(port)
            try await stopped.send(opcode: 1, payload: TestSignalR.call("Kick", "false", id: "1"))
            #expect(try await stopped.waitForClose() == 1000)
            #expect(stopped.messages.close?["allowReconnect"] == nil)
            let dropped = try await Self.open(port)
            try await dropped.send(opcode: 1, payload: TestSignalR.call("Drop", id: "1"))
            try await eventually("it is cut") { dropped.isClosed }
            #expect(dropped.closeCode == nil)
            let large = try await Self.open(port)
            try await large.send(opcode: 1, payload: [UInt8](repeating: 0x20, count: 2_001))
            #expect(try await large.waitForClose() == 1008)
            #expect(large.messages.close?["error"]?.string?.contains("2000B") == true)
            let strange = try await Self.open(port, handshake: TestSignalR.record(#"{"protocol":"other","version":1}"#))
            #expect(try await strange.waitForClose() == 1008)
            #expect(strange.messages.first?["error"]?.string?.contains("'other'") == true)
            let polite = try await Self.open(port)
            try await polite.send(opcode: 1, payload: TestSignalR.record(#"{"type":7}"#))
            #expect(try await polite.waitForClose() == 1000)
        }
    }

    @Test("text and binary messages up to 16 MiB are echoed")
    func echo() async throws {
        // Parsing so long a message blocks a thread that other connections would share.
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        try await Self.with { port in
            let socket = try await TestSocket.open(port: port, token: nil, path: "/echo", group: group)
            try await eventually("it is up") { socket.status == 101 }
            try await socket.send(opcode: 1, payload: Array(#"{"type":"small"}"#.utf8))
            _ = try await socket.first("small")
            // Not text, and long enough for the longest form of a length.
            let binaries: [[UInt8]] = [[0xFF, 0xC3, 0x00], [UInt8](repeating: 0x80, count: 65_536), []]
            for bytes in binaries { try await socket.send(opcode: 2, payload: bytes) }
            try await eventually("they come back as binary") { socket.binaries.count == binaries.count }
            #expect(socket.binaries == binaries)
            #expect(socket.texts.count == 1)
            let long = String(repeating: "x", count: 16 * 1024 * 1024 - 64)
            try await socket.send(opcode: 1, payload: Array(#"{"type":"large","text":"\#(long)"}"#.utf8))
            try await eventually("it comes back") {
                socket.all("large").first?["text"]?.string?.utf8.count == long.utf8.count
            }
            // The refusal may arrive before everything is sent.
            try? await socket.send(opcode: 1, payload: [UInt8](repeating: 0x78, count: 16 * 1024 * 1024 + 1))
            #expect(try await socket.waitForClose() == 1009)
        }
        try await group.shutdownGracefully()
    }
}

/// The third-party clients signalrcore and pysignalr.
@Suite(
    .timeLimit(.minutes(10)),
    .enabled(if: PythonClient.has("signalrcore") && PythonClient.has("pysignalr"))
)
struct SignalRClientTests {
    /// Each client with each of its transports.
    static let clients = [
        ["signalr_pysignalr.py"], ["signalr_signalrcore.py", "websockets"], ["signalr_signalrcore.py", "skip"],
        ["signalr_signalrcore.py", "sse"], ["signalr_signalrcore.py", "polling"],
    ]

    private static func start(
        _ client: [String],
        _ mode: String,
        _ rest: [String],
        url: String,
        name: String = "client",
        in directory: String
    ) async throws -> ChildProcess {
        let program = Stack.checkout.appending(path: "Tests/Programs/\(client[0])").path
        return try await ChildProcess.spawn(
            PythonClient.interpreter,
            [program, mode, url] + client.dropFirst() + rest,
            name: name,
            directory: directory
        )
    }

    /// Starts a client that stays connected, first with a token that expires soon and then with
    /// another, and waits until it is up.
    private static func stay(_ client: [String], at gateway: Gateway, _ stack: Stack) async throws -> ChildProcess {
        let fresh = Stack.token(user: "ada")
        var attempts = 0
        return try await Stack.withExpiringToken(user: "ada") { token in
            attempts += 1
            // A new name, because clients of one name share their output.
            let process = try await Self.start(
                client, "stay", [token, fresh], url: "http://127.0.0.1:\(gateway.port)", name: "client-\(attempts)",
                in: stack.directory.path)
            try await eventually("it is up, or was refused") {
                Self.opens(of: process) > 0 || Self.output(of: process).contains("Error")
            }
            return Self.opens(of: process) > 0 ? process : nil
        }
    }

    /// How often a client that stays has connected.
    private static func opens(of process: ChildProcess) -> Int {
        process.output().split(separator: "\n").count { $0 == "open" }
    }

    /// Both outputs of a client.
    private static func output(of process: ChildProcess) -> String {
        process.output() + process.errors()
    }

    @Test(
        "a client makes calls and gets answers, streams and errors from the conformance program",
        arguments: clients)
    func conformance(_ client: [String]) async throws {
        let directory = try TemporaryDirectory("conformance")
        let server = try await ChildProcess.spawn(
            TestProducts.path("conformance"),
            ["--ping-interval", "1000"],
            name: "conformance",
            directory: directory.path
        )
        let url = String(try await server.waitForLine("ready ").dropFirst("ready ".count))
        let process = try await Self.start(client, "conformance", [], url: url, in: directory.path)
        #expect(try await process.waitForExit() == .code(0), "\(Self.output(of: process))")
    }

    // Polls of signalrcore carry no token, so no gateway accepts them.
    @Test("a client gets notifications and reads from a gateway", arguments: clients.dropLast())
    func gateway(_ client: [String]) async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let process = try await Self.start(
                client,
                "gateway",
                [Stack.token(user: "ada"), "hello"],
                url: "http://127.0.0.1:\(gateway.port)",
                in: stack.directory.path
            )
            _ = try await process.waitForLine("listening")
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "hello")])
            #expect(try await process.waitForExit() == .code(0), "\(Self.output(of: process))")
        }
    }

    @Test("pysignalr reconnects with a fresh token after expiry, and after a stop of the gateway")
    func expiry() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth(environment: ["GATEWAY_PORT": "\(try FreePort.next())"])
            let process = try await Self.stay(["signalr_pysignalr.py"], at: gateway, stack)
            try await eventually("it is back") { Self.opens(of: process) == 2 }
            #expect(try await gateway.process.stop() == .code(0))
            _ = try await stack.startGateway(name: "second", environment: ["GATEWAY_PORT": "\(gateway.port)"])
            try await eventually("it is back once more") { Self.opens(of: process) == 3 }
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "next")])
            _ = try await process.waitForLine("received next")
        }
    }

    // signalrcore's own reconnection fails after one retry, so the client starts over.
    @Test(
        "signalrcore returns with a fresh token after expiry, over each transport that sends a token",
        arguments: ["websockets", "skip", "sse"])
    func expiry(over transport: String) async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let process = try await Self.stay(["signalr_signalrcore.py", transport], at: gateway, stack)
            try await eventually("it is back") { Self.opens(of: process) == 2 }
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "next")])
            _ = try await process.waitForLine("received next")
            #expect(!process.output().contains("closed again"))
        }
    }

    // signalrcore retries once, then its reconnection breaks; its apps must start over.
    @Test("pysignalr reconnects after its gateway is killed, and nothing is lost")
    func killed() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth(environment: ["GATEWAY_PORT": "\(try FreePort.next())"])
            let process = try await Self.start(
                ["signalr_pysignalr.py"],
                "stay",
                [Stack.token(user: "ada")],
                url: "http://127.0.0.1:\(gateway.port)",
                in: stack.directory.path
            )
            func received() -> [String] {
                process.output().split(separator: "\n").filter { $0.hasPrefix("received ") }
                    .map { String($0.dropFirst("received ".count)) }
            }
            _ = try await process.waitForLine("listening")
            try await stack.notify("ada", "before")
            try await eventually("it comes") { received() == ["before"] }
            // Unconfirmed notifications would be sent again.
            try await eventually("it is noted") {
                try await stack.bookmarks(user: "ada").contains { $0.hasSuffix(" 1 0") }
            }
            gateway.process.send(SIGKILL)
            try await gateway.process.waitForExit()
            try await stack.notify("ada", "missed")
            try await eventually("it is stored") { try await stack.statuses(user: "ada").count == 2 }
            let second = try await stack.startGateway(
                name: "second", environment: ["GATEWAY_PORT": "\(gateway.port)"])
            // It retries after five seconds, then at growing intervals. Only the new connection can
            // print this count.
            _ = try await process.waitForLine("unread 2")
            try await stack.notify("ada", "next")
            try await eventually("it goes on") { received().last == "next" }
            #expect(received() == ["before", "missed", "next"])
            let inbox = try await second.call(.get, "/v1/notifications", token: Stack.token(user: "ada"))
            #expect(inbox.body["notifications"]?.texts("title") == ["next", "missed", "before"])
        }
    }
}
