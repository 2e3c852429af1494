// Carillon · RenewalTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import Support
import Testing

@testable import Sockets

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

    @Test("a connection lasts as long as the newest token that came with a request for it")
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

    @Test("a revocation asks when the newest one was made")
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

    @Test("a token over a native socket counts from then on, unless it is another user's")
    func native() throws {
        for (other, end) in [(Self.identity(from: 150, to: 300), 300), (Self.identity("eve", from: 150, to: 300), 200)]
        {
            let harness = try HubHarness()
            let (session, wire) = harness.open(by: Self.identity(from: 100, to: 200), .native)
            session.opened(InboxSnapshot(version: 0, unread: 0, total: 0))
            session.obey(.auth(token: "t"), reference: nil)
            session.authenticated(other, reference: nil)
            #expect(wire.answers == [other.user == "ada" ? .done : .error("the token is another user's")])
            session.tick(now: .now(), wallClock: Timestamp(seconds: Int64(end) - 1))
            #expect(wire.end == nil)
            session.tick(now: .now(), wallClock: Timestamp(seconds: Int64(end)))
            #expect(wire.end == .expired)
        }
    }

    @Test("over long polling a connection goes on by the fresh tokens of its polls and of its POSTs")
    func requests() async throws {
        let clock = HandClock(150)
        var backend = ScriptedBackend()
        // A token says whose it is, when it was made and when it expires.
        backend.onAuthenticate = { token in
            let parts = token.split(separator: ".")
            let seconds = parts.dropFirst().compactMap { Int64($0) }
            guard seconds.count == 2 else { throw SocketRefusal(status: 401, reason: "no token") }
            guard Timestamp(seconds: seconds[1]) > clock.now else { throw SocketRefusal(status: 401, reason: "old") }
            return Self.identity(String(parts[0]), from: seconds[0], to: seconds[1])
        }
        let scripted = backend
        try await RunningHub.with(scripted, now: { clock.now }) { running in
            try await HubClient.withListener(running, scripted) { http, url in
                let (first, fresh) = ("ada.100.200", "ada.150.400")
                var polled = try await HubClient.open(http, url, token: first)
                var posted = try await HubClient.open(http, url, token: first)
                var stale = try await HubClient.open(http, url, token: first)
                try await polled.sync(token: fresh)
                try await posted.sync(token: first)
                try await posted.post(#"{"type":6}"#, token: fresh)
                try await stale.sync(token: first)
                // A poll that waits, and one that comes later, are refused; nothing is closed.
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
