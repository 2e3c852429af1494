// Carillon · RenewalTests.swift
// SPDX-License-Identifier: Apache-2.0

import Model
import NIOCore
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
                #expect(wire.end == .unauthorized("the token has expired"))
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
}
