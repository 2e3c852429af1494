// Carillon · ResumeTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import Protocols
import Support
import Testing

@testable import Sockets

@Suite("A client that resumes", .timeLimit(.minutes(10)))
struct ResumeTests {
    @Test("answers an early resume after the first sync")
    func opening() async throws {
        let gate = Gate()
        let asked = Notes<Int64>()
        var backend = ScriptedBackend()
        backend.onOpen = { await gate.wait() }
        backend.onChanges = { asked.note($0.map(\.since)) }
        try await RunningHub.with(backend, gate: gate) { running in
            let socket = try await running.open("a")
            try await socket.say(.resume(version: 2), reference: "7")
            await gate.open()
            try await eventually("it is answered") { try await socket.on { $1.references == [nil, "7"] } }
            #expect(asked.all == [2])
        }
    }

    @Test("resumes while a catch-up is under way")
    func hole() async throws {
        let gate = Gate()
        let asked = Notes<Int64>()
        var backend = ScriptedBackend()
        backend.onChanges = { requests in
            asked.note(requests.map(\.since))
            await gate.wait()
        }
        try await RunningHub.with(backend, gate: gate, { $0.holdTime = .zero }) { running in
            let socket = try await running.open("a").synced()
            running.hub.deliver([HubHarness.notification("a", 7)])
            try await eventually("the missed changes are read") { asked.all == [4] }
            try await socket.say(.resume(version: 3), reference: "8")
            try await socket.say(.resume(version: 1), reference: "9")
            await gate.open()
            try await eventually("both are answered") {
                try await socket.on { $1.references.compactMap(\.self) == ["8", "9"] }
            }
            #expect(asked.all.filter { $0 < 4 } == [3, 1])
        }
    }

    @Test("answers even if nothing changed, and after a failed read")
    func unchanged() async throws {
        struct Outage: Error {}
        let asked = Notes<Int64>()
        var backend = ScriptedBackend()
        backend.onChanges = { requests in
            asked.note(requests.map(\.since))
            if asked.all.count == 1 { throw Outage() }
        }
        try await RunningHub.with(backend) { running in
            let socket = try await running.open("a").synced()
            try await socket.say(.resume(version: ScriptedBackend.version), reference: "7")
            try await eventually("it is answered") { try await socket.on { $1.references == [nil, "7"] } }
            #expect(asked.all == [4, 4])
        }
    }

    @Test("a catch-up whose read fails is repeated until the socket has what it missed")
    func catchUpFails() async throws {
        struct Outage: Error {}
        let asked = Notes<Int64>()
        var backend = ScriptedBackend()
        backend.onChanges = { requests in
            asked.note(requests.map(\.since))
            if asked.all.count < 3 { throw Outage() }
        }
        try await RunningHub.with(backend) { running in
            _ = try await running.open("a").synced()
            running.hub.catchUpAll()
            try await eventually("the third read succeeds") { asked.all.count >= 3 }
            #expect(asked.all.allSatisfy { $0 == ScriptedBackend.version })
        }
    }

    @Test("reads again what arrived as a frame while the answer was read")
    func overtaken() async throws {
        let gate = Gate()
        let asked = Notes<Int64>()
        var backend = ScriptedBackend()
        backend.onChanges = { requests in
            asked.note(requests.map(\.since))
            await gate.wait()
        }
        backend.changed = { request in
            let versions: [Int64] = request.since == 2 ? [3, 4] : [5]
            return InboxSnapshot(
                version: versions.last ?? 0, unread: 1, total: 1, items: versions.map { HubHarness.item($0) })
        }
        try await RunningHub.with(backend, gate: gate) { running in
            let socket = try await running.open("a").synced()
            try await socket.say(.resume(version: 2), reference: "7")
            try await eventually("the inbox is read") { asked.all == [2] }
            running.hub.deliver([HubHarness.notification("a", 5)])
            try await eventually("the frame is sent") { try await socket.on { $1.versions == [5] } }
            await gate.open()
            try await eventually("the frame's change is sent again") { try await socket.on { $1.syncs == [4, 4, 5] } }
            #expect(try await socket.on { $1.rows } == [3, 4, 5])
            #expect(asked.all == [2, 4])
        }
    }

    @Test("reads a reset first, then what the client resumes, then what it may lack")
    func order() async throws {
        let gate = Gate()
        let asked = Notes<Int64>()
        var backend = ScriptedBackend()
        backend.onOpen = { await gate.wait() }
        backend.onChanges = { asked.note($0.map(\.since)) }
        backend.changed = { request in
            var snapshot = InboxSnapshot(version: ScriptedBackend.version, unread: 0, total: 0)
            snapshot.isReset = request.since < 0
            return snapshot
        }
        try await RunningHub.with(backend, gate: gate) { running in
            let socket = try await running.open("a")
            try await socket.on { session, _ in
                session.missedChanges()
                _ = session.resume(Resumption(version: 3, reference: nil))
                session.resync()
            }
            await gate.open()
            try await eventually("each is read") { asked.all.count == 3 }
            #expect(asked.all == [-1, 3, ScriptedBackend.version])
        }
    }

    @Test("reads one resumption of a user at a time, together with those of other users")
    func turns() async throws {
        let gate = Gate()
        let asked = Notes<[Int64]>()
        var backend = ScriptedBackend()
        backend.onChanges = { requests in
            asked.note([requests.map(\.since)])
            await gate.wait()
        }
        try await RunningHub.with(backend, gate: gate) { running in
            for (version, user) in ["first", "many", "many", "many", "other"].enumerated() {
                let socket = try await running.open(user, connection: "c\(version)").synced()
                try await socket.say(.resume(version: Int64(version)))
                if version == 0 { try await eventually("the first is read") { asked.all == [[0]] } }
            }
            await gate.open()
            try await eventually("all are read") { asked.all.joined().count >= 5 }
            #expect(asked.all == [[0], [1, 4], [2], [3]])
        }
    }

    @Test("limits what may wait and asks the client to try again")
    func bound() async throws {
        let gate = Gate()
        var backend = ScriptedBackend()
        backend.onOpen = { await gate.wait() }
        try await RunningHub.with(backend, gate: gate) { running in
            let socket = try await running.open("a")
            for number in 0..<17 { try await socket.say(.resume(version: 0), reference: "\(number)") }
            #expect(try await socket.on { $1.answers } == [.busy("the server is busy, try again")])
            await gate.open()
            try await eventually("the others are answered") { try await socket.on { $1.syncs.count == 17 } }
            #expect(try await socket.on { $1.references.last } == "15")
        }
    }
}

@Suite("Calls before the first sync", .timeLimit(.minutes(10)))
struct EarlyCallTests {
    private struct Outage: Error {}

    @Test("answers early calls after the first sync, faults included")
    func answers() async throws {
        let gate = Gate()
        let openings = Notes<Int>()
        var backend = ScriptedBackend()
        backend.onOpen = {
            openings.note([1])
            if openings.all.count > 1 { await gate.wait() }
        }
        backend.onMarkRead = { throw Outage() }
        try await RunningHub.with(backend, gate: gate) { running in
            let other = try await running.open("b", connection: "b").synced()
            let socket = try await running.open("a")
            try await socket.say(.unread, reference: "1")
            try await socket.say(.read(ids: nil), reference: "2")
            // Later requests are answered already, so these would be too.
            try await other.say(.unread)
            try await eventually("the other one is answered") { try await other.on { $1.answers == [.unread(0)] } }
            #expect(try await socket.on { $1.answers.isEmpty })
            await gate.open()
            try await eventually("both are answered") { try await socket.on { $1.answers.count == 2 } }
            let answers = try await socket.on { $1.answers }
            #expect(answers.contains(.unread(0)))
            #expect(answers.contains(.busy("the change could not be made, try again")))
            #expect(try await socket.on { $1.syncs } == [ScriptedBackend.version])
        }
    }

    @Test("limits what may wait and asks the client to try again")
    func bound() async throws {
        let gate = Gate()
        var backend = ScriptedBackend()
        backend.onOpen = { await gate.wait() }
        try await RunningHub.with(backend, gate: gate) { running in
            let socket = try await running.open("a")
            for number in 0..<17 { try await socket.say(.unread, reference: "\(number)") }
            #expect(try await socket.on { $1.answers } == [.busy("the server is busy, try again")])
            await gate.open()
            try await eventually("the others are answered") { try await socket.on { $1.answers.count == 17 } }
        }
    }
}

@Suite("Bookmarks", .timeLimit(.minutes(10)))
struct BookmarkTests {
    private static let ada = SocketIdentity(user: "ada", expiresAt: nil)

    private static func snapshot(_ version: Int64, _ items: [InboxSnapshot.Item] = []) -> InboxSnapshot {
        InboxSnapshot(version: version, unread: 0, total: 0, items: items)
    }

    @Test("bookmarks what the client has proven and counts the rest as missed")
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

    @Test("counts the first sync as missed until it is proven")
    func firstSync() throws {
        for isReturn in [false, true] {
            let harness = try HubHarness()
            let (session, _) = harness.open(by: Self.ada, .signalr, client: "web")
            var snapshot = Self.snapshot(9, [HubHarness.item(7), HubHarness.item(8)])
            snapshot.isReturn = isReturn
            session.opened(snapshot)
            // Nothing that a new client gets waits for a proof here.
            #expect(session.bookmark(hasLeft: true)?.version == (isReturn ? 6 : 9))
            session.proven(1)
            #expect(session.bookmark(hasLeft: true)?.version == 9)
            session.end()
        }
    }

    @Test("changes that a returning client's first sync leaves out count as missed until the sync is proven")
    func leftOut() throws {
        for items in [[], [HubHarness.item(7)]] as [[InboxSnapshot.Item]] {
            let harness = try HubHarness()
            let (session, _) = harness.open(by: Self.ada, .signalr, client: "web")
            var snapshot = Self.snapshot(9, items)
            (snapshot.isReturn, snapshot.isReset, snapshot.bookmark) = (true, true, 4)
            session.opened(snapshot)
            #expect(session.bookmark(hasLeft: true)?.version == 4)
            session.proven(1)
            #expect(session.bookmark(hasLeft: true)?.version == 9)
            session.end()
        }
    }

    @Test("counts the deletions of the first sync as missed until they are proven")
    func deletions() throws {
        for items in [[], [HubHarness.item(7)]] as [[InboxSnapshot.Item]] {
            let harness = try HubHarness()
            let (session, _) = harness.open(by: Self.ada, .signalr, client: "web")
            var snapshot = Self.snapshot(9, items)
            snapshot.deleted = [InboxSnapshot.Deletion(id: NotificationID(high: 1, low: 5), version: 6)]
            snapshot.isReturn = true
            session.opened(snapshot)
            #expect(session.bookmark(hasLeft: true)?.version == 5)
            session.proven(1)
            #expect(session.bookmark(hasLeft: true)?.version == 9)
            session.end()
        }
    }

    @Test("bookmarks what was written on a transport without proofs, and awaits none")
    func unproven() throws {
        let harness = try HubHarness()
        let (session, wire) = harness.open(by: Self.ada, .signalr, client: "web")
        wire.provesReceipt = false
        session.opened(Self.snapshot(4))
        session.deliver(LoopChange(HubHarness.notification("ada", 5, camelCase: "{}")))
        #expect(session.bookmark(hasLeft: true)?.version == 5)
        let sequence = session.proofs.nextSequence(through: nil)
        #expect(session.proofs.confirm(sequence).isEmpty)
        session.end()
    }

    /// Opens a Server-Sent Events connection of a returning client, and breaks it while it starts.
    private static func breakStream(in harness: HubHarness) throws {
        let loop = harness.eventLoop
        let connection = SignalRConnection(
            id: "id",
            offer: .init(owner: "ada", usesStatefulReconnect: false),
            transport: .serverSentEvents,
            node: SignalRNode(
                configuration: SignalREndpointConfiguration(
                    path: "/hub", connection: .standard, webSocket: harness.hub.configuration.webSocketLimits,
                    wallClock: { Tokens.now })),
            eventLoop: loop
        )
        let shard = try #require(harness.hub.shard(on: loop))
        let session = SocketSession(connection: "c", identity: Self.ada, since: nil, client: "web", shard: shard)
        connection.begin(SignalRWire(session: session))
        connection.receive(Array(#"{"protocol":"json","version":1}"#.utf8) + [0x1E])
        var snapshot = Self.snapshot(9, [HubHarness.item(7)])
        snapshot.isReturn = true
        session.opened(snapshot)
        #expect(connection.holdsRecords)
        connection.transportLost()
    }

    @Test("counts what the start of a stream held back as missed when the stream breaks")
    func brokenStream() async throws {
        let bookmarks = try {
            let harness = try HubHarness()
            try Self.breakStream(in: harness)
            return harness.hub.bookmarks
        }()
        #expect(await bookmarks.next(limit: 10)?.map(\.version) == [6])
    }

    @Test("removes the bookmark of a client that stops, even while its inbox is read", arguments: [false, true])
    func stops(isOpening: Bool) async throws {
        let gate = Gate()
        let opening = Notes<Int>()
        let noted = Notes<SocketBookmark>()
        var backend = ScriptedBackend()
        if isOpening {
            backend.onOpen = {
                opening.note([1])
                await gate.wait()
            }
        }
        backend.onNote = { noted.note($0) }
        try await RunningHub.with(backend, gate: gate) { running in
            let socket = try await running.open("ada", client: "web")
            if isOpening {
                try await eventually("its inbox is being read") { opening.all.count == 1 }
            } else {
                _ = try await socket.synced()
            }
            try await socket.on { session, _ in
                session.clientStopped()
                session.end()
            }
            try await eventually("the end is noted") { noted.all.last?.hasLeft == true }
            if isOpening {
                // The opening notes a bookmark too, so the end of it removes that one.
                await gate.open()
                try await eventually("it is noted again") { noted.all.count == 2 }
            }
            let last = try #require(noted.all.last)
            #expect(last.version == nil && last.hasLeft)
        }
    }

    @Test("removes the bookmark of a client whose token was revoked")
    func revoked() throws {
        let harness = try HubHarness()
        let (session, _) = harness.open(by: Self.ada, .signalr, client: "web")
        session.opened(Self.snapshot(4))
        #expect(session.bookmark(hasLeft: true)?.version == 4)
        session.revoke(before: Timestamp(seconds: 1))
        let bookmark = try #require(session.bookmark(hasLeft: true))
        #expect(bookmark.version == nil)
        session.end()
    }

    @Test(
        "notes a client that is away as one that has left, and again at the end only if it came back",
        arguments: [false, true])
    func away(comesBack: Bool) async throws {
        let noted = Notes<SocketBookmark>()
        var backend = ScriptedBackend()
        backend.onNote = { noted.note($0) }
        try await RunningHub.with(backend) { running in
            let socket = try await running.open("ada", client: "web").synced()
            for isAway in [false, true, false, true] {
                try await socket.on { session, wire in
                    wire.isAway = isAway
                    session.recordBookmark(now: .now())
                }
            }
            // No tick comes between the return and the end.
            try await socket.on { session, wire in
                if comesBack {
                    wire.isAway = false
                    session.returned()
                }
                session.end()
            }
            // Bookmarks are noted in order, so this later end comes after all of the first.
            let other = try await running.open("bob", connection: "b", client: "web").synced()
            try await other.on { session, _ in session.end() }
            try await eventually("the other end is noted") {
                noted.all.contains { $0.user == "bob" && $0.hasLeft }
            }
            let expected = [false, true, false, true] + (comesBack ? [true] : [])
            #expect(noted.all.filter { $0.user == "ada" }.map(\.hasLeft) == expected)
        }
    }

    @Test("stores a bookmark when it changes, at intervals, and at the end")
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
