// Carillon · SocketIOClientTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Glibc
import Support
import Testing

/// python-socketio, unmodified.
@Suite(.timeLimit(.minutes(10)), .enabled(if: PythonClient.has("socketio")))
struct SocketIOClientTests {
    private static func client(
        _ stack: Stack,
        _ gateway: Gateway,
        user: String = "ada",
        transports: String = "websocket",
        _ more: [String] = []
    ) async throws -> PythonClient {
        let token = Stack.token(user: user)
        return try await PythonClient.start(
            "socketio_client.py",
            ["http://127.0.0.1:\(gateway.port)", "--token", token, "--transports", transports] + more,
            in: stack.directory.path
        )
    }

    @Test(
        "a client gets a sync, notifications and answers on every transport",
        arguments: ["websocket", "polling", "both"])
    func transports(_ name: String) async throws {
        let transports = name == "both" ? "polling,websocket" : name
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            try await stack.notify("ada", "n0")
            try await stack.notify("ada", "n1")
            try await eventually("they are stored") { try await stack.statuses(user: "ada").count == 2 }
            let client = try await Self.client(
                stack, gateway, transports: transports,
                [
                    "--emit", #"subscribe={"user_id":"ada"}"#, "--emit", "get_unread_count",
                    "--emit", #"mark_read={"notification_id":"$0"}"#, "--emit", #"bulk_read={"notification_ids":[7]}"#,
                    "--emit", #"nonsense={}"#,
                ]
            )
            _ = try await client.wait(for: "ready \(name == "polling" ? "polling" : "websocket")")
            let sync = try #require(client.events("sync").first?["notifications"]?.array)
            #expect(sync.compactMap { $0["title"]?.string } == ["n1", "n0"])
            #expect(try await client.answer("subscribe")["status"]?.string == "subscribed")
            #expect(try await client.answer("get_unread_count")["count"]?.integer == 2)
            #expect(try await client.answer("mark_read")["status"]?.string == "ok")
            #expect(try await client.answer("bulk_read")["error"]?.string?.contains("notification_ids") == true)
            #expect(try await client.answer("nonsense")["status"]?.string == "error")
            try await eventually("the read arrives") { client.events("notification_read").count == 1 }
            #expect(client.events("notification_read").first?["notification_id"] == sync.first?["id"])
            for number in 2...4 { try await stack.notify("ada", "n\(number)") }
            try await eventually("all come") { client.titles.sorted() == ["n2", "n3", "n4"] }
            try await eventually("they are confirmed") {
                let statuses = try await stack.statuses(user: "ada")
                return (2...4).allSatisfy { statuses["n\($0)"] == "delivered" }
            }
            #expect(client.events("sync").count == 1)
        }
    }

    @Test("a polling client gets a hundred notifications, at most 16 packets an answer")
    func hundred() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let client = try await Self.client(stack, gateway, transports: "polling")
            _ = try await client.wait(for: "ready")
            for number in 0..<100 { try await stack.notify("ada", "n\(number)") }
            try await eventually("all come") { client.titles.count >= 100 }
            // The library handles each in its own thread, so they are noted in any order.
            let versions = client.events("notification").compactMap { $0["version"]?.integer }
            #expect(versions.sorted() == Array(1...100))
            #expect(!client.lines.contains { $0.hasPrefix("disconnected") })
            // A first sync has room for a hundred, and says if there are more.
            for hasMore in [false, true] {
                if hasMore {
                    try await stack.notify("ada", "n100")
                    try await eventually("it is stored") { try await stack.statuses(user: "ada").count == 101 }
                }
                let late = try await Self.client(stack, gateway)
                let sync = try await eventualValue("it is synced") { late.events("sync").first }
                #expect(sync["notifications"]?.array?.count == 100)
                #expect((sync["has_more"]?.bool ?? false) == hasMore)
            }
        }
    }

    @Test("reads on one client reach the user's other clients")
    func several() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            for number in 0...3 { try await stack.notify("ada", "n\(number)") }
            try await eventually("they are stored") { try await stack.statuses(user: "ada").count == 4 }
            let phone = try await Self.client(stack, gateway, transports: "polling")
            let desk = try await Self.client(stack, gateway)
            _ = try await phone.wait(for: "ready")
            _ = try await desk.wait(for: "ready")
            let reader = try await Self.client(
                stack, gateway, transports: "polling,websocket",
                [
                    "--emit", #"mark_read={"notification_id":"$0"}"#,
                    "--emit", #"bulk_read={"notification_ids":["$1","$2"]}"#,
                    "--emit", #"bulk_read={"notification_ids":["$3"]}"#,
                ]
            )
            _ = try await reader.wait(for: "ready")
            for other in [phone, desk] {
                try await eventually("the others hear") { other.events("notifications_bulk_read").count == 2 }
                #expect(other.events("notification_read").count == 1)
                let counts = other.events("notifications_bulk_read").map { $0["notification_ids"]?.strings?.count }
                // The library handles each in its own thread, so they are noted in any order.
                #expect(counts.compactMap(\.self).sorted() == [1, 2])
            }
        }
    }

    @Test("a bad token is refused with a reason, and a token in the handshake's header works")
    func tokens() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let url = "http://127.0.0.1:\(gateway.port)"
            let bad = try await PythonClient.start(
                "socketio_client.py", [url, "--token", "x.y.z"], in: stack.directory.path)
            let refused = try await bad.wait(for: "refused ")
            #expect(refused.contains("Not authorized"))
            #expect(refused.contains("reason"))
            let none = try await PythonClient.start("socketio_client.py", [url], in: stack.directory.path)
            #expect(try await none.wait(for: "refused ").contains("auth.token is missing"))
            let header = try await PythonClient.start(
                "socketio_client.py",
                [url, "--handshake-token", Stack.token(user: "ada"), "--transports", "polling"],
                in: stack.directory.path
            )
            _ = try await header.wait(for: "ready polling")
            let other = try await Self.client(
                stack, gateway, ["--emit", #"subscribe={"user_id":"eve"}"#])
            #expect(try await other.answer("subscribe")["error"]?.string?.contains("user_id") == true)
        }
    }

    @Test(
        "after expiry a client rejoins with a fresh token and is refused with the old one",
        arguments: ["websocket", "polling", "polling,websocket"])
    func expiry(_ transports: String) async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let fresh = Stack.token(user: "ada")
            /// Starts a client with a token that expires soon and returns it once it has joined.
            func start(_ more: [String]) async throws -> PythonClient {
                try await Stack.withExpiringToken(user: "ada") { token in
                    let client = try await PythonClient.start(
                        "socketio_client.py",
                        ["http://127.0.0.1:\(gateway.port)", "--token", token, "--transports", transports] + more,
                        in: stack.directory.path)
                    try await eventually("it joins or is refused") {
                        !client.events("sync").isEmpty || client.lines.contains { $0.hasPrefix("refused") }
                    }
                    return client.events("sync").isEmpty ? nil : client
                }
            }
            let stale = try await start([])
            let client = try await start(["--fresh-token", fresh])
            try await eventually("it joins again") { client.events("sync").count == 2 }
            #expect(client.events("error").isEmpty)
            let refused = try await stale.wait(for: "refused ")
            #expect(refused.contains("Not authorized"))
            try await stack.notify("ada", "next")
            try await eventually("it goes on") { client.titles == ["next"] }
            #expect(stale.titles.isEmpty)
        }
    }

    @Test(
        "after its gateway is killed a client reconnects and gets a sync", arguments: ["websocket", "polling"])
    func killed(_ transports: String) async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth(environment: ["GATEWAY_PORT": "\(try FreePort.next())"])
            let client = try await Self.client(stack, gateway, transports: transports)
            _ = try await client.wait(for: "ready")
            gateway.process.send(SIGKILL)
            try await gateway.process.waitForExit()
            try await stack.notify("ada", "missed")
            try await eventually("it is stored") { try await stack.statuses(user: "ada").count == 1 }
            _ = try await stack.startGateway(name: "second", environment: ["GATEWAY_PORT": "\(gateway.port)"])
            try await eventually("it comes back") { client.events("sync").count == 2 }
            let sync = client.events("sync").last?["notifications"]?.array ?? []
            #expect(sync.compactMap { $0["title"]?.string } == ["missed"])
            try await stack.notify("ada", "next")
            try await eventually("it goes on") { client.titles == ["next"] }
        }
    }

    @Test("a stopping gateway closes its clients, and they reconnect to the next one")
    func drain() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: ["GATEWAY_PORT": "\(try FreePort.next())"])
            let clients = [
                try await Self.client(stack, gateway), try await Self.client(stack, gateway, transports: "polling"),
            ]
            for client in clients { _ = try await client.wait(for: "ready") }
            let raw = try await TestSocket.open(
                port: gateway.port, token: nil, query: "?EIO=4&transport=websocket", path: "/socket.io/")
            try await eventually("the socket is up") { raw.status == 101 }
            try await raw.send(json: #"40{"token":"\#(Stack.token(user: "raw"))"}"#)
            try await eventually("it has joined") { raw.texts.contains { $0.hasPrefix("40") } }
            #expect(try await gateway.process.stop() == .code(0))
            for client in clients { _ = try await client.wait(for: "disconnected") }
            // A disconnect packet for the namespace would keep the client away for good.
            try await eventually("the socket is closed") { raw.isClosed }
            #expect(!raw.texts.contains { $0.hasPrefix("41") }, "\(raw.texts)")
            _ = try await stack.startGateway(name: "second", environment: ["GATEWAY_PORT": "\(gateway.port)"])
            for client in clients {
                try await eventually("it comes back") { client.events("sync").count == 2 }
            }
        }
    }
}

private enum ScriptClient {
    /// The client's code, as the Python package nicegui bundles it.
    static let source = PythonClient.file("nicegui", "static/socket.io.min.js").flatMap {
        try? String(contentsOfFile: $0, encoding: .utf8)
    }
}

/// Socket.IO's own JavaScript client, unmodified, in a real browser.
@Suite(.timeLimit(.minutes(10)), .enabled(if: Browser.isInstalled && ScriptClient.source != nil))
struct SocketIOBrowserTests {
    /// Connects from the gateway's own page and collects received events in `heard`.
    private static func connect(
        _ browser: Browser,
        _ gateway: Gateway,
        token: String,
        fresh: String? = nil,
        transports: [String]
    ) async throws {
        try await browser.open("http://127.0.0.1:\(gateway.port)/inbox")
        try await browser.run(try #require(ScriptClient.source))
        try await browser.run(
            """
            const [tokens, transports] = arguments;
            window.heard = [];
            window.client = io(location.origin, {
                auth: (give) => give({ token: tokens.length > 1 ? tokens.shift() : tokens[0] }), transports, reconnectionDelay: 50, reconnectionDelayMax: 200,
            });
            client.onAny((name, value) => heard.push([name, value]));
            client.on('connect_error', (error) => heard.push(['refused', { message: error.message, ...error.data }]));
            client.on('disconnect', (reason) => heard.push(['disconnected', reason]));
            window.all = (name) => heard.filter((event) => event[0] === name).map((event) => event[1]);
            """,
            .array(([token] + (fresh.map { [$0] } ?? [])).map { .string($0) }), .array(transports.map { .string($0) }))
    }

    @Test(
        "the client connects, upgrades, gets notifications in order and answers to its calls",
        arguments: [(["polling", "websocket"], "websocket"), (["websocket"], "websocket"), (["polling"], "polling")])
    func transports(names: [String], last: String) async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            try await stack.notify("ada", "before")
            try await eventually("it is stored") { try await stack.statuses(user: "ada").count == 1 }
            try await Self.connect(browser, gateway, token: Stack.token(user: "ada"), transports: names)
            try await browser.wait(for: "the sync is here", "all('sync').length === 1")
            try await browser.wait(for: "the last transport is in use", "client.io.engine.transport.name === '\(last)'")
            let first = try await browser.run("return all('sync')[0].notifications.map((n) => n.title)")
            #expect(first.strings == ["before"])
            for number in 1...30 { try await stack.notify("ada", "n\(number)") }
            try await browser.wait(for: "all have come", "all('notification').length === 30")
            let versions = try await browser.run("return all('notification').map((n) => n.version)").array
            #expect(versions?.compactMap(\.integer) == Array(2...31))
            try await eventually("they are confirmed") {
                let statuses = try await stack.statuses(user: "ada")
                return (1...30).allSatisfy { statuses["n\($0)"] == "delivered" }
            }
            try await browser.run(
                """
                client.timeout(60000).emitWithAck('mark_read', { notification_id: all('sync')[0].notifications[0].id })
                    .then(() => client.timeout(60000).emitWithAck('get_unread_count'))
                    .then((answer) => { window.unread = answer.count; });
                """)
            try await browser.wait(for: "both are answered", "window.unread === 30")
            #expect(try await browser.run("return all('disconnected').length").integer == 0)
        }
    }

    @Test("after its gateway is killed the client reconnects and gets what it missed")
    func killed() async throws {
        let port = "\(try FreePort.next())"
        try await Stack.withBrowser(environment: ["GATEWAY_PORT": port]) { stack, gateway, browser in
            try await Self.connect(
                browser, gateway, token: Stack.token(user: "ada"), transports: ["polling", "websocket"])
            try await browser.wait(for: "the sync is here", "all('sync').length === 1")
            gateway.process.send(SIGKILL)
            try await gateway.process.waitForExit()
            try await browser.wait(for: "it has noticed", "!client.connected")
            try await stack.notify("ada", "missed")
            try await eventually("it is stored") { try await stack.statuses(user: "ada").count == 1 }
            _ = try await stack.startGateway(name: "second", environment: ["GATEWAY_PORT": port])
            try await browser.wait(for: "it is back", "all('sync').length === 2")
            let second = try await browser.run("return all('sync')[1].notifications.map((n) => n.title)")
            #expect(second.strings == ["missed"])
            try await stack.notify("ada", "next")
            try await browser.wait(for: "it goes on", "all('notification').some((n) => n.title === 'next')")
        }
    }

    @Test(
        "after expiry the client rejoins with a fresh token and is refused with the old one",
        arguments: [["polling", "websocket"], ["websocket"], ["polling"]])
    func expiry(_ transports: [String]) async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            /// Connects with a token that expires soon.
            func connect(fresh: String?) async throws {
                _ = try await Stack.withExpiringToken(user: "ada") { token in
                    try await Self.connect(browser, gateway, token: token, fresh: fresh, transports: transports)
                    try await browser.wait(for: "it joins or is refused", "heard.length > 0")
                    return try await browser.run("return all('sync').length").integer == 1 ? true : nil
                }
            }
            try await connect(fresh: Stack.token(user: "ada"))
            try await browser.wait(for: "it joins again", "all('sync').length === 2")
            #expect(try await browser.run("return all('refused').length + all('error').length").integer == 0)
            try await stack.notify("ada", "next")
            try await browser.wait(for: "it goes on", "all('notification').some((n) => n.title === 'next')")

            try await connect(fresh: nil)
            try await browser.wait(for: "it is refused", "all('refused').length === 1")
            #expect(try await browser.run("return all('refused')[0].message").string == "Not authorized")
            #expect(try await browser.run("return client.active").bool == false)
        }
    }

    @Test("a bad token is refused with a reason, and the client does not retry")
    func refused() async throws {
        try await Stack.withBrowser { _, gateway, browser in
            try await Self.connect(browser, gateway, token: "x.y.z", transports: ["websocket"])
            try await browser.wait(for: "it is refused", "all('refused').length === 1")
            #expect(try await browser.run("return all('refused')[0].message").string == "Not authorized")
            #expect(try await browser.run("return all('refused')[0].reason").string?.isEmpty == false)
            #expect(try await browser.run("return client.active").bool == false)
        }
    }
}
