// Carillon · RefusedWriteTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@testable import Sockets

@Suite("Presence while Redis refuses writes", .timeLimit(.minutes(10)))
struct RefusedWriteTests {
    private struct Refusal: Error {}

    @Test("removes a socket once Redis takes it, and does not keep others waiting")
    func departures() async throws {
        let refused = Notes<String>()
        let tried = Notes<String>()
        let closed = Notes<String>()
        var backend = ScriptedBackend()
        backend.onClose = { connections in
            tried.note(connections)
            if let last = refused.all.last, connections.contains(last) { throw Refusal() }
            closed.note(connections)
        }
        try await RunningHub.with(backend) { running in
            let first = try await running.open("a", connection: "first").synced()
            let second = try await running.open("b", connection: "second").synced()
            refused.note(["first"])
            try await first.on { session, _ in session.end() }
            try await eventually("its departure is refused") { !tried.all.isEmpty }
            try await second.on { session, _ in session.end() }
            try await eventually("the other is removed") { closed.all == ["second"] }
            let before = tried.all.count
            try await eventually("it is tried again") { tried.all.count > before }
            refused.note(["none"])
            try await eventually("it is removed, too") { closed.all == ["second", "first"] }
        }
    }

    @Test("reports a focus change until Redis takes it, as the focus is by then")
    func focus() async throws {
        let isOver = Notes<Bool>()
        let tried = Notes<ConnectionPresence.State>()
        let recorded = Notes<ConnectionPresence.State>()
        var backend = ScriptedBackend()
        backend.onSetStates = { changes in
            tried.note(changes.map(\.state))
            if isOver.all.isEmpty { throw Refusal() }
            recorded.note(changes.map(\.state))
        }
        try await RunningHub.with(backend) { running in
            let socket = try await running.open("a").synced()
            try await socket.say(.focus(isActive: false))
            try await eventually("the change is refused") { !tried.all.isEmpty }
            try await socket.say(.focus(isActive: true))
            try await eventually("the newer one is tried again and again") {
                tried.all.count { $0 == .active } > 3
            }
            isOver.note([true])
            try await eventually("it is recorded") { !recorded.all.isEmpty }
            #expect(recorded.all == [.active], "both changes are one by then")
        }
    }
}
