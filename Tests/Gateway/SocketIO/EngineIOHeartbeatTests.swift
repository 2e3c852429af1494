// Carillon · EngineIOHeartbeatTests.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols
import Testing

@Suite("Heartbeat of a session", .timeLimit(.minutes(10)))
struct EngineIOHeartbeatTests {
    private static let configuration = EngineIOConfiguration(pingInterval: 300, pingTimeout: 200)

    @Test("The server pings an interval after the open, and an interval after each pong")
    func rounds() {
        var trace = SessionTrace(polling: Self.configuration)
        var now: Milliseconds = 0
        for round in 0..<3 as Range<UInt64> {
            _ = trace.get(10 + round, at: now)
            #expect(trace.session.nextDeadline == now + 300)
            #expect(trace.tick(now + 299) == [])
            #expect(trace.tick(now + 300) == ["#\(10 + round) 200 2"])
            now += 450
            #expect(trace.post(20 + round, "3", at: now) == ["#\(20 + round) 200 ok"])
        }
        #expect(trace.tick(now + 299) == [])
    }

    @Test("Without a pong in time the session ends; a poll that waits gets the close")
    func timeout() {
        var trace = SessionTrace(polling: Self.configuration)
        _ = trace.get(1)
        _ = trace.tick(300)
        _ = trace.get(2, at: 310)
        #expect(trace.tick(499) == [])
        #expect(trace.tick(500) == ["#2 200 1", "over pingTimeout"])
        #expect(trace.session.nextDeadline == nil)
        #expect(trace.tick(10_000) == [])
    }

    @Test("A ping waits for a poll, and its time runs all the same")
    func noPoll() {
        var trace = SessionTrace(polling: Self.configuration)
        #expect(trace.tick(300) == [])
        #expect(trace.get(1, at: 400) == ["#1 200 2"])
        #expect(trace.tick(500) == ["over pingTimeout"])
    }

    @Test("A request does what is due first, so that a session that is over never looks alive")
    func requestsTick() {
        var trace = SessionTrace(polling: Self.configuration)
        #expect(trace.get(1, at: 300) == ["#1 200 2"])
        let refusal = #"400 {"code":1,"message":"Session ID unknown"}"#
        #expect(trace.get(2, at: 500) == ["over pingTimeout", "#2 \(refusal)"])
        #expect(trace.startPost(3, at: 501) == ["#3 \(refusal)"])
    }

    @Test("A post that is in flight is refused when the pong is overdue")
    func postInFlight() {
        var trace = SessionTrace(polling: Self.configuration)
        _ = trace.tick(300)
        _ = trace.startPost(1, at: 400)
        let refused = ["#1 400 {\"code\":3,\"message\":\"Bad request\"}", "over pingTimeout"]
        #expect(trace.finishPost(1, "3", at: 500) == refused)
    }

    @Test("A tick that comes late leaves the client at least half of its time")
    func lateTick() {
        for (late, deadline) in [(0, 500), (60, 500), (100, 500), (150, 550), (5_000, 5_400)] {
            var trace = SessionTrace(webSocket: Self.configuration)
            #expect(trace.tick(300 + Milliseconds(late)) == ["~0 2"])
            #expect(trace.session.nextDeadline == Milliseconds(deadline))
        }
    }

    @Test("On a WebSocket the same, and its end closes it")
    func webSocket() {
        var trace = SessionTrace(webSocket: Self.configuration)
        #expect(trace.tick(300) == ["~0 2"])
        #expect(trace.text(0, "3", at: 350) == [])
        #expect(trace.tick(649) == [])
        #expect(trace.tick(650) == ["~0 2"])
        #expect(trace.tick(850) == ["~0 closed 4408", "over pingTimeout"])
    }

    @Test("A pong that nobody asked for moves nothing")
    func unasked() {
        var trace = SessionTrace(webSocket: Self.configuration)
        #expect(trace.text(0, "3", at: 200) == [])
        #expect(trace.session.nextDeadline == 300)
    }

    @Test("During an upgrade pings keep to polling, past the messages that wait")
    func upgrade() {
        var trace = SessionTrace(polling: Self.configuration)
        _ = trace.open(9, at: 280)
        #expect(trace.text(9, "2probe", at: 280) == ["~9 3probe"])
        #expect(trace.get(1, at: 290) == [])
        #expect(trace.send("a") == [])
        #expect(trace.tick(300) == ["#1 200 2"])
        #expect(trace.post(2, "3", at: 310) == ["#2 200 ok"])
        #expect(trace.tick(610) == [])
        #expect(trace.get(3, at: 620) == [])
        #expect(trace.tick(720) == ["#3 200 2"])
        #expect(trace.text(9, "5", at: 730) == ["~9 upgraded", "~9 4a"])
        #expect(trace.text(9, "3", at: 740) == [])
        #expect(trace.session.nextDeadline == 1_040)
    }

    @Test("A ping that no poll fetched during the upgrade follows to the WebSocket, and a waiting poll gets a noop")
    func upgradeTakesPing() {
        var trace = SessionTrace(polling: Self.configuration)
        _ = trace.open(9, at: 280)
        _ = trace.text(9, "2probe", at: 280)
        #expect(trace.send("a") == [])
        #expect(trace.tick(300) == [])
        #expect(trace.get(1, at: 310) == [])
        #expect(trace.text(9, "5", at: 320) == ["#1 200 6", "~9 upgraded", "~9 4a", "~9 2"])
    }
}
