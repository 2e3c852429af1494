// Carillon · HubTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import NIOCore
import NIOEmbedded
import NIOPosix
import Protocols
import ServiceLifecycle
import Support
import Testing

@testable import Sockets

@Suite("Limits of the hub", .timeLimit(.minutes(10)))
struct HubTests {
    @Test("asks a socket to come back later when too many wait to be opened")
    func openings() throws {
        let harness = try HubHarness { $0.waitingOpenings = 2 }
        let (_, first) = harness.open("a", .native)
        let (_, second) = harness.open("b", .native)
        let (_, third) = harness.open("c", .native)
        #expect(first.end == nil && second.end == nil)
        #expect(third.end == .tryAgainLater)
        #expect(third.end?.webSocketClose.code == .tryAgainLater)
    }

    @Test("asks a socket to come back later when its user opens too many, and records no departure of it")
    func rate() async throws {
        let closed = Notes<String>()
        var backend = ScriptedBackend()
        backend.onAdmitsOpening = { $0 != "busy" }
        // A user who may send no more messages may still open a socket.
        backend.onAdmits = { _ in false }
        backend.onClose = { closed.note($0) }
        try await RunningHub.with(backend) { running in
            let busy = try await running.open("busy", connection: "busy")
            #expect(try await busy.on { _, wire in wire.end == .tryAgainLater })
            let calm = try await running.open("calm", connection: "calm").synced()
            for socket in [busy, calm] { try await socket.on { session, _ in session.end() } }
            try await eventually("the other's departure is recorded") { closed.all.contains("calm") }
            #expect(closed.all == ["calm"])
        }
    }

    @Test("holds changes that lack the socket's shape until the inbox is read")
    func incomplete() throws {
        let harness = try HubHarness()
        let (session, wire) = harness.open("a", .signalr)
        session.opened(InboxSnapshot(version: 4, unread: 0, total: 0))
        harness.deliver([HubHarness.notification("a", 5)])
        harness.deliver([HubHarness.notification("a", 6, camelCase: "{}")])
        #expect(wire.versions.isEmpty)
        #expect(session.isHolding)
        // The inbox had nothing new: the change stays held and is requested again later.
        session.caughtUp(nil, answering: nil)
        #expect(wire.versions.isEmpty && session.isHolding)
        session.caughtUp(InboxSnapshot(version: 5, unread: 1, total: 1), answering: nil)
        #expect(wire.syncs == [4, 5])
        #expect(wire.versions == [6])
        #expect(!session.isHolding)
        harness.deliver([HubHarness.notification("a", 5)])
        #expect(wire.versions == [6] && !session.isHolding)
    }

    @Test("awaits no proof of what a first sync left out", arguments: [Dialect.native, .signalr], [false, true])
    func cutOff(dialect: Dialect, hasMore: Bool) throws {
        let harness = try HubHarness()
        let (session, wire) = harness.open("a", dialect)
        // Published while the inbox was read.
        harness.deliver((3...4).map { HubHarness.notification("a", $0, camelCase: "{}") })
        var first = InboxSnapshot(version: 4, unread: 2, total: 2, items: [HubHarness.item(4)])
        first.hasMore = hasMore
        session.opened(first)
        harness.deliver([HubHarness.notification("a", 5, camelCase: "{}")])
        #expect(wire.syncs == [4] && wire.versions == [5])
        let awaited = session.proofs.confirm(session.proofs.nextSequence(through: nil))
        let hasLeftOut = hasMore || dialect == .signalr
        #expect(awaited.map(\.id.low) == (hasLeftOut ? [5] : [3, 4, 5]))
    }

    @Test("writes the frames of a batch to all sockets of a user, each in one write after what it has gathered")
    func shared() throws {
        let harness = try HubHarness()
        let sockets = try (0..<3).map { _ in try harness.connect("a") }
        for (session, channel) in sockets {
            session.opened(InboxSnapshot(version: 4, unread: 0, total: 0))
            while try channel.readOutbound(as: ByteBuffer.self) != nil {}
        }
        // Output of its own that waits for the flush.
        sockets[1].session.wire?.answer(.unread(7), to: nil)
        let own = WebSocketFraming.text(NativeDialect.unread(7, reference: nil))
        let events = ["one", "two", "six"].map { name in
            NodeFrame(
                kind: .event, user: "a", previous: 0, version: 0, unread: 0,
                body: Array(#"{"name":"\#(name)","args":[]}"#.utf8))
        }
        let frames = events.map { WebSocketFraming.text(NativeDialect.change($0)) }
        for round in 0..<2 {
            harness.deliver(events)
            for (place, socket) in sockets.enumerated() {
                var expected = round == 0 && place == 1 ? own : ByteBuffer()
                for frame in frames { expected.writeImmutableBuffer(frame) }
                #expect(try socket.channel.readOutbound(as: ByteBuffer.self) == expected)
                #expect(try socket.channel.readOutbound(as: ByteBuffer.self) == nil)
            }
        }
    }

    @Test("reads the inbox again at once when changes were missed while the socket was opening")
    func missed() throws {
        let harness = try HubHarness()
        let (session, _) = harness.open("a", .native)
        session.missedChanges()
        #expect(harness.hub.catchUps.count == 0)
        session.opened(InboxSnapshot(version: 4, unread: 0, total: 0))
        #expect(harness.hub.catchUps.count == 1)
    }

    @Test("reads the inbox again if changes were missed during a read")
    func missedDuringRead() throws {
        let harness = try HubHarness()
        let (session, _) = harness.open("a", .native)
        session.opened(InboxSnapshot(version: 4, unread: 0, total: 0))
        session.missedChanges()
        session.missedChanges()
        #expect(harness.hub.catchUps.count == 1)
        session.caughtUp(nil, answering: nil)
        #expect(harness.hub.catchUps.count == 2)
    }

    @Test("withholds changes from a loop that is too far behind until it has caught up")
    func backlog() {
        let backlog = LoopBacklog(limit: 10)
        #expect(backlog.admit(8))
        #expect(backlog.admit(3) == false)
        // Changes that would fit are shed too: they would only wait for the earlier ones.
        #expect(backlog.admit(1) == false)
        #expect(backlog.release(8))
        #expect(backlog.admit(2))
        #expect(backlog.release(2) == false)
        // A single batch above the limit still passes.
        #expect(backlog.admit(11))
        #expect(backlog.release(11) == false)
    }

    @Test("reads withheld changes from the inboxes when the loop has caught up")
    func shed() throws {
        let harness = try HubHarness { $0.changesPerLoop = 2 }
        let (session, wire) = harness.open("a", .native)
        session.opened(InboxSnapshot(version: 0, unread: 0, total: 0))
        // Without a turn of the loop in between.
        harness.hub.deliver([HubHarness.notification("a", 1), HubHarness.notification("a", 2)])
        harness.hub.deliver([HubHarness.notification("a", 3)])
        harness.deliver([HubHarness.notification("a", 4)])
        #expect(wire.versions == [1, 2])
        harness.deliver([HubHarness.notification("a", 5)])
        #expect(wire.versions == [1, 2] && session.isHolding)
        session.caughtUp(InboxSnapshot(version: 4, unread: 4, total: 4), answering: nil)
        #expect(wire.versions == [1, 2, 5])
    }
}

@Suite("Events for everyone", .timeLimit(.minutes(10)))
struct EventForEveryoneTests {
    private static func event(_ number: Int) -> NodeFrame {
        NodeFrame(kind: .event, user: "", body: Array(#"{"name":"e\#(number)","args":[]}"#.utf8), everyoneBut: [])
    }

    private static func open(_ user: String, _ harness: HubHarness) -> RecordingWire {
        let (session, wire) = harness.open(user, .native)
        session.opened(InboxSnapshot(version: 4, unread: 0, total: 0))
        return wire
    }

    @Test("delivers many in order, and lets changes pass them")
    func turns() throws {
        let harness = try HubHarness()
        let (session, channel) = try harness.connect("a")
        session.opened(InboxSnapshot(version: 4, unread: 0, total: 0))
        while try channel.readOutbound(as: ByteBuffer.self) != nil {}
        let wires = (0..<400).map { Self.open("user-\($0)", harness) }
        let events = (0..<64).map { Self.event($0) }
        harness.deliver(events)
        harness.deliver([HubHarness.notification("user-0", 5)])
        #expect(wires[0].versions.contains(5))
        #expect(wires.contains { $0.versions.count < events.count })
        harness.eventLoop.advanceTime(by: .milliseconds(40))
        #expect(wires.allSatisfy { wire in wire.versions.count { $0 == 0 } == events.count })
        var (written, expected) = (ByteBuffer(), ByteBuffer())
        while let bytes = try channel.readOutbound(as: ByteBuffer.self) { written.writeImmutableBuffer(bytes) }
        for event in events { expected.writeImmutableBuffer(WebSocketFraming.text(NativeDialect.change(event))) }
        #expect(written == expected)
    }

    @Test("delivers none to a socket that opens later")
    func later() throws {
        let harness = try HubHarness()
        let wires = (0..<400).map { Self.open("user-\($0)", harness) }
        harness.deliver((0..<64).map { Self.event($0) })
        let late = Self.open("late", harness)
        harness.eventLoop.advanceTime(by: .milliseconds(40))
        #expect(wires.allSatisfy { $0.versions.count == 64 })
        #expect(late.versions.isEmpty)
        harness.deliver([Self.event(64)])
        #expect(late.versions == [0])
    }

    @Test("drops those that are too many for a loop, however few its sockets are")
    func most() throws {
        let harness = try HubHarness { $0.changesPerLoop = 2 }
        let wire = Self.open("a", harness)
        harness.deliver((0..<3).map { Self.event($0) } + [HubHarness.notification("a", 5)])
        #expect(wire.versions == [5, 0, 0])
        harness.deliver([Self.event(3)])
        #expect(wire.versions == [5, 0, 0, 0])
    }

    @Test("drops those that are too many for its sockets, and no changes")
    func bound() throws {
        let harness = try HubHarness { $0.eventDeliveries = 4 }
        let wires = ["a", "b"].map { Self.open($0, harness) }
        harness.deliver((0..<3).map { Self.event($0) } + [HubHarness.notification("a", 5)])
        #expect(wires.map(\.versions) == [[5, 0, 0], [0, 0]])
        harness.deliver([Self.event(3)])
        #expect(wires.map(\.versions) == [[5, 0, 0, 0], [0, 0, 0]])
    }
}

@Suite("Registering sockets again", .timeLimit(.minutes(10)))
struct ReregistrationTests {
    @Test("closes only the sockets whose presence cannot be registered")
    func partlyAway() async throws {
        let gate = Gate()
        var backend = ScriptedBackend()
        backend.onOpen = { await gate.wait() }
        backend.isAway = { $0 == "away" }
        try await RunningHub.with(backend, gate: gate) { running in
            var sockets: [String: LiveSocket] = [:]
            for user in ["first", "away", "second"] { sockets[user] = try await running.open(user, connection: user) }
            await gate.open()
            for user in ["first", "second"] { _ = try await sockets[user]?.synced() }
            try await eventually("it is closed") {
                try await sockets["away"]?.on { _, wire in wire.end != nil && wire.syncs.isEmpty } == true
            }
            for user in ["first", "second"] { #expect(try await sockets[user]?.on { $1.end == nil } == true) }
        }
    }

    @Test("keeps a focus change made during the registration")
    func focus() async throws {
        let gate = Gate()
        let registered = Notes<String>()
        let states = Notes<ConnectionPresence.State>()
        var backend = ScriptedBackend()
        backend.onRegister = { connections in
            registered.note(connections)
            await gate.wait()
        }
        backend.onSetStates = { changes in states.note(changes.map(\.state)) }
        try await RunningHub.with(backend, gate: gate) { running in
            let socket = try await running.open("a").synced()
            running.hub.catchUpAll()
            try await eventually("it is registered again") { registered.all == ["c"] }
            try await socket.say(.focus(isActive: false))
            try await eventually("its focus is noted") { states.all == [.idle] }
            await gate.open()
            try await eventually("and noted again after the registration") { states.all == [.idle, .idle] }
        }
    }

    @Test("registers a socket again with its state and since when it has been in it")
    func idle() async throws {
        let clock = ManualClock(1_795_000_000)
        let registered = Notes<SocketRegistration>()
        let states = Notes<PresenceChange>()
        let asked = Notes<Int64>()
        var backend = ScriptedBackend()
        backend.onRegistration = { registered.note($0) }
        backend.onSetStates = { states.note($0) }
        backend.onChanges = { requests in asked.note(requests.map(\.since)) }
        try await RunningHub.with(backend, now: { clock.now }) { running in
            let socket = try await running.open("a").synced()
            let since = clock.now
            try await socket.say(.focus(isActive: false))
            clock.set(1_795_000_100)
            running.hub.catchUpAll()
            try await eventually("it is registered again and brought up to date") { !asked.all.isEmpty }
            let registration = try #require(registered.all.first)
            #expect(registration.state == .idle && registration.stateSince == since)
            try await eventually("its focus is noted") { !states.all.isEmpty }
            #expect(states.all.allSatisfy { $0.state == .idle && $0.since == since })
        }
    }

    @Test("removes a socket that leaves during the registration")
    func departure() async throws {
        let gate = Gate()
        let registered = Notes<String>()
        let closed = Notes<String>()
        var backend = ScriptedBackend()
        backend.onRegister = { connections in
            registered.note(connections)
            await gate.wait()
        }
        backend.onClose = { closed.note($0) }
        try await RunningHub.with(backend, gate: gate) { running in
            let socket = try await running.open("a").synced()
            running.hub.catchUpAll()
            try await eventually("it is registered again") { registered.all == ["c"] }
            try await socket.on { session, _ in session.end() }
            try await eventually("its departure is recorded") { closed.all == ["c"] }
            await gate.open()
            try await eventually("and recorded again after the registration") { closed.all == ["c", "c"] }
        }
    }

    @Test("does not repeat a frame that arrived during the registration")
    func overtaken() async throws {
        let gate = Gate()
        let asked = Notes<Int64>()
        var backend = ScriptedBackend()
        backend.onChanges = { requests in
            asked.note(requests.map(\.since))
            await gate.wait()
        }
        backend.changed = { _ in
            InboxSnapshot(version: 6, unread: 2, total: 2, items: [HubHarness.item(5), HubHarness.item(6)])
        }
        try await RunningHub.with(backend, gate: gate) { running in
            let socket = try await running.open("a").synced()
            running.hub.catchUpAll()
            try await eventually("its inbox is read") { asked.all == [4] }
            running.hub.deliver([HubHarness.notification("a", 5)])
            try await eventually("the frame is sent") { try await socket.on { $1.versions == [5] } }
            await gate.open()
            try await eventually("the rest is sent") { try await socket.on { $1.syncs == [4, 6] } }
            #expect(try await socket.on { $1.rows } == [6])
        }
    }

    @Test("reads the inbox of a socket that opened during a catch-up again")
    func opening() async throws {
        let gate = Gate()
        let registered = Notes<String>()
        let asked = Notes<Int64>()
        var backend = ScriptedBackend()
        let opening = Notes<Int>()
        backend.onOpen = {
            opening.note([1])
            await gate.wait()
        }
        backend.onRegister = { registered.note($0) }
        backend.onChanges = { requests in asked.note(requests.map(\.since)) }
        try await RunningHub.with(backend, gate: gate) { running in
            let socket = try await running.open("a")
            try await eventually("it is being opened") { !opening.all.isEmpty }
            running.hub.catchUpAll()
            try await eventually("it is registered again") { registered.all == ["c"] }
            await gate.open()
            _ = try await socket.synced()
            try await eventually("its inbox is read again") { asked.all == [ScriptedBackend.version] }
        }
    }

    @Test("reads the changes that did not fit while a socket was opening")
    func dropped() async throws {
        let gate = Gate()
        let asked = Notes<Int64>()
        var backend = ScriptedBackend()
        backend.onOpen = { await gate.wait() }
        backend.onChanges = { requests in asked.note(requests.map(\.since)) }
        try await RunningHub.with(backend, gate: gate) { running in
            let socket = try await running.open("a")
            let first = ScriptedBackend.version + 1
            // A socket holds 1,024.
            running.hub.deliver((first..<first + 1_025).map { HubHarness.notification("a", $0) })
            await gate.open()
            _ = try await socket.synced()
            try await eventually("the last one is asked for") { asked.all == [first + 1_023] }
        }
    }

    @Test("registers and updates only the sockets that presence has lost")
    func audit() async throws {
        let registered = Notes<String>()
        let asked = Notes<Int64>()
        var backend = ScriptedBackend()
        backend.onRegistered = { users in users.map { $0 == "a" ? ["here"] : registered.all } }
        backend.onRegister = { registered.note($0) }
        backend.onChanges = { requests in asked.note(requests.map(\.since)) }
        try await RunningHub.with(backend, { $0.audit = .milliseconds(20) }) { running in
            _ = try await running.open("a", connection: "here").synced()
            _ = try await running.open("b", connection: "lost").synced()
            try await eventually("it is brought up to date") { !asked.all.isEmpty }
            #expect(registered.all == ["lost"])
            #expect(asked.all == [ScriptedBackend.version])
        }
    }

    @Test("leaves out the sockets whose server is away until it is back")
    func absentServer() async throws {
        let absent = Notes<String>()
        let asked = Notes<String>()
        var backend = ScriptedBackend()
        backend.isAway = { absent.all.last == $0 }
        backend.onChanges = { requests in asked.note(requests.map(\.user)) }
        try await RunningHub.with(backend) { running in
            _ = try await running.open("away", connection: "c1").synced()
            _ = try await running.open("here", connection: "c2").synced()
            absent.note(["away"])
            running.hub.catchUpAll()
            try await eventually("the other is brought up to date") { asked.all == ["here"] }
            // The next round does not wait for it, either.
            running.hub.catchUpAll()
            try await eventually("the other is brought up to date again") { asked.all == ["here", "here"] }
            absent.note(["none"])
            try await eventually("it is brought up to date once its server is back") { asked.all.contains("away") }
        }
    }

    @Test("does not register a socket that left before its turn")
    func turns() async throws {
        let gate = Gate()
        let registered = Notes<String>()
        var backend = ScriptedBackend()
        backend.onRegister = { connections in
            registered.note(connections)
            await gate.wait()
        }
        try await RunningHub.with(backend, gate: gate) { running in
            var sockets: [String: LiveSocket] = [:]
            for number in 0..<300 {
                sockets["c\(number)"] = try await running.open("user-\(number)", connection: "c\(number)").synced()
            }
            running.hub.catchUpAll()
            try await eventually("the first are registered") { !registered.all.isEmpty }
            let first = Set(registered.all)
            let later = sockets.first { !first.contains($0.key) }
            let (name, socket) = try #require(later)
            try await socket.on { session, _ in session.end() }
            await gate.open()
            try await eventually("the others are registered") { registered.all.count >= 299 }
            #expect(Set(registered.all) == Set(sockets.keys).subtracting([name]))
        }
    }
}

@Suite("Sockets that leave", .timeLimit(.minutes(10)))
struct DepartureTests {
    private struct Outage: Error {}

    @Test(
        "removes a socket that leaves during its registration, even if its object is gone by then",
        arguments: [false, true], [true, false]
    )
    func opening(fails: Bool, isKept: Bool) async throws {
        let gate = Gate()
        let opening = Notes<Int>()
        let closed = Notes<String>()
        var backend = ScriptedBackend()
        backend.onOpen = {
            opening.note([1])
            await gate.wait()
            if fails { throw Outage() }
        }
        backend.onClose = { closed.note($0) }
        try await RunningHub.with(backend, gate: gate) { running in
            var socket = Optional(try await running.open("a"))
            try await eventually("it is being registered") { opening.all.count == 1 }
            try await socket?.on { session, _ in session.end() }
            if !isKept { socket = nil }
            try await eventually("its departure is recorded") { closed.all == ["c"] }
            await gate.open()
            try await eventually("and recorded again after the registration") { closed.all == ["c", "c"] }
            if let socket { #expect(try await socket.on { $1.syncs.isEmpty }) }
        }
    }

    @Test("opens no socket that has left while it waited, and records no departure of it")
    func gone() async throws {
        let gate = Gate()
        let batches = Notes<Int>()
        let opened = Notes<String>()
        let closed = Notes<String>()
        var backend = ScriptedBackend()
        backend.onOpen = {
            batches.note([1])
            await gate.wait()
        }
        backend.opened = { opening in
            opened.note([opening.connection])
            return InboxSnapshot(version: ScriptedBackend.version, unread: 0, total: 0)
        }
        backend.onClose = { closed.note($0) }
        try await RunningHub.with(backend, gate: gate) { running in
            // Each keeps one of the two tasks busy that open sockets.
            for number in 1...2 {
                _ = try await running.open("first-\(number)", connection: "first-\(number)")
                try await eventually("it is being opened") { batches.all.count == number }
            }
            var sockets: [LiveSocket] = []
            for number in 0..<6 { sockets.append(try await running.open("user-\(number)", connection: "c\(number)")) }
            for place in [0, 2, 4] { try await sockets[place].on { session, _ in session.end() } }
            await gate.open()
            for place in [1, 3, 5] { _ = try await sockets[place].synced() }
            #expect(Set(opened.all) == ["first-1", "first-2", "c1", "c3", "c5"])
            try await sockets[1].on { session, _ in session.end() }
            try await eventually("its departure is recorded") { closed.all.contains("c1") }
            #expect(closed.all == ["c1"])
        }
    }

    @Test("removes presence while last visits cannot be recorded")
    func visits() async throws {
        let gate = Gate()
        let closed = Notes<String>()
        let seen = Notes<String>()
        var backend = ScriptedBackend()
        backend.onClose = { closed.note($0) }
        backend.onMarkSeen = { users in
            seen.note(users)
            await gate.wait()
        }
        try await RunningHub.with(backend, gate: gate) { running in
            let first = try await running.open("first", connection: "c1").synced()
            let second = try await running.open("second", connection: "c2").synced()
            try await first.on { session, _ in session.end() }
            try await eventually("its last visit is being recorded") { seen.all == ["first"] }
            try await second.on { session, _ in session.end() }
            try await eventually("both have left") { closed.all == ["c1", "c2"] }
            #expect(seen.all == ["first"])
            await gate.open()
            try await eventually("the other's is recorded") { seen.all == ["first", "second"] }
        }
    }

    @Test("removes stale presence after a frame without a socket, but not that of a socket that opens meanwhile")
    func ghosts() async throws {
        let gate = Gate()
        let asked = Notes<String>()
        let closed = Notes<String>()
        var backend = ScriptedBackend()
        backend.onRegistered = { users in
            asked.note(users)
            await gate.wait()
            return users.map { _ in ["gone", "c"] }
        }
        backend.onClose = { closed.note($0) }
        try await RunningHub.with(backend, gate: gate) { running in
            _ = try await running.open("b", connection: "b").synced()
            running.hub.deliver([HubHarness.notification("b", 5), HubHarness.notification("a", 5)])
            try await eventually("its presence is looked up, and no other") { asked.all == ["a"] }
            _ = try await running.open("a").synced()
            await gate.open()
            try await eventually("what stayed behind is removed") { closed.all == ["gone"] }
        }
    }

    @Test("removes the presence of a departure that Redis lost, although its user has another socket")
    func lostDeparture() async throws {
        let closed = Notes<String>()
        var backend = ScriptedBackend()
        backend.onRegistered = { users in
            users.map { user -> [String]? in
                if user == "b" { return ["b"] }
                return closed.all.isEmpty ? ["here", "gone"] : ["here"]
            }
        }
        backend.onClose = { closed.note($0) }
        try await RunningHub.with(backend, { $0.audit = .milliseconds(20) }) { running in
            _ = try await running.open("a", connection: "here").synced()
            _ = try await running.open("b", connection: "b").synced()
            try await eventually("an audit finds it") { !closed.all.isEmpty }
            #expect(closed.all == ["gone"])
        }
    }

    @Test("removes a socket whose server is away once it is back, and does not keep others waiting")
    func absentServer() async throws {
        let absent = Notes<String>()
        let tried = Notes<String>()
        var backend = ScriptedBackend()
        backend.isAway = { absent.all.last == $0 }
        backend.onClose = { tried.note($0) }
        try await RunningHub.with(backend) { running in
            var sockets: [LiveSocket] = []
            for user in ["away", "here"] { sockets.append(try await running.open(user, connection: user).synced()) }
            func tries(_ connection: String) -> Int { tried.all.filter { $0 == connection }.count }
            absent.note(["away"])
            for socket in sockets { try await socket.on { session, _ in session.end() } }
            try await eventually("it is tried again") { tries("away") > 2 && tries("here") > 0 }
            #expect(tries("here") == 1)
            let before = tries("away")
            absent.note(["none"])
            try await eventually("it is removed") { tries("away") > before }
            // A departure that is recorded is not repeated by those that follow it.
            let after = tries("away")
            let next = try await running.open("next", connection: "next").synced()
            try await next.on { session, _ in session.end() }
            try await eventually("the next is removed") { tries("next") == 1 }
            #expect(tries("away") == after)
        }
    }

    @Test("tries no step again once it is cancelled")
    func cancelled() async throws {
        let gate = Gate()
        let tries = Notes<Int>()
        try await RunningHub.with(ScriptedBackend(), gate: gate) { running in
            let hub = running.hub
            let task = Task {
                await hub.persist("departures", tries: 10, count: 1) {
                    tries.note([1])
                    await gate.wait()
                    throw Outage()
                }
            }
            try await eventually("it is tried") { !tries.all.isEmpty }
            task.cancel()
            await gate.open()
            await task.value
            #expect(tries.all.count == 1)
        }
    }

    @Test("logs the loss of items that it does not try to record")
    func lost() async {
        let lines = LogRecorder { event in "\(event.message)" }
        let hub = SocketHub(
            eventLoopGroup: MultiThreadedEventLoopGroup.singleton.next(),
            configuration: SocketConfiguration(),
            backend: ScriptedBackend(),
            logger: lines.logger,
            now: { Timestamp(seconds: 1_795_000_000) }
        )
        let gate = Gate()
        let task = Task {
            await gate.wait()
            await hub.persist("proofs", tries: 3, count: 2) {}
        }
        task.cancel()
        await gate.open()
        await task.value
        #expect(lines.all == ["lost proofs that could not be recorded"])
    }

    @Test("says goodbye to the sockets of a loop one by one, over all of the time for it")
    func drain() throws {
        let harness = try HubHarness()
        let wires = (0..<5).map { harness.open("user-\($0)", .native).wire }
        harness.hub.shard(on: harness.eventLoop)?.drain(over: .seconds(5))
        var goodbyes: [Int] = []
        for _ in wires {
            harness.eventLoop.run()
            goodbyes.append(wires.count { if case .restart? = $0.end { true } else { false } })
            harness.eventLoop.advanceTime(by: .seconds(1))
        }
        #expect(goodbyes == [1, 2, 3, 4, 5])
    }

    @Test("closes a socket that connects while its loop drains, and does not register its presence")
    func late() throws {
        let harness = try HubHarness()
        harness.hub.shard(on: harness.eventLoop)?.drain(over: .seconds(5))
        let (session, wire) = harness.open("ada", .native)
        let isGoodbye = if case .restart? = wire.end { true } else { false }
        #expect(isGoodbye)
        // No opening waits for the backend.
        #expect(session.turn == nil)
    }
}

@Suite("Proofs that the hub records", .timeLimit(.minutes(10)))
struct HubProofTests {
    private static let now = Timestamp(seconds: 1_795_000_000)

    private static func proof(_ number: UInt64) -> ReceiptProof {
        ReceiptProof(user: "a", id: NotificationID(high: 1, low: number), awaitingLane: .normal, at: Self.now)
    }

    @Test("records proofs while Redis does not take what follows earlier ones")
    func outage() async throws {
        let gate = Gate()
        let recorded = Notes<UInt64>()
        let finished = Notes<UInt64>()
        var backend = ScriptedBackend()
        backend.onConfirm = { proofs in recorded.note(proofs.map(\.id.low)) }
        backend.onSettle = { batch in
            finished.note(batch.proofs.map(\.id.low))
            await gate.wait()
        }
        try await RunningHub.with(backend, gate: gate) { running in
            running.hub.enqueueProofs([Self.proof(1)])
            try await eventually("the first waits for Redis") { finished.all == [1] }
            running.hub.enqueueProofs([Self.proof(2), Self.proof(3)])
            try await eventually("the others are recorded") { recorded.all == [1, 2, 3] }
            #expect(finished.all == [1])
            await gate.open()
            try await eventually("Redis takes the rest in order") { finished.all == [1, 2, 3] }
        }
    }

    @Test("records all proofs when it stops, and takes what follows them")
    func stops() async throws {
        let gate = Gate()
        let recorded = Notes<UInt64>()
        let finished = Notes<UInt64>()
        var backend = ScriptedBackend()
        backend.onConfirm = { proofs in
            recorded.note(proofs.map(\.id.low))
            await gate.wait()
        }
        backend.onSettle = { batch in finished.note(batch.proofs.map(\.id.low)) }
        let hub = SocketHub(
            eventLoopGroup: MultiThreadedEventLoopGroup.singleton.next(),
            configuration: SocketConfiguration(),
            backend: backend,
            logger: TestLog.logger,
            now: { Self.now }
        )
        let group = ServiceGroup(
            configuration: ServiceGroupConfiguration(services: [.init(service: hub)], logger: TestLog.logger))
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            tasks.addTask { try await group.run() }
            hub.enqueueProofs([Self.proof(1)])
            try await eventually("the first is being recorded") { recorded.all == [1] }
            hub.enqueueProofs([Self.proof(2)])
            await group.triggerGracefulShutdown()
            try await eventually("the hub takes no more") { !hub.presence.ghosts.offer("a") }
            await gate.open()
            try await tasks.waitForAll()
        }
        #expect(finished.all == [1, 2])
    }
}
