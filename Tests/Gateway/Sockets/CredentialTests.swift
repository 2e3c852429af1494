// Carillon · CredentialTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import NIOEmbedded
import Support
import Testing

@testable import Sockets

@Suite("Logins by the first message", .timeLimit(.minutes(10)))
struct LoginTests {
    @Test("authenticates clients while the database stalls on reads")
    func stalledReads() async throws {
        let gate = Gate()
        let reads = Notes<Int>()
        var backend = ScriptedBackend()
        backend.onUnread = {
            reads.note([1])
            await gate.wait()
        }
        try await RunningHub.with(backend, gate: gate) { running in
            let reader = try await running.open("reader").synced()
            for _ in 0..<50 { try await reader.say(.unread) }
            try await eventually("every worker reads") { reads.all.count >= 8 }
            let socket = try await running.open(nil, connection: "late")
            try await socket.say(.auth(token: "ada"))
            _ = try await socket.synced()
            #expect(try await reader.on { $1.answers.isEmpty })
        }
    }

    @Test("lets a client retry if its token was still being verified at the deadline, and rejects one without a token")
    func deadline() throws {
        let harness = try HubHarness()
        let late = NIODeadline.now() + .seconds(11)
        let wallClock = Timestamp(seconds: 1_795_000_000)
        let (silent, silence) = harness.open(nil, .native)
        silent.tick(now: late, wallClock: wallClock)
        #expect(silence.end == .unauthorized("no credential came in time"))
        // No task of the hub runs, so the request waits forever.
        let (waiting, wait) = harness.open(nil, .native)
        waiting.handle(.auth(token: "t"), reference: nil)
        waiting.tick(now: .now(), wallClock: wallClock)
        #expect(wait.end == nil)
        waiting.tick(now: late, wallClock: wallClock)
        #expect(wait.end == .tryAgainLater)
    }

    @Test("closes a socket that never authenticates with 4401 and keeps one that authenticated late")
    func closeCode() throws {
        let harness = try HubHarness()
        let (anonymous, closing) = try harness.connect()
        let (late, staying) = try harness.connect()
        late.handle(.auth(token: "late"), reference: nil)
        late.authenticated(SocketIdentity(user: "late", expiresAt: nil), reference: nil)
        late.opened(InboxSnapshot(version: 0, unread: 0, total: 0))
        for session in [anonymous, late] {
            session.tick(now: .now() + .seconds(11), wallClock: Timestamp(seconds: 1_795_000_000))
        }
        let close = try #require(try closing.readOutbound(as: ByteBuffer.self))
        #expect(Array(close.readableBytesView.prefix(4).suffix(2)) == [0x11, 0x31])
        #expect(late.phase == .open)
        _ = try closing.finish()
        _ = try staying.finish()
    }

    @Test("asks the client to retry if its token cannot be verified now")
    func refusals() throws {
        let harness = try HubHarness()
        let table: [(Int, SocketAnswer, SocketEnd)] = [
            (503, .busy("down"), .tryAgainLater), (401, .error("down"), .unauthorized("down")),
        ]
        for (status, answer, end) in table {
            let (session, wire) = harness.open(nil, .native)
            session.handle(.auth(token: "t"), reference: nil)
            session.refused(SocketRefusal(status: status, reason: "down"), reference: nil)
            #expect(wire.answers == [answer])
            #expect(wire.end == end)
        }
    }

    @Test("refuses a token that is too long at once")
    func longToken() throws {
        let harness = try HubHarness()
        let (session, wire) = harness.open(nil, .native)
        session.handle(.auth(token: String(repeating: "t", count: 8_192)), reference: nil)
        #expect(wire.answers.isEmpty, "it waits for its check")
        session.handle(.auth(token: String(repeating: "t", count: 8_193)), reference: nil)
        #expect(wire.answers == [.error("the token is too long")])
        #expect(wire.end == .unauthorized("the token is too long"))
    }
}

@Suite("Tokens that come with requests", .timeLimit(.minutes(10)))
struct RenewalTests {
    private static func identity(_ user: String = "ada", from start: Int64?, to end: Int64?) -> SocketIdentity {
        SocketIdentity(
            user: user,
            issuedAt: start.map { Timestamp(seconds: $0) },
            expiresAt: end.map { Timestamp(seconds: $0) }
        )
    }

    private static func end(of identity: SocketIdentity, renewedBy other: SocketIdentity) throws -> Int64? {
        let harness = try HubHarness()
        let (session, wire) = harness.open(by: identity, .signalr)
        session.opened(InboxSnapshot(version: 0, unread: 0, total: 0))
        session.renew(other)
        for second in Int64(100)...400 {
            session.tick(now: .now(), wallClock: Timestamp(seconds: second))
            guard wire.end == nil else {
                #expect(wire.end == .expired)
                return second
            }
        }
        return nil
    }

    @Test("keeps a connection as long as the newest token of its requests is valid")
    func expiry() throws {
        let first = Self.identity(from: 100, to: 200)
        let table: [(SocketIdentity, Int64?)] = [
            (Self.identity(from: 150, to: 300), 300), (Self.identity(from: 150, to: 180), 180),
            (Self.identity(from: 150, to: nil), nil), (Self.identity(from: 50, to: 300), 200),
            (Self.identity(from: 100, to: 300), 300), (Self.identity(from: 100, to: 150), 200),
            (Self.identity(from: nil, to: 300), 300), (Self.identity(from: nil, to: 150), 200),
            (Self.identity("bob", from: 150, to: 300), 200),
        ]
        for (other, end) in table {
            #expect(try Self.end(of: first, renewedBy: other) == end, "\(other)")
        }
        let endless = Self.identity(from: 100, to: nil)
        #expect(try Self.end(of: endless, renewedBy: Self.identity(from: nil, to: 300)) == nil)
    }

    @Test("compares a revocation with the issue time of the newest token")
    func revocation() throws {
        let harness = try HubHarness()
        let (session, wire) = harness.open(by: Self.identity(from: 100, to: 200), .signalr)
        session.opened(InboxSnapshot(version: 0, unread: 0, total: 0))
        session.renew(Self.identity(from: 150, to: 300))
        session.revoke(before: Timestamp(seconds: 120))
        #expect(wire.end == nil)
        session.revoke(before: Timestamp(seconds: 160))
        #expect(wire.end == .unauthorized("the token was revoked"))
    }

    @Test("adopts a token sent over a native socket unless it belongs to another user")
    func native() throws {
        for (other, end) in [(Self.identity(from: 150, to: 300), 300), (Self.identity("eve", from: 150, to: 300), 200)]
        {
            let harness = try HubHarness()
            let (session, wire) = harness.open(by: Self.identity(from: 100, to: 200), .native)
            session.opened(InboxSnapshot(version: 0, unread: 0, total: 0))
            session.handle(.auth(token: "t"), reference: nil)
            session.authenticated(other, reference: nil)
            #expect(wire.answers == [other.user == "ada" ? .done : .error("the token belongs to another user")])
            session.tick(now: .now(), wallClock: Timestamp(seconds: Int64(end) - 1))
            #expect(wire.end == nil)
            session.tick(now: .now(), wallClock: Timestamp(seconds: Int64(end)))
            #expect(wire.end == .expired)
        }
    }

    @Test("keeps the newest token if the check of an older one ends later")
    func overtaken() throws {
        let harness = try HubHarness()
        let (session, wire) = harness.open(by: Self.identity(from: 100, to: 200), .native)
        session.opened(InboxSnapshot(version: 0, unread: 0, total: 0))
        for _ in 0..<2 { session.handle(.auth(token: "t"), reference: nil) }
        session.authenticated(Self.identity(from: 150, to: 300), reference: nil)
        session.authenticated(Self.identity(from: 120, to: 220), reference: nil)
        #expect(wire.answers == [.done, .done])
        session.tick(now: .now(), wallClock: Timestamp(seconds: 299))
        #expect(wire.end == nil)
        session.tick(now: .now(), wallClock: Timestamp(seconds: 300))
        #expect(wire.end == .expired)
    }

    @Test("continues long polling with fresh tokens from polls and POSTs")
    func requests() async throws {
        let clock = ManualClock(150)
        var backend = ScriptedBackend()
        // A token holds its user, its issue time and its expiry.
        backend.onAuthenticate = { token in
            let parts = token.split(separator: ".")
            let seconds = parts.dropFirst().compactMap { Int64($0) }
            guard seconds.count == 2 else { throw SocketRefusal(status: 401, reason: "no token") }
            guard Timestamp(seconds: seconds[1]) > clock.now else { throw SocketRefusal(status: 401, reason: "old") }
            return Self.identity(String(parts[0]), from: seconds[0], to: seconds[1])
        }
        let scripted = backend
        try await RunningHub.with(scripted, now: { clock.now }) { running in
            try await HubClient.withListener(running) { http, url in
                let (first, fresh) = ("ada.100.200", "ada.150.400")
                var polled = try await HubClient.open(http, url, token: first)
                var posted = try await HubClient.open(http, url, token: first)
                var stale = try await HubClient.open(http, url, token: first)
                try await polled.sync(token: fresh)
                try await posted.sync(token: first)
                try await posted.post(#"{"type":6}"#, token: fresh)
                try await stale.sync(token: first)
                // The waiting poll and a later one are refused; nothing is closed.
                let waiting = stale
                async let parked = waiting.status(token: first)
                try await waiting.post(#"{"type":6}"#, token: first)
                clock.set(300)
                #expect(try await parked == 401)
                #expect(try await waiting.status(token: first) == 401)
                for var client in [polled, posted, stale] {
                    try await client.post(
                        #"{"type":1,"invocationId":"1","target":"GetUnreadCount","arguments":[]}"#, token: fresh)
                    try await client.poll(until: "an answer", token: fresh) { $0.completion("1") != nil }
                    #expect(client.completion("1")?["result"]?.integer == 0)
                    #expect(client.close == nil)
                }
            }
        }
    }
}
