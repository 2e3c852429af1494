// Carillon · EarlyCallTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Testing

@testable import Sockets

@Suite("Calls before the first sync", .timeLimit(.minutes(10)))
struct EarlyCallTests {
    private struct Outage: Error {}

    @Test("they are answered after it, faults too")
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
            // What was asked later is answered already: theirs would be too.
            try await other.say(.unread)
            try await eventually("the other one is answered") { try await other.on { $1.answers == [.unread(0)] } }
            #expect(try await socket.on { $1.answers.isEmpty })
            await gate.open()
            try await eventually("both are answered") { try await socket.on { $1.answers.count == 2 } }
            let answers = try await socket.on { $1.answers }
            #expect(answers.contains(.unread(0)))
            #expect(answers.contains(.error("the change could not be made, try again")))
            #expect(try await socket.on { $1.syncs } == [ScriptedBackend.version])
        }
    }

    @Test("so many may wait; the next one is told to try again")
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
