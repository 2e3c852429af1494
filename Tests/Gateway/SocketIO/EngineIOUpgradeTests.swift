// Carillon · EngineIOUpgradeTests.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols
import Testing

@Suite("Upgrade from polling to a WebSocket", .timeLimit(.minutes(10)))
struct EngineIOUpgradeTests {
    private static let bad = #"400 {"code":3,"message":"Bad request"}"#

    @Test("Probe, its answer, upgrade; then the session travels on the WebSocket alone")
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

    @Test("From the probe on a poll is released with a noop within 100 ms, one that came before and one after")
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

    @Test("A release without delay answers at once")
    func releasesAtOnce() {
        var trace = SessionTrace(polling: EngineIOConfiguration(upgradeRelease: 0))
        _ = trace.get(1)
        _ = trace.open(9)
        #expect(trace.text(9, "2probe") == ["~9 3probe", "#1 200 6"])
        #expect(trace.get(2) == ["#2 200 6"])
        #expect(EngineIOConfiguration(upgradeRelease: 5_000).upgradeRelease == 100)
    }

    @Test("Messages wait from the probe on and follow in order, on the WebSocket alone")
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

    @Test("A poll that still waits at the upgrade is released")
    func releasedByUpgrade() {
        var trace = SessionTrace.probed()
        _ = trace.get(1)
        #expect(trace.text(9, "5") == ["#1 200 6", "~9 upgraded"])
    }

    @Test("Posts are taken until the upgrade, and one that began before it still counts")
    func posts() {
        var trace = SessionTrace.probed()
        #expect(trace.post(1, "4a") == ["#1 200 ok", "up a"])
        _ = trace.startPost(2)
        _ = trace.text(9, "5")
        #expect(trace.finishPost(2, "4b") == ["#2 200 ok", "up b"])
        #expect(trace.text(9, "4c") == ["up c"])
    }

    @Test(
        "Anything but a probe first closes the WebSocket alone",
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

    @Test("Anything but the upgrade after the probe closes the WebSocket alone, and what waited goes to the poll")
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

    @Test("A second probe is answered again")
    func probesAgain() {
        var trace = SessionTrace.probed()
        #expect(trace.text(9, "2probe") == ["~9 3probe"])
        #expect(trace.text(9, "5") == ["~9 upgraded"])
    }

    @Test("The probing WebSocket's own end leaves polling as it was", arguments: [false, true])
    func lost(failed: Bool) {
        var trace = SessionTrace.probed()
        _ = trace.get(1)
        _ = trace.send("m")
        #expect(trace.closed(9, failed: failed) == ["#1 200 4m"])
        #expect(trace.get(2) == [])
        #expect(trace.send("n") == ["#2 200 4n"])
    }

    @Test("Without the upgrade in time the WebSocket is closed, and polling goes on", arguments: [false, true])
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

    @Test("While one WebSocket upgrades another is closed, and the first goes on")
    func second() {
        var trace = SessionTrace()
        _ = trace.open(9)
        #expect(trace.open(8) == ["~8 closed 1008"])
        #expect(trace.text(9, "2probe") == ["~9 3probe"])
        #expect(trace.text(9, "5") == ["~9 upgraded"])
    }

    @Test("Where upgrades are off the WebSocket is closed")
    func off() {
        var trace = SessionTrace(polling: EngineIOConfiguration(allowsUpgrade: false))
        #expect(trace.open(9) == ["~9 closed 1008"])
        #expect(trace.get(1) == [])
    }

    @Test("The end of the session takes the probing WebSocket with it")
    func sessionEnds() {
        var trace = SessionTrace.probed()
        #expect(trace.post(1, "1") == ["#1 200 ok", "~9 closed 1000", "over transportClose"])
    }

    @Test("The upgrade proves what polling had answered; what follows there is not proven by it")
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

    @Test("A poll that is released with a noop proves what was answered before it")
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
