// Carillon · ResumeTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@testable import Sockets

@Suite("A client that resumes", .timeLimit(.minutes(10)))
struct ResumeTests {
    @Test("what is asked for before the inbox was read is answered after the first sync")
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

    @Test("what is asked for while a hole is filled is asked after it")
    func hole() async throws {
        let gate = Gate()
        let asked = Notes<Int64>()
        var backend = ScriptedBackend()
        backend.onChanges = { questions in
            asked.note(questions.map(\.since))
            await gate.wait()
        }
        try await RunningHub.with(backend, gate: gate, { $0.holdTime = .zero }) { running in
            let socket = try await running.open("a").synced()
            running.hub.deliver([HubHarness.notification("a", 7)])
            try await eventually("the hole is asked for") { asked.all == [4] }
            try await socket.say(.resume(version: 3), reference: "8")
            try await socket.say(.resume(version: 1), reference: "9")
            await gate.open()
            try await eventually("both are answered") {
                try await socket.on { $1.references.compactMap(\.self) == ["8", "9"] }
            }
            #expect(asked.all.filter { $0 < 4 } == [3, 1])
        }
    }

    @Test("an answer comes also where nothing changed, and after a reading that failed")
    func unchanged() async throws {
        struct Outage: Error {}
        let asked = Notes<Int64>()
        var backend = ScriptedBackend()
        backend.onChanges = { questions in
            asked.note(questions.map(\.since))
            if asked.all.count == 1 { throw Outage() }
        }
        try await RunningHub.with(backend) { running in
            let socket = try await running.open("a").synced()
            try await socket.say(.resume(version: ScriptedBackend.version), reference: "7")
            try await eventually("it is answered") { try await socket.on { $1.references == [nil, "7"] } }
            #expect(asked.all == [4, 4])
        }
    }

    @Test("so many may wait; the next one is told to try again")
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
