// Carillon · EngineIOUpgradeTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Protocols

@Suite("Engine.IO on a WebSocket from the start", .timeLimit(.minutes(10)))
struct EngineIOWebSocketTests {
    private static let configuration = EngineIOConfiguration()

    @Test("sends the handshake as one text frame without upgrades")
    func handshake() {
        var actions: [EngineIOAction] = []
        let session = EngineIOStateMachine(
            sid: "S", webSocket: EngineIOCarrier(3), configuration: Self.configuration, now: 0, into: &actions)
        let json = EngineIOHandshake.json(sid: "S", transport: .webSocket, configuration: Self.configuration)
        #expect(actions == [.sendText(EngineIOCarrier(3), [0x30] + json)])
        #expect(session.transport == .webSocket)
    }

    @Test("carries text and bytes both ways, one message per frame")
    func messages() {
        var trace = SessionTrace(webSocket: Self.configuration)
        #expect(trace.text(0, "4hello") == ["up hello"])
        #expect(trace.binary(0, [1, 2]) == ["up [1, 2]"])
        #expect(trace.text(0, "4a\u{1E}4b") == ["up a|4b"])
        #expect(trace.send("a", "b") == ["~0 4a", "~0 4b"])
        #expect(trace.send(bytes: [3]) == ["~0 [3]"])
        #expect(trace.session.messagesSent == 3)
        #expect(trace.session.messagesProven == 0)
    }

    @Test("ends the session on an invalid packet", arguments: ["abc", "", "bAQID", "7"])
    func parseError(text: String) {
        var trace = SessionTrace(webSocket: Self.configuration)
        #expect(trace.text(0, text) == ["~0 closed 1002", "over parseError"])
        #expect(trace.text(0, "4a") == [])
    }

    @Test("ends the session on the client's close, its ping, or the loss of the WebSocket")
    func ends() {
        var closing = SessionTrace(webSocket: Self.configuration)
        #expect(closing.text(0, "1") == ["~0 closed 1000", "over transportClose"])
        var pinging = SessionTrace(webSocket: Self.configuration)
        #expect(pinging.text(0, "2") == ["~0 closed 1002", "over pingFromClient"])
        var lost = SessionTrace(webSocket: Self.configuration)
        #expect(lost.closed(0) == ["over transportClose"])
        #expect(lost.closed(0) == [])
        var failed = SessionTrace(webSocket: Self.configuration)
        #expect(failed.closed(0, failed: true) == ["over transportError"])
        #expect(failed.send("a") == [])
    }

    @Test("refuses polling and other WebSockets with its id and continues")
    func others() {
        var trace = SessionTrace(webSocket: Self.configuration)
        let bad = #"400 {"code":3,"message":"Bad request"}"#
        #expect(trace.get(1) == ["#1 \(bad)"])
        #expect(trace.startPost(2) == ["#2 \(bad)"])
        #expect(trace.open(4) == ["~4 closed 1008"])
        #expect(trace.text(4, "4stray") == [])
        #expect(trace.closed(4) == [])
        #expect(trace.text(0, "4a") == ["up a"])
    }

    @Test("closes with the code of the owner's reason")
    func close() {
        let table: [(EngineIOCloseReason, Int)] = [
            (.forcedClose, 1000), (.serverShuttingDown, 1012), (.parseError, 1002), (.tooMuchWaiting, 4408),
            (.tryAgainLater, 1013), (.tokenExpired, 4401),
        ]
        for (reason, code) in table {
            var trace = SessionTrace(webSocket: Self.configuration)
            #expect(trace.close(reason) == ["~0 closed \(code)", "over \(reason.rawValue)"])
            #expect(trace.close(reason) == [])
        }
    }
}

@Suite("Upgrade from polling to a WebSocket", .timeLimit(.minutes(10)))
struct EngineIOUpgradeTests {
    private static let bad = #"400 {"code":3,"message":"Bad request"}"#

    @Test("answers the probe and moves the session to the WebSocket on upgrade")
    func upgrades() {
        var trace = SessionTrace()
        #expect(trace.open(9) == [])
        #expect(trace.text(9, "2probe") == ["~9 3probe"])
        #expect(trace.text(9, "5") == ["~9 upgraded"])
        #expect(trace.session.transport == .webSocket)
        #expect(trace.text(9, "4hello") == ["up hello"])
        #expect(trace.send("a") == ["~9 4a"])
        #expect(trace.get(1) == ["#1 \(Self.bad)"])
        #expect(trace.startPost(2) == ["#2 \(Self.bad)"])
        #expect(trace.open(8) == ["~8 closed 1008"])
        #expect(trace.send("b") == ["~9 4b"])
        #expect(trace.closed(9) == ["over transportClose"])
    }

    @Test("releases polls with a noop within 100 ms of the probe, both earlier and later ones")
    func releases() {
        var trace = SessionTrace()
        _ = trace.get(1, at: 10)
        _ = trace.open(9, at: 20)
        #expect(trace.tick(500) == [])
        #expect(trace.text(9, "2probe", at: 1_000) == ["~9 3probe"])
        #expect(trace.session.nextDeadline == 1_100)
        #expect(trace.tick(1_099) == [])
        #expect(trace.tick(1_100) == ["#1 200 6"])
        #expect(trace.get(2, at: 1_150) == [])
        #expect(trace.tick(1_250) == ["#2 200 6"])
        #expect(trace.session.nextDeadline == 10_020)
    }

    @Test("holds messages from the probe on and sends them in order on the WebSocket only")
    func waits() {
        var trace = SessionTrace()
        #expect(trace.open(9) == [])
        _ = trace.get(1)
        #expect(trace.send("before") == ["#1 200 4before"])
        _ = trace.get(2)
        _ = trace.text(9, "2probe")
        #expect(trace.send("a", "b") == [])
        #expect(trace.send(bytes: [7]) == [])
        #expect(trace.tick(100) == ["#2 200 6"])
        #expect(trace.text(9, "5", at: 110) == ["~9 upgraded", "~9 4a", "~9 4b", "~9 [7]"])
        #expect(trace.send("c") == ["~9 4c"])
    }

    @Test("releases a poll that still waits at the upgrade")
    func releasedByUpgrade() {
        var trace = SessionTrace.probed()
        _ = trace.get(1)
        #expect(trace.text(9, "5") == ["#1 200 6", "~9 upgraded"])
    }

    @Test("accepts posts until the upgrade, including one that began before it")
    func posts() {
        var trace = SessionTrace.probed()
        #expect(trace.post(1, "4a") == ["#1 200 ok", "up a"])
        _ = trace.startPost(2)
        _ = trace.text(9, "5")
        #expect(trace.finishPost(2, "4b") == ["#2 200 ok", "up b"])
        #expect(trace.text(9, "4c") == ["up c"])
    }

    @Test(
        "closes only the WebSocket if its first packet is not a probe",
        arguments: ["5", "4a", "2", "2prob", "3probe", "1", "abc", "", "6"])
    func wrongFirst(text: String) {
        var trace = SessionTrace()
        _ = trace.get(1)
        _ = trace.open(9)
        #expect(trace.text(9, text) == ["~9 closed 1002"])
        #expect(trace.send("a") == ["#1 200 4a"])
        #expect(trace.open(8) == [])
        #expect(trace.text(8, "2probe") == ["~8 3probe"])
    }

    @Test("closes only the WebSocket if no upgrade follows the probe, and sends waiting packets to the poll")
    func wrongSecond() {
        for text in ["4a", "1", "abc", "3"] {
            var trace = SessionTrace.probed()
            _ = trace.get(1)
            #expect(trace.send("m") == [])
            #expect(trace.text(9, text) == ["~9 closed 1002", "#1 200 4m"])
            #expect(trace.text(9, "5") == [])
            #expect(trace.get(2) == [])
            #expect(trace.tick(200) == [])
        }
        var binary = SessionTrace.probed()
        #expect(binary.binary(9, [1]) == ["~9 closed 1002"])
        #expect(binary.session.transport == .polling)
    }

    @Test("answers a second probe")
    func probesAgain() {
        var trace = SessionTrace.probed()
        #expect(trace.text(9, "2probe") == ["~9 3probe"])
        #expect(trace.text(9, "5") == ["~9 upgraded"])
    }

    @Test("keeps polling when the probing WebSocket closes", arguments: [false, true])
    func lost(failed: Bool) {
        var trace = SessionTrace.probed()
        _ = trace.get(1)
        _ = trace.send("m")
        #expect(trace.closed(9, failed: failed) == ["#1 200 4m"])
        #expect(trace.get(2) == [])
        #expect(trace.send("n") == ["#2 200 4n"])
    }

    @Test("closes the WebSocket without an upgrade in time and continues polling", arguments: [false, true])
    func timeout(isProbed: Bool) {
        var trace = SessionTrace()
        _ = trace.open(9, at: 100)
        if isProbed { _ = trace.text(9, "2probe", at: 200) }
        #expect(trace.tick(10_099) == [])
        #expect(trace.tick(10_100) == ["~9 closed 1000"])
        #expect(trace.text(9, "5", at: 10_101) == [])
        _ = trace.get(1, at: 10_102)
        #expect(trace.send("a") == ["#1 200 4a"])
    }

    @Test("closes a second WebSocket while the first upgrades")
    func second() {
        var trace = SessionTrace()
        _ = trace.open(9)
        #expect(trace.open(8) == ["~8 closed 1008"])
        #expect(trace.text(9, "2probe") == ["~9 3probe"])
        #expect(trace.text(9, "5") == ["~9 upgraded"])
    }

    @Test("closes the probing WebSocket when the session ends")
    func sessionEnds() {
        var trace = SessionTrace.probed()
        #expect(trace.post(1, "1") == ["#1 200 ok", "~9 closed 1000", "over transportClose"])
    }

    @Test("proves by the upgrade what polling answered before it, and nothing later")
    func proof() {
        var trace = SessionTrace()
        _ = trace.send("a", "b")
        _ = trace.get(1)
        _ = trace.open(9)
        _ = trace.text(9, "2probe")
        _ = trace.send("c")
        #expect(trace.session.messagesProven == 0)
        _ = trace.text(9, "5")
        #expect(trace.session.messagesProven == 2)
        #expect(trace.session.messagesSent == 3)
        _ = trace.send("d")
        #expect(trace.session.messagesProven == 2)
        #expect(trace.session.messagesSent == 4)
    }

    @Test("proves earlier answers by a poll that is released with a noop")
    func noopProof() {
        var trace = SessionTrace()
        _ = trace.send("a")
        _ = trace.get(1)
        _ = trace.open(9)
        _ = trace.text(9, "2probe")
        _ = trace.send("b")
        _ = trace.get(2)
        #expect(trace.session.messagesProven == 1)
        #expect(trace.tick(100) == ["#2 200 6"])
        _ = trace.get(3, at: 110)
        #expect(trace.session.messagesProven == 1)
    }
}
