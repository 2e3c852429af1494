// Carillon · EngineIOClosingTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Protocols

@Suite("Engine.IO heartbeat", .timeLimit(.minutes(10)))
struct EngineIOHeartbeatTests {
    private static let configuration = EngineIOConfiguration(pingInterval: 300, pingTimeout: 200)

    @Test("pings one interval after the open and after each pong")
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

    @Test("ends the session without a pong in time and sends the close to a waiting poll")
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

    @Test("starts the pong's timeout even while the ping waits for a poll")
    func noPoll() {
        var trace = SessionTrace(polling: Self.configuration)
        #expect(trace.tick(300) == [])
        #expect(trace.get(1, at: 400) == ["#1 200 2"])
        #expect(trace.tick(500) == ["over pingTimeout"])
    }

    @Test("a request is handled before its client counts as silent, because a pong may follow")
    func requestsTick() {
        var trace = SessionTrace(polling: Self.configuration)
        #expect(trace.get(1, at: 300) == ["#1 200 2"])
        #expect(trace.get(2, at: 500) == [])
        #expect(trace.tick(500) == ["#2 200 1", "over pingTimeout"])
        #expect(trace.startPost(3, at: 501) == [#"#3 400 {"code":1,"message":"Session ID unknown"}"#])
    }

    @Test("a pong that was read late counts, if the session has not ended")
    func latePong() {
        var polling = SessionTrace(polling: Self.configuration)
        _ = polling.tick(300)
        _ = polling.startPost(1, at: 400)
        #expect(polling.finishPost(1, "3", at: 60_000) == ["#1 200 ok"])
        #expect(polling.session.nextDeadline == 60_300)

        var webSocket = SessionTrace(webSocket: Self.configuration)
        #expect(webSocket.tick(300) == ["~0 2"])
        #expect(webSocket.text(0, "4a", at: 60_000) == ["up a"])
        #expect(webSocket.text(0, "3", at: 60_000) == [])
        #expect(webSocket.tick(60_299) == [])
    }

    @Test("refuses a post in flight when the pong is overdue")
    func postInFlight() {
        var trace = SessionTrace(polling: Self.configuration)
        _ = trace.tick(300)
        _ = trace.startPost(1, at: 400)
        #expect(trace.tick(500) == [#"#1 400 {"code":3,"message":"Bad request"}"#, "over pingTimeout"])
        #expect(trace.finishPost(1, "3", at: 500) == [])
    }

    @Test("leaves the client at least half of its time after a late tick")
    func lateTick() {
        for (late, deadline) in [(0, 500), (60, 500), (100, 500), (150, 550), (5_000, 5_400)] {
            var trace = SessionTrace(webSocket: Self.configuration)
            #expect(trace.tick(300 + Milliseconds(late)) == ["~0 2"])
            #expect(trace.session.nextDeadline == Milliseconds(deadline))
        }
    }

    @Test("does the same on a WebSocket and closes it at the end")
    func webSocket() {
        var trace = SessionTrace(webSocket: Self.configuration)
        #expect(trace.tick(300) == ["~0 2"])
        #expect(trace.text(0, "3", at: 350) == [])
        #expect(trace.tick(649) == [])
        #expect(trace.tick(650) == ["~0 2"])
        #expect(trace.tick(850) == ["~0 closed 4408", "over pingTimeout"])
    }

    @Test("ignores an unsolicited pong")
    func unasked() {
        var trace = SessionTrace(webSocket: Self.configuration)
        #expect(trace.text(0, "3", at: 200) == [])
        #expect(trace.session.nextDeadline == 300)
    }

    @Test("sends pings over polling during an upgrade, ahead of waiting messages")
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

    @Test("sends a ping that no poll fetched over the WebSocket, and a noop to a waiting poll")
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

@Suite("Closing a polling session", .timeLimit(.minutes(10)))
struct EngineIOClosingTests {
    @Test("sends the close to a waiting poll and ends the session")
    func pending() {
        var trace = SessionTrace()
        _ = trace.get(1)
        #expect(trace.close() == ["#1 200 1", "over forcedClose"])
    }

    @Test("sends noop and close to the next poll within 30 s")
    func next() {
        var trace = SessionTrace()
        #expect(trace.close(at: 1_000) == [])
        #expect(!trace.session.isOpen)
        #expect(trace.session.transport == .polling)
        #expect(trace.session.nextDeadline == 31_000)
        #expect(trace.get(1, at: 30_999) == ["#1 200 6|1", "over forcedClose"])
        #expect(trace.get(2, at: 31_000) == [#"#2 400 {"code":1,"message":"Session ID unknown"}"#])
    }

    @Test(
        "closes like a lost server on shutdown, overload or an expired token, so that the client reconnects",
        arguments: [EngineIOCloseReason.serverShuttingDown, .tryAgainLater, .tokenExpired])
    func comesBack(_ reason: EngineIOCloseReason) {
        let unknown = #"400 {"code":1,"message":"Session ID unknown"}"#
        var pending = SessionTrace()
        _ = pending.get(1)
        #expect(pending.close(reason) == ["#1 \(unknown)", "over \(reason)"])

        var stranger = SessionTrace()
        _ = stranger.get(1)
        #expect(stranger.close(reason, lingers: false) == ["#1 \(unknown)", "over \(reason)"])

        var next = SessionTrace()
        #expect(next.close(reason, at: 1_000) == [])
        #expect(next.get(1, at: 30_999) == ["#1 \(unknown)", "over \(reason)"])

        var waiting = SessionTrace()
        _ = waiting.send("a", "b")
        _ = waiting.close(reason)
        #expect(waiting.get(1) == ["#1 200 4a|4b", "over \(reason)"])
        #expect(waiting.get(2) == ["#2 \(unknown)"])
    }

    @Test("ends after 30 s without a poll")
    func lingers() {
        var trace = SessionTrace()
        _ = trace.close(at: 1_000)
        #expect(trace.tick(30_999) == [])
        #expect(trace.tick(31_000) == ["over forcedClose"])
        #expect(trace.session.nextDeadline == nil)
    }

    @Test("ends at once without lingering, and closes a waiting poll and a WebSocket")
    func impatient() {
        var trace = SessionTrace()
        _ = trace.send("a")
        #expect(trace.close(lingers: false, at: 1_000) == ["over forcedClose"])
        #expect(trace.session.nextDeadline == nil)
        #expect(trace.get(1, at: 1_001) == [#"#1 400 {"code":1,"message":"Session ID unknown"}"#])

        var polling = SessionTrace()
        _ = polling.get(1)
        #expect(polling.close(lingers: false) == ["#1 200 1", "over forcedClose"])

        var upgrading = SessionTrace.probed()
        #expect(upgrading.close(lingers: false) == ["~9 closed 1000", "over forcedClose"])
    }

    @Test("delivers waiting packets before the close")
    func waiting() {
        var trace = SessionTrace()
        _ = trace.send("a", "b")
        _ = trace.close()
        #expect(trace.get(1) == ["#1 200 4a|4b|1", "over forcedClose"])

        var long = SessionTrace()
        for number in 0..<20 { _ = long.send("\(number)") }
        _ = long.close()
        let first = (0..<15).map { "4\($0)" }.joined(separator: "|")
        #expect(long.get(1) == ["#1 200 \(first)"])
        #expect(long.get(2) == ["#2 200 415|416|417|418|419|1", "over forcedClose"])
    }

    @Test("does not deliver packets that were discarded before the close")
    func discarded() {
        var trace = SessionTrace()
        _ = trace.send("a", "b")
        trace.session.discardWaiting()
        #expect(trace.session.waitingBytes == 0)
        _ = trace.send("reason")
        _ = trace.close()
        #expect(trace.get(1) == ["#1 200 4reason|1", "over forcedClose"])
    }

    @Test("keeps a ping when packets are discarded, and proves what is sent later")
    func discardedOnly() {
        var trace = SessionTrace()
        _ = trace.send("a", "b")
        #expect(trace.tick(25_000) == [])
        trace.session.discardWaiting()
        _ = trace.send("c")
        #expect(trace.get(1, at: 25_001) == ["#1 200 2|4c"])
        _ = trace.get(2, at: 25_002)
        #expect(trace.session.messagesSent == 1 && trace.session.messagesProven == 1)
    }

    @Test("accepts and delivers nothing while closing, and sends no pings")
    func nothing() {
        var trace = SessionTrace()
        _ = trace.close(at: 24_000)
        #expect(trace.send("late") == [])
        #expect(trace.session.messagesSent == 0)
        #expect(trace.post(1, "4a|2|3", at: 24_001) == ["#1 200 ok"])
        #expect(trace.tick(25_000) == [])
        #expect(trace.close(.serverShuttingDown, at: 25_001) == [])
        #expect(trace.open(9, at: 25_002) == ["~9 closed 1008"])
        #expect(trace.post(2, "1", at: 25_003) == ["#2 200 ok", "over transportClose"])
    }

    @Test("closes the WebSocket of an upgrade and sends waiting packets and the close to the poll")
    func upgrading() {
        var trace = SessionTrace.probed()
        _ = trace.get(1)
        _ = trace.send("a")
        #expect(trace.close() == ["~9 closed 1000", "#1 200 4a|1", "over forcedClose"])

        var alone = SessionTrace.probed()
        #expect(alone.close() == ["~9 closed 1000"])
        #expect(alone.text(9, "5") == [])
        #expect(alone.get(1) == ["#1 200 6|1", "over forcedClose"])
    }

    @Test("refuses a post in flight at the end")
    func post() {
        var trace = SessionTrace()
        _ = trace.get(1)
        _ = trace.startPost(2)
        #expect(trace.close() == ["#1 200 1", #"#2 400 {"code":3,"message":"Bad request"}"#, "over forcedClose"])
        #expect(trace.finishPost(2, "4a") == [])
    }

    @Test("keeps an idle session small and without further allocations")
    func size() {
        #expect(MemoryLayout<EngineIOStateMachine>.size <= 192)
        #expect(MemoryLayout<SocketIOStateMachine>.size <= 112)
    }
}
