// Carillon · BookmarkTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import Support
import Testing

@testable import Sockets

@Suite("How far a client has seen its inbox", .timeLimit(.minutes(10)))
struct BookmarkTests {
    private static let ada = SocketIdentity(user: "ada", expiresAt: nil)

    private static func snapshot(_ version: Int64, _ items: [InboxSnapshot.Item] = []) -> InboxSnapshot {
        InboxSnapshot(version: version, unread: 0, total: 0, items: items)
    }

    @Test("it is as far as it has proven; what it was sent since counts as missed")
    func proof() throws {
        let harness = try HubHarness()
        let (session, _) = harness.open(by: Self.ada, .signalr, client: "web")
        #expect(session.bookmark(hasLeft: true) == nil, "the inbox was not read yet")
        session.opened(Self.snapshot(4))
        #expect(session.bookmark(hasLeft: true)?.version == 4)
        session.deliver(LoopChange(HubHarness.notification("ada", 5, camelCase: "{}")))
        session.flush()
        #expect(session.bookmark(hasLeft: true)?.version == 4)
        session.proven(99)
        #expect(session.bookmark(hasLeft: true)?.version == 4, "it was never asked for")
        session.deliver(LoopChange(HubHarness.notification("ada", 6, camelCase: "{}")))
        session.flush()
        session.proven(2)
        #expect(session.bookmark(hasLeft: true)?.version == 5)
        session.proven(3)
        #expect(session.bookmark(hasLeft: true)?.version == 6)
        session.end()
    }

    @Test("what the first sync brings counts as missed until it is proven")
    func firstSync() throws {
        for isReturn in [false, true] {
            let harness = try HubHarness()
            let (session, _) = harness.open(by: Self.ada, .signalr, client: "web")
            var snapshot = Self.snapshot(9, [HubHarness.item(7), HubHarness.item(8)])
            snapshot.isReturn = isReturn
            session.opened(snapshot)
            // Nothing that a new client gets waits for proof here.
            #expect(session.bookmark(hasLeft: true)?.version == (isReturn ? 6 : 9))
            session.proven(1)
            #expect(session.bookmark(hasLeft: true)?.version == 9)
            session.end()
        }
    }

    @Test("over a transport that proves nothing it is as far as was written")
    func unproven() throws {
        let harness = try HubHarness()
        let (session, wire) = harness.open(by: Self.ada, .signalr, client: "web")
        wire.provesReceipt = false
        session.opened(Self.snapshot(4))
        session.deliver(LoopChange(HubHarness.notification("ada", 5, camelCase: "{}")))
        #expect(session.bookmark(hasLeft: true)?.version == 5)
        session.end()
    }

    @Test("it is noted when it changes, now and then though it does not, and at the end")
    func notes() async throws {
        let noted = Notes<SocketBookmark>()
        var backend = ScriptedBackend()
        backend.onNote = { noted.note($0) }
        try await RunningHub.with(backend) { running in
            let socket = try await running.open("ada", client: "web").synced()
            let start = NIODeadline.now()
            for minute in [0, 1, 9, 10, 11] {
                try await socket.on { session, _ in
                    session.tick(now: start + .minutes(Int64(minute)), wallClock: Timestamp(seconds: 0))
                }
            }
            try await socket.on { session, _ in session.end() }
            try await eventually("the end is noted") { noted.all.last?.hasLeft == true }
            #expect(noted.all.allSatisfy { $0.version == ScriptedBackend.version && $0.client == "web" })
            // The hub's own ticks fall into the first minute.
            #expect(noted.all.count == 3)
        }
    }
}
