// Carillon · EngineIOClosingTests.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols
import Testing

@Suite("The server closes a polling session", .timeLimit(.minutes(10)))
struct EngineIOClosingTests {
    @Test("A poll that waits gets the close, and the session is over")
    func pending() {
        var trace = SessionTrace()
        _ = trace.get(1)
        #expect(trace.close() == ["#1 200 1", "over forcedClose"])
    }

    @Test("Without a poll the next one within 30 s gets noop and close")
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
        "Of a server that ends, cannot serve it now or finds its token expired, a client learns as of one that is gone, so that it comes back",
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

    @Test("Without any poll it is over after 30 s")
    func lingers() {
        var trace = SessionTrace()
        _ = trace.close(at: 1_000)
        #expect(trace.tick(30_999) == [])
        #expect(trace.tick(31_000) == ["over forcedClose"])
        #expect(trace.session.nextDeadline == nil)
    }

    @Test("Without the patience to linger it is over at once; a poll and a WebSocket that are there are told")
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

    @Test("What waits is fetched first, the close comes at its end")
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

    @Test("While it closes nothing is taken or delivered, and there are no pings")
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

    @Test("In the middle of an upgrade the WebSocket closes, and the poll gets what waits and the close")
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

    @Test("A post in flight at the end is refused")
    func post() {
        var trace = SessionTrace()
        _ = trace.get(1)
        _ = trace.startPost(2)
        #expect(trace.close() == ["#1 200 1", #"#2 400 {"code":3,"message":"Bad request"}"#, "over forcedClose"])
        #expect(trace.finishPost(2, "4a") == [])
    }

    @Test("An idle session is small and allocates nothing beside itself")
    func size() {
        #expect(MemoryLayout<EngineIOSession>.size <= 192)
        #expect(MemoryLayout<SocketIOConnection>.size <= 112)
    }
}
