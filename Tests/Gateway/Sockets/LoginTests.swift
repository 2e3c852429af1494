// Carillon · LoginTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import Support
import Testing

@testable import Sockets

@Suite("Logins by the first message", .timeLimit(.minutes(10)))
struct LoginTests {
    @Test("reads of a database that stalls keep nobody from logging in")
    func stalledReads() async throws {
        let gate = Gate()
        let reads = Notes<Int>()
        var backend = ScriptedBackend()
        backend.onUnread = {
            reads.note([1])
            await gate.wait()
        }
        try await RunningHub.with(backend, gate: gate) { running in
            let reader = try await running.open("reader").synced()
            for _ in 0..<50 { try await reader.say(.unread) }
            try await eventually("every worker reads") { reads.all.count >= 8 }
            let socket = try await running.open(nil, connection: "late")
            try await socket.say(.auth(token: "ada"))
            _ = try await socket.synced()
            #expect(try await reader.on { $1.answers.isEmpty })
        }
    }

    @Test("at the deadline a client whose token is being checked may come again, one that gave none may not")
    func deadline() throws {
        let harness = try HubHarness()
        let late = NIODeadline.now() + .seconds(11)
        let wallClock = Timestamp(seconds: 1_795_000_000)
        let (silent, silence) = harness.open(nil, .native)
        silent.tick(now: late, wallClock: wallClock)
        #expect(silence.end == .unauthorized("no credential came in time"))
        // No task of the hub runs, so that it waits for ever.
        let (waiting, wait) = harness.open(nil, .native)
        waiting.obey(.auth(token: "t"), reference: nil)
        waiting.tick(now: .now(), wallClock: wallClock)
        #expect(wait.end == nil)
        waiting.tick(now: late, wallClock: wallClock)
        #expect(wait.end == .tryAgainLater)
    }

    @Test("a token that cannot be checked now is not a bad one")
    func refusals() throws {
        let harness = try HubHarness()
        let table: [(Int, SocketAnswer, SocketEnd)] = [
            (503, .busy("down"), .tryAgainLater), (401, .error("down"), .unauthorized("down")),
        ]
        for (status, answer, end) in table {
            let (session, wire) = harness.open(nil, .native)
            session.obey(.auth(token: "t"), reference: nil)
            session.refused(SocketRefusal(status: status, reason: "down"), reference: nil)
            #expect(wire.answers == [answer])
            #expect(wire.end == end)
        }
    }
}
