// Carillon · DepartureTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@testable import Sockets

@Suite("Sockets that leave", .timeLimit(.minutes(10)))
struct DepartureTests {
    private struct Outage: Error {}

    @Test(
        "one that leaves while it is being registered is taken back, also if nothing of it is left by then",
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

    @Test("a frame that finds nobody removes the presence that stayed behind, not one that comes meanwhile")
    func ghosts() async throws {
        let gate = Gate()
        let asked = Notes<String>()
        let closed = Notes<String>()
        var backend = ScriptedBackend()
        backend.onRegistered = { user in
            asked.note([user])
            await gate.wait()
            return ["gone", "c"]
        }
        backend.onClose = { closed.note($0) }
        try await RunningHub.with(backend, gate: gate) { running in
            _ = try await running.open("b", connection: "b").synced()
            running.hub.deliver([HubHarness.notification("b", 5), HubHarness.notification("a", 5)])
            try await eventually("its presence is looked up, nobody else's") { asked.all == ["a"] }
            _ = try await running.open("a").synced()
            await gate.open()
            try await eventually("what stayed behind is removed") { closed.all == ["gone"] }
        }
    }

    @Test("nobody is found missing before every loop has said so")
    func tally() {
        let tally = MissTally(shards: 3)
        #expect(tally.note([ExactText("a"), ExactText("b")]).isEmpty)
        #expect(tally.note([ExactText("a"), ExactText("b")]).isEmpty)
        #expect(tally.note([ExactText("b")]) == [ExactText("b")])
        // A loop that is too far behind to look knows everyone.
        let other = MissTally(shards: 2)
        #expect(other.note([ExactText("a")]).isEmpty)
        #expect(other.note([]).isEmpty)
    }
}
