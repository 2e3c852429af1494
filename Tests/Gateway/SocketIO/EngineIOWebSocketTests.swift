// Carillon · EngineIOWebSocketTests.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols
import Testing

@Suite("A session on a WebSocket from the start", .timeLimit(.minutes(10)))
struct EngineIOWebSocketTests {
    private static let configuration = EngineIOConfiguration()

    @Test("The handshake is one text frame that offers no upgrade")
    func handshake() {
        var actions: [EngineIOAction] = []
        let session = EngineIOSession(
            sid: "S", webSocket: EngineIOCarrier(3), configuration: Self.configuration, now: 0, into: &actions)
        let json = EngineIOHandshake.json(sid: "S", transport: .webSocket, configuration: Self.configuration)
        #expect(actions == [.sendText(EngineIOCarrier(3), [0x30] + json)])
        #expect(session.transport == .webSocket)
    }

    @Test("Text and bytes go both ways, a message a frame")
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

    @Test("What is no packet ends the session", arguments: ["abc", "", "bAQID", "7"])
    func parseError(text: String) {
        var trace = SessionTrace(webSocket: Self.configuration)
        #expect(trace.text(0, text) == ["~0 closed 1002", "over parseError"])
        #expect(trace.text(0, "4a") == [])
    }

    @Test("The client's close, its ping, and the loss of the WebSocket end the session")
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

    @Test("Polling and other WebSockets with its id are refused, and it goes on")
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

    @Test("The owner's close closes it with the code of the reason")
    func close() {
        let table: [(EngineIOCloseReason, Int)] = [
            (.forcedClose, 1000), (.serverShuttingDown, 1012), (.parseError, 1002), (.tooMuchWaiting, 1013),
            (.tryAgainLater, 1013), (.tokenExpired, 4401),
        ]
        for (reason, code) in table {
            var trace = SessionTrace(webSocket: Self.configuration)
            #expect(trace.close(reason) == ["~0 closed \(code)", "over \(reason.rawValue)"])
            #expect(trace.close(reason) == [])
        }
    }
}
