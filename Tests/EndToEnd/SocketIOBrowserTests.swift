// Carillon · SocketIOBrowserTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Glibc
import Support
import Testing

private enum ScriptClient {
    /// The client's code, as the Python package nicegui bundles it.
    static let source = PythonClient.file("nicegui", "static/socket.io.min.js").flatMap {
        try? String(contentsOfFile: $0, encoding: .utf8)
    }
}

/// Socket.IO's own JavaScript client, unmodified, in a real browser.
@Suite(.serialized, .timeLimit(.minutes(10)), .enabled(if: Browser.isInstalled && ScriptClient.source != nil))
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
            try await Self.connect(browser, gateway, token: try await Stack.token(user: "ada"), transports: names)
            try await browser.wait(for: "the sync is here", "all('sync').length === 1")
            try await browser.wait(for: "the transport is the last", "client.io.engine.transport.name === '\(last)'")
            let first = try await browser.run("return all('sync')[0].notifications.map((n) => n.title)")
            #expect(first.strings == ["before"])
            for number in 1...30 { try await stack.notify("ada", "n\(number)") }
            try await browser.wait(for: "all have come", "all('notification').length === 30")
            let versions = try await browser.run("return all('notification').map((n) => n.version)").array
            #expect(versions?.compactMap(\.integer) == Array(2...31))
            try await eventually("and are proven") {
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
        try await Stack.withBrowser { stack, gateway, browser in
            try await Self.connect(
                browser, gateway, token: try await Stack.token(user: "ada"), transports: ["polling", "websocket"])
            try await browser.wait(for: "the sync is here", "all('sync').length === 1")
            gateway.process.send(SIGKILL)
            try await gateway.process.waitForExit()
            try await browser.wait(for: "it knows", "!client.connected")
            try await stack.notify("ada", "missed")
            try await eventually("it is stored") { try await stack.statuses(user: "ada").count == 1 }
            _ = try await stack.startGateway(name: "second", environment: ["GATEWAY_PORT": "\(gateway.port)"])
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
            try await connect(fresh: try await Stack.token(user: "ada"))
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
