// Carillon · InboxTests.swift
// SPDX-License-Identifier: Apache-2.0

import CarillonClient
import Foundation
import Synchronization
import Testing

@Suite("An inbox", .timeLimit(.minutes(5)))
@MainActor
struct InboxTests {
    private let time = FakeTime()
    private static let welcome = #"{"type":"welcome","connection":"c","ping_interval":25000,"version":0}"#

    @Test("opens with the inbox and follows it")
    func follows() async throws {
        let event = #"{"type":"event","event":{"name":"rates","args":[1]}}"#
        let gateway = FakeGateway(
            .open([
                Self.welcome, sync(1, notification(1), unread: 1), arrival(2, unread: 2),
                change("read", 3, unread: 1, #""ids":["001"]"#), #"{"type":"of a newer gateway"}"#, event,
            ]))
        let inbox = try self.inbox(gateway)
        var (arrivals, events) = (inbox.arrivals().makeAsyncIterator(), inbox.events().makeAsyncIterator())
        inbox.connect()
        try await inbox.connected()
        #expect(try await arrivals.next()?.title == "2")
        let received = try await events.next()
        #expect(received?.name == "rates" && received?.arguments == [.integer(1)])
        #expect(inbox.unread == 1 && inbox.version == 3 && inbox.isConnected && inbox.trouble == nil)
        #expect(inbox.notifications.filter(\.isRead).map(\.title) == ["1"])
        #expect(gateway.paths == ["/v1/socket"] && gateway.tokens == ["t"])
        inbox.close()
        #expect(try await arrivals.next() == nil)
        try await eventually { gateway.sockets.allSatisfy(\.isClosed) }
    }

    @Test("resumes and loses nothing")
    func resumes() async throws {
        let gateway = FakeGateway(
            .close(1011, [sync(1, notification(1)), arrival(2)]),
            .close(4408, [sync(4, notification(3), notification(4))]), .refuse(503),
            .open([sync(5, notification(5))]))
        let inbox = try self.inbox(gateway)
        #expect(try await self.take(inbox, 4) == ["2", "3", "4", "5"])
        #expect(
            gateway.paths == [
                "/v1/socket", "/v1/socket?resume=2", "/v1/socket?resume=4", "/v1/socket?resume=4",
            ])
    }

    @Test("resumes after it was disconnected, and streams stay open")
    func reconnects() async throws {
        let gateway = FakeGateway(.open([sync(1)]), .open([sync(2, notification(2))]))
        let inbox = try self.inbox(gateway)
        var arrivals = inbox.arrivals().makeAsyncIterator()
        inbox.connect()
        try await inbox.connected()
        inbox.disconnect()
        #expect(!inbox.isConnected)
        try await eventually { gateway.sockets[0].isClosed }
        inbox.connect()
        #expect(try await arrivals.next()?.title == "2")
        #expect(gateway.paths.last == "/v1/socket?resume=1")
    }

    @Test("waits as long as a draining gateway says, and longer after each failure")
    func backoff() async throws {
        let goodbye = #"{"type":"goodbye","code":1012,"reason":"restart","reconnect_after":7000}"#
        let gateway = FakeGateway(
            .close(1012, [sync(0), goodbye]), .close(1001, [sync(0)]), .refuse(500),
            .open([sync(1, notification(1))]))
        let inbox = try self.inbox(gateway)
        var arrivals = inbox.arrivals().makeAsyncIterator()
        inbox.connect()
        try await self.time.pass(.seconds(7) + .seconds(0.005))
        _ = try await arrivals.next()
        #expect(self.time.waits == [.seconds(7) + .seconds(0.005), .seconds(0.005), .seconds(0.01)])
    }

    @Test("replaces a refused token, and calls a provider that failed again")
    func refusedToken() async throws {
        let calls = Mutex<[Bool]>([])
        let gateway = FakeGateway(.refuse(401), .close(4401, [sync(0)]), .open([sync(1, notification(1))]))
        let inbox = try self.inbox(gateway) { isRefused in
            let count = calls.withLock { calls in
                calls.append(isRefused)
                return calls.count
            }
            if count == 3 { throw URLError(.timedOut) }
            return "t\(count)"
        }
        _ = try await self.take(inbox, 1)
        #expect(gateway.tokens == ["t1", "t2", "t4"])
        #expect(calls.withLock { $0 } == [false, true, true, true])
    }

    @Test("ends without a fresh token")
    func signedOut() async throws {
        let inbox = try self.inbox(FakeGateway(.refuse(401))) { $0 ? nil : "t" }
        let arrivals = inbox.arrivals()
        inbox.connect()
        await #expect(throws: GatewayError.signedOut) { for try await _ in arrivals {} }
        #expect(inbox.failure == .signedOut && !inbox.isConnected)
        await #expect(throws: GatewayError.signedOut) { try await inbox.connected() }
    }

    @Test(
        "renews a token a minute before its end or at half of its time, and seldom if the clock is ahead",
        arguments: [(200, 0, [140, 140]), (60, 0, [30, 30]), (200, 7_200, [1, 30])])
    func renewal(lifetime: Int, clockAhead: Int, pauses: [Int]) async throws {
        // Each token is issued an hour after the one before.
        let issues = (0...pauses.count).map { 1_800_000_000 + 3_600 * $0 }
        let tokens = issues.map { Self.token(issue: $0, expiry: $0 + lifetime) }
        let renewals = Mutex(0)
        let gateway = FakeGateway(.open([sync(0)]))
        var timing = self.time.timing
        timing.now = {
            let issue = issues[renewals.withLock { $0 }]
            return Date(timeIntervalSince1970: TimeInterval(issue + clockAhead))
        }
        let inbox = try self.inbox(gateway, timing: timing) { isRefused in
            let index = renewals.withLock { renewals in
                if isRefused { renewals += 1 }
                return renewals
            }
            return tokens[index]
        }
        inbox.connect()
        for (index, pause) in pauses.enumerated() {
            try await self.time.pass(.seconds(pause))
            try await eventually { gateway.sockets.first?.sent.count == index + 1 }
        }
        #expect(gateway.sockets[0].sent == tokens.dropFirst().map { #"{"token":"\#($0)","type":"auth"}"# })
        inbox.close()
    }

    @Test("notices the end of a socket while the token provider hangs, and reconnects with its token")
    func hangingProvider() async throws {
        let token = Self.token(issue: 1_800_000_000, expiry: 1_800_000_001)
        let gateway = FakeGateway(.open([sync(0)]), .open([sync(1)]))
        var timing = self.time.timing
        timing.now = { Date(timeIntervalSince1970: 1_800_000_000) }
        let isAsked = Mutex(false)
        let inbox = try self.inbox(gateway, timing: timing) { [timing] isRefused in
            guard isRefused else { return token }
            isAsked.withLock { $0 = true }
            // The fake time ends this below.
            try await timing.sleep(.seconds(3_600))
            return token
        }
        inbox.connect()
        try await inbox.connected()
        try await self.time.pass(.seconds(1))
        try await eventually { isAsked.withLock { $0 } }
        gateway.sockets[0].end(.closed(code: 1006, reason: ""))
        try await eventually { !inbox.isConnected && inbox.trouble != nil }
        try await self.time.pass(.seconds(3_600))
        try await eventually { inbox.isConnected && inbox.version == 1 }
        inbox.close()
    }

    @Test(
        "keeps a socket whose token ends in a time that no clock reaches",
        arguments: [#""exp":1e300"#, #""iat":2e19,"exp":1800000000"#])
    func endlessToken(claims: String) async throws {
        let token = Self.token(claims: claims)
        let gateway = FakeGateway(.open([sync(0)]))
        let inbox = try self.inbox(gateway) { _ in token }
        inbox.connect()
        try await self.time.pass(.seconds(1_000_000_000))
        try await inbox.connected()
        inbox.close()
    }

    @Test("ends when it is displaced, and connects again when it is told to")
    func displaced() async throws {
        let gateway = FakeGateway(.close(4409, [sync(0), arrival(1)]), .open([sync(1)]))
        let inbox = try self.inbox(gateway)
        var arrivals = inbox.arrivals().makeAsyncIterator()
        inbox.connect()
        #expect(try await arrivals.next()?.title == "1")
        do {
            _ = try await arrivals.next()
            Issue.record("the stream did not throw")
        } catch {
            #expect(error as? GatewayError == .displaced)
        }
        #expect(inbox.failure == .displaced && inbox.trouble != nil)
        inbox.connect()
        try await inbox.connected()
        #expect(inbox.failure == nil && gateway.paths.last == "/v1/socket?resume=1")
        inbox.close()
    }

    @Test("closes a socket that answers no ping")
    func lostConnection() async throws {
        let gateway = FakeGateway(.open([sync(0)]), .open([sync(1, notification(1))]))
        let inbox = try self.inbox(gateway)
        var arrivals = inbox.arrivals().makeAsyncIterator()
        inbox.connect()
        try await inbox.connected()
        try await self.time.pass(.seconds(25))
        try await eventually { gateway.sockets[0].pings == 1 }
        gateway.sockets[0].stopAnsweringPings()
        try await self.time.pass(.seconds(25))
        try await self.time.pass(.seconds(20))
        #expect(try await arrivals.next()?.title == "1")
        #expect(gateway.sockets[0].isClosed && gateway.paths.count == 2)
        inbox.close()
    }

    @Test("reports its focus on every connection")
    func focus() async throws {
        let gateway = FakeGateway(.open([sync(0)]), .open([sync(0)]))
        let inbox = try self.inbox(gateway)
        inbox.connect()
        try await inbox.connected()
        await inbox.focus(false)
        gateway.sockets[0].end(.closed(code: 1011, reason: ""))
        try await eventually { gateway.sockets.count == 2 && !gateway.sockets[1].sent.isEmpty }
        let message = #"{"active":false,"type":"focus"}"#
        #expect(gateway.sockets.map(\.sent) == [[message], [message]])
        inbox.close()
    }

    @Test("drops the oldest arrivals of a slow reader and counts them")
    func slowReader() async throws {
        let gateway = FakeGateway(.open([sync(0)] + (1...6).map { arrival($0) }))
        var limits = Inbox.Limits()
        limits.waiting = 4
        let inbox = try self.inbox(gateway, limits: limits)
        var arrivals = inbox.arrivals().makeAsyncIterator()
        inbox.connect()
        try await eventually { inbox.version == 6 }
        var titles: [String] = []
        for _ in 0..<4 { titles.append(try await arrivals.next()?.title ?? "") }
        #expect(titles == ["3", "4", "5", "6"] && inbox.dropped == 2 && inbox.notifications.count == 6)
        inbox.close()
    }

    @Test("a frame that is not of the protocol ends the connection, and it resumes")
    func badFrame() async throws {
        let gateway = FakeGateway(.open([sync(1), "{}"]), .open([sync(2)]))
        let inbox = try self.inbox(gateway)
        inbox.connect()
        try await eventually { inbox.version == 2 }
        #expect(gateway.sockets[0].isClosed && gateway.paths.last == "/v1/socket?resume=1")
        inbox.close()
    }

    // MARK: Helpers

    private func inbox(
        _ gateway: FakeGateway, limits: Inbox.Limits = Inbox.Limits(), timing: Timing? = nil,
        token: @escaping TokenProvider = { _ in "t" }
    ) throws -> Inbox {
        let url = try #require(URL(string: "https://notify.example.com/"))
        return Inbox(
            try Gateway(url, http: gateway, sockets: gateway, tokenProvider: token), limits: limits,
            timing: timing ?? self.time.timing)
    }

    /// Connects, and returns the titles of the first arrivals.
    private func take(_ inbox: Inbox, _ count: Int) async throws -> [String] {
        var arrivals = inbox.arrivals().makeAsyncIterator()
        inbox.connect()
        var titles: [String] = []
        for _ in 0..<count { titles.append(try await arrivals.next()?.title ?? "") }
        inbox.close()
        return titles
    }

    private static func token(issue: Int, expiry: Int) -> String {
        self.token(claims: #""iat":\#(issue),"exp":\#(expiry)"#)
    }

    private static func token(claims: String) -> String {
        let claims = Data(#"{"sub":"ada",\#(claims)}"#.utf8).base64EncodedString()
        return "e30.\(claims.replacingOccurrences(of: "=", with: "")).s"
    }
}
