// Carillon · InboxChangeTests.swift
// SPDX-License-Identifier: Apache-2.0

import CarillonClient
import Foundation
import Testing

@Suite("Changes of an inbox", .timeLimit(.minutes(5)))
@MainActor
struct InboxChangeTests {
    private let time = FakeTime()

    @Test("a read shows at once, and stays until the socket confirms it")
    func read() async throws {
        let gateway = FakeGateway(
            .open([sync(2, notification(1), notification(2), unread: 2)]), answers: [Self.change(version: 3, unread: 1)]
        )
        let inbox = try await self.open(gateway)
        gateway.hold()
        async let call: Void = inbox.markRead(["001"])
        try await eventually { gateway.requests.count == 1 }
        #expect(Self.titles(inbox) == ["2", "1r"] && inbox.unread == 1)
        gateway.release()
        try await call
        #expect(Self.titles(inbox) == ["2", "1r"] && inbox.unread == 1)
        gateway.sockets[0].push(CarillonClientTests.change("read", 3, unread: 1, #""ids":["001"]"#))
        gateway.sockets[0].push(arrival(4, unread: 2))
        try await eventually { inbox.version == 4 }
        #expect(Self.titles(inbox) == ["4", "2", "1r"] && inbox.unread == 2)
        let request = gateway.requests[0]
        #expect(request.method == "POST" && request.url.path == "/v1/notifications/read")
        #expect(request.body == Data(#"{"ids":["001"]}"#.utf8) && request.headers["Authorization"] == "Bearer t")
    }

    @Test(
        "a change that fails is undone, and keeps what came meanwhile",
        arguments: ["read", "read all", "unread", "archive", "delete"])
    func undone(_ kind: String) async throws {
        let gateway = FakeGateway(
            .open([sync(2, notification(1, isRead: true), notification(2), unread: 1)]),
            answers: [answer(#"{"detail":"not now"}"#, status: 503)])
        let inbox = try await self.open(gateway)
        gateway.hold()
        let call = Task {
            switch kind {
            case "read": try await inbox.markRead(["002"])
            case "read all": try await inbox.markAllRead()
            case "unread": try await inbox.markUnread("001")
            case "archive": try await inbox.archive("002")
            default: try await inbox.delete("002")
            }
        }
        try await eventually { gateway.requests.count == 1 }
        let shown = ["unread": ["2", "1"], "archive": ["1r"], "delete": ["1r"]][kind] ?? ["2r", "1r"]
        #expect(Self.titles(inbox) == shown && inbox.unread == (kind == "unread" ? 2 : 0))
        gateway.sockets[0].push(arrival(3, unread: 2))
        try await eventually { inbox.version == 3 }
        #expect(Self.titles(inbox) == ["3"] + shown)
        gateway.release()
        let result = await call.result
        guard case .failure(GatewayError.refused(let problem)) = result else {
            Issue.record("\(result)")
            return
        }
        #expect(problem.status == 503 && problem.detail == "not now")
        #expect(problem.retryAfter == .seconds(5) && problem.requestID == "r1")
        #expect(Self.titles(inbox) == ["3", "2", "1r"] && inbox.unread == 2)
    }

    @Test(
        "a removal whose first answer was lost succeeds when it is repeated, and keeps the notification away",
        arguments: ["archive", "delete"])
    func repeatedRemoval(_ kind: String) async throws {
        let gateway = FakeGateway(
            .open([sync(2, notification(1), notification(2), unread: 2)]),
            answers: [GatewayAnswer(status: 502), answer("{}", status: 404)])
        let inbox = try await self.open(gateway)
        func remove() async throws(GatewayError) {
            if kind == "archive" { try await inbox.archive("002") } else { try await inbox.delete("002") }
        }
        await #expect(throws: GatewayError.self) { try await remove() }
        #expect(Self.titles(inbox) == ["2", "1"] && inbox.unread == 2)
        try await remove()
        #expect(Self.titles(inbox) == ["1"] && inbox.unread == 1)
        gateway.sockets[0].push(CarillonClientTests.change("deleted", 3, unread: 1, #""ids":["002"]"#))
        try await eventually { inbox.version == 3 }
        #expect(Self.titles(inbox) == ["1"] && inbox.unread == 1)
    }

    @Test("over 1,000 ids go in several calls")
    func manyIDs() async throws {
        let gateway = FakeGateway(
            .open([sync(2)]),
            answers: [Self.change(version: 2, unread: 0), Self.change(version: 2, unread: 0)])
        let inbox = try await self.open(gateway)
        try await inbox.markRead((0...1_000).map { "\($0)" })
        #expect(gateway.requests.count == 2)
        try await inbox.markRead([])
        #expect(gateway.requests.count == 2)
    }

    @Test("changes beyond the bound are refused until the socket confirms some")
    func bound() async throws {
        let gateway = FakeGateway(
            .open([sync(2, notification(1), notification(2), unread: 2)]), answers: [Self.change(version: 3, unread: 1)]
        )
        var limits = Inbox.Limits()
        limits.changes = 1
        let inbox = try await self.open(gateway, limits: limits)
        try await inbox.delete("001")
        await #expect(throws: GatewayError.tooManyChanges) { try await inbox.delete("002") }
        #expect(Self.titles(inbox) == ["2"])
        gateway.sockets[0].push(CarillonClientTests.change("deleted", 3, unread: 1, #""ids":["001"]"#))
        try await eventually { inbox.version == 3 }
        await #expect(throws: GatewayError.self) { try await inbox.delete("002") }
        #expect(gateway.requests.count == 2)
    }

    @Test("older pages are loaded, one after the other, and again after a reset")
    func pages() async throws {
        let gateway = FakeGateway(
            .open([sync(9, notification(9), unread: 1)]),
            answers: [
                Self.page(9, cursor: "\"008\"", notification(9), notification(8, isRead: true)),
                Self.page(9, cursor: "null", notification(7, isRead: true)),
                Self.page(900, cursor: "null", notification(900), notification(7, isRead: true)),
            ])
        let inbox = try await self.open(gateway)
        try await inbox.loadOlder()
        #expect(Self.titles(inbox) == ["9", "8r"] && inbox.hasOlder)
        try await inbox.loadOlder()
        #expect(Self.titles(inbox) == ["9", "8r", "7r"] && !inbox.hasOlder)
        try await inbox.loadOlder()
        #expect(gateway.requests.map { $0.url.query ?? "" } == ["limit=50", "limit=50&cursor=008"])
        gateway.sockets[0].push(sync(900, notification(900), unread: 1, isReset: true))
        try await eventually { gateway.requests.count == 3 && Self.titles(inbox) == ["900", "7r"] }
        #expect(!inbox.hasOlder)
    }

    @Test("a full list loads no older page")
    func fullList() async throws {
        let gateway = FakeGateway(.open([sync(2, notification(1), notification(2), unread: 2)]))
        var limits = Inbox.Limits()
        limits.notifications = 2
        let inbox = try await self.open(gateway, limits: limits)
        try await inbox.loadOlder()
        #expect(!inbox.hasOlder && gateway.requests.isEmpty)
    }

    @Test("rows that left a full list are loaded again once it has room")
    func droppedRows() async throws {
        let gateway = FakeGateway(
            .open([sync(9, notification(9), unread: 1)]),
            answers: [
                Self.page(9, cursor: "\"007\"", notification(9), notification(8, isRead: true), notification(7)),
                Self.page(11, cursor: "null", notification(7)),
            ])
        var limits = Inbox.Limits()
        limits.notifications = 3
        let inbox = try await self.open(gateway, limits: limits)
        try await inbox.loadOlder()
        gateway.sockets[0].push(arrival(10, unread: 3))
        gateway.sockets[0].push(CarillonClientTests.change("deleted", 11, unread: 2, #""ids":["010"]"#))
        try await eventually { inbox.version == 11 }
        #expect(Self.titles(inbox) == ["9", "8r"] && inbox.hasOlder)
        try await inbox.loadOlder()
        #expect(Self.titles(inbox) == ["9", "8r", "7"])
        #expect(gateway.requests.map { $0.url.query ?? "" } == ["limit=50", "limit=50&cursor=008"])
    }

    @Test("after a failure the next page waits as the gateway says, and longer after each failure")
    func failedPages() async throws {
        let busy = answer("{}", status: 503)
        let fault = GatewayAnswer(status: 500)
        let gateway = FakeGateway(
            .open([sync(9, notification(9), unread: 1)]),
            answers: [busy, fault, fault, Self.page(9, cursor: "\"008\"", notification(8)), fault])
        let inbox = try await self.open(gateway)
        await #expect(throws: GatewayError.self) { try await inbox.loadOlder() }
        let cancelled = Task { try await inbox.loadOlder() }
        cancelled.cancel()
        try await self.time.pass(.seconds(5) + .seconds(0.005))
        await #expect(throws: GatewayError.cancelled) { try await cancelled.value }
        #expect(gateway.requests.count == 1)
        for _ in 1...2 { await #expect(throws: GatewayError.self) { try await inbox.loadOlder() } }
        try await inbox.loadOlder()
        #expect(Self.titles(inbox) == ["9", "8"] && inbox.hasOlder)
        await #expect(throws: GatewayError.self) { try await inbox.loadOlder() }
        try await eventually { self.time.waits.count == 4 }
        #expect(
            self.time.waits == [.seconds(5) + .seconds(0.005), .seconds(0.01), .seconds(0.02), .seconds(0.005)])
    }

    // MARK: Helpers

    private func open(_ gateway: FakeGateway, limits: Inbox.Limits = Inbox.Limits()) async throws -> Inbox {
        let url = try #require(URL(string: "https://notify.example.com"))
        let client = try Gateway(url, http: gateway, sockets: gateway) { _ in "t" }
        let inbox = Inbox(client, limits: limits, timing: self.time.timing)
        inbox.connect()
        try await inbox.connected()
        return inbox
    }

    private static func titles(_ inbox: Inbox) -> [String] {
        inbox.notifications.map { $0.title + ($0.isRead ? "r" : "") }
    }

    private static func change(version: Int, unread: Int) -> GatewayAnswer {
        answer(#"{"changed":1,"unread":\#(unread),"version":\#(version)}"#)
    }

    private static func page(_ version: Int, cursor: String, _ notifications: String...) -> GatewayAnswer {
        answer(
            """
            {"notifications":[\(notifications.joined(separator: ","))],"next_cursor":\(cursor),"unread":1,"total":3,\
            "version":\(version)}
            """)
    }
}
