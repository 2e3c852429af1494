// Carillon · RepairTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@testable import Sockets

@Suite("Sockets that are registered again", .timeLimit(.minutes(10)))
struct RepairTests {
    @Test("what a client says of its focus meanwhile is not lost")
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
            running.hub.repair()
            try await eventually("it is registered again") { registered.all == ["c"] }
            try await socket.say(.focus(isActive: false))
            try await eventually("its focus is noted") { states.all == [.idle] }
            await gate.open()
            try await eventually("and noted again after the registration") { states.all == [.idle, .idle] }
        }
    }

    @Test("a socket that leaves meanwhile is taken back")
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
            running.hub.repair()
            try await eventually("it is registered again") { registered.all == ["c"] }
            try await socket.on { session, _ in session.end() }
            try await eventually("its departure is recorded") { closed.all == ["c"] }
            await gate.open()
            try await eventually("and recorded again after the registration") { closed.all == ["c", "c"] }
        }
    }

    @Test("what comes as a frame meanwhile is not said again")
    func overtaken() async throws {
        let gate = Gate()
        let asked = Notes<Int64>()
        var backend = ScriptedBackend()
        backend.onChanges = { questions in
            asked.note(questions.map(\.since))
            await gate.wait()
        }
        backend.changed = { _ in
            InboxSnapshot(version: 6, unread: 2, total: 2, items: [HubHarness.item(5), HubHarness.item(6)])
        }
        try await RunningHub.with(backend, gate: gate) { running in
            let socket = try await running.open("a").synced()
            running.hub.repair()
            try await eventually("its inbox is asked for") { asked.all == [4] }
            running.hub.deliver([HubHarness.notification("a", 5)])
            try await eventually("the frame is sent") { try await socket.on { $1.versions == [5] } }
            await gate.open()
            try await eventually("the rest is sent") { try await socket.on { $1.syncs == [4, 6] } }
            #expect(try await socket.on { $1.rows } == [6])
        }
    }

    @Test("a socket that presence has lost is registered again and brought up to date, and no other")
    func audit() async throws {
        let registered = Notes<String>()
        let asked = Notes<Int64>()
        var backend = ScriptedBackend()
        backend.onAreRegistered = { connections in
            connections.map { $0 != "lost" || registered.all.contains("lost") }
        }
        backend.onRegister = { registered.note($0) }
        backend.onChanges = { questions in asked.note(questions.map(\.since)) }
        try await RunningHub.with(backend, { $0.audit = .milliseconds(20) }) { running in
            _ = try await running.open("a", connection: "here").synced()
            _ = try await running.open("b", connection: "lost").synced()
            try await eventually("it is brought up to date") { !asked.all.isEmpty }
            #expect(registered.all == ["lost"])
            #expect(asked.all == [ScriptedBackend.version])
        }
    }

    @Test("a socket that leaves before its turn is not registered again")
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
            running.hub.repair()
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
