// Carillon · EngineIOPollingTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Protocols

@Suite("Engine.IO over polling", .timeLimit(.minutes(10)))
struct EngineIOPollingTests {
    private static let unknown = #"400 {"code":1,"message":"Session ID unknown"}"#
    private static let bad = #"400 {"code":3,"message":"Bad request"}"#

    @Test("answers first with the handshake")
    func handshake() {
        var actions: [EngineIOAction] = []
        let configuration = EngineIOConfiguration()
        let session = EngineIOStateMachine(
            sid: "S", polling: EngineIOCarrier(7), configuration: configuration, now: 0, into: &actions)
        let json = EngineIOHandshake.json(sid: "S", transport: .polling, configuration: configuration)
        let response = EngineIOResponse(status: 200, contentType: .text, body: [0x30] + json)
        #expect(actions == [.respond(EngineIOCarrier(7), response)])
        #expect(session.transport == .polling)
    }

    @Test("parks a poll until there is a packet, or answers at once with what waits")
    func polls() {
        var trace = SessionTrace()
        #expect(trace.get(1) == [])
        #expect(trace.send("a") == ["#1 200 4a"])
        #expect(trace.send("b") == [])
        #expect(trace.send("c", "d") == [])
        #expect(trace.send(bytes: [1, 2, 3, 4]) == [])
        #expect(trace.get(2) == ["#2 200 4b|4c|4d|bAQIDBA=="])
        #expect(trace.get(3) == [])
    }

    @Test("answers polls in plain text")
    func contentType() {
        var actions: [EngineIOAction] = []
        var trace = SessionTrace()
        _ = trace.get(1)
        trace.session.send([.text([0x61])], into: &actions)
        let response = EngineIOResponse(status: 200, contentType: .text, body: [0x34, 0x61])
        #expect(actions == [.respond(EngineIOCarrier(1), response)])
        #expect(EngineIOResponse.ContentType.text.rawValue == "text/plain; charset=UTF-8")
    }

    @Test("answers a post with ok, then delivers its messages in order")
    func posts() {
        var trace = SessionTrace()
        #expect(trace.post(1, "4a|bAQID|4b") == ["#1 200 ok", "up a", "up [1, 2, 3]", "up b"])
        #expect(trace.post(2, "4") == ["#2 200 ok", "up "])
    }

    @Test("answers a post with text/html")
    func okType() {
        var actions: [EngineIOAction] = []
        var trace = SessionTrace()
        _ = trace.startPost(1)
        trace.session.postCompleted(EngineIOCarrier(1), body: [0x34], now: 0, into: &actions)
        #expect(
            actions.first
                == .respond(
                    EngineIOCarrier(1),
                    EngineIOResponse(
                        status: 200, contentType: .html, body: Array("ok".utf8))))
    }

    @Test("limits an answer to 16 packets and the byte limit, and sends a larger packet alone")
    func batches() {
        var trace = SessionTrace()
        for number in 0..<35 { _ = trace.send("\(number)") }
        func line(_ request: Int, _ numbers: Range<Int>) -> [String] {
            ["#\(request) 200 \(numbers.map { "4\($0)" }.joined(separator: "|"))"]
        }
        #expect(trace.get(1) == line(1, 0..<16))
        #expect(trace.get(2) == line(2, 16..<32))
        #expect(trace.get(3) == line(3, 32..<35))

        var small = SessionTrace(polling: EngineIOConfiguration(maximumBytesSent: 10))
        for text in ["aaa", "bbb", "c", "dddddddddddddddddddd", "e"] { _ = small.send(text) }
        #expect(small.get(1) == ["#1 200 4aaa|4bbb"])
        #expect(small.get(2) == ["#2 200 4c"])
        #expect(small.get(3) == ["#3 200 4dddddddddddddddddddd"])
        #expect(small.get(4) == ["#4 200 4e"])
    }

    @Test("refuses a second poll, closes the first and ends the session")
    func overlappingPolls() {
        var trace = SessionTrace()
        _ = trace.get(1)
        #expect(trace.get(2) == ["#1 200 1", "#2 \(Self.bad)", "over overlappingPolls"])
        #expect(trace.get(3) == ["#3 \(Self.unknown)"])
        #expect(trace.session.transport == nil)
    }

    @Test("refuses both of two concurrent posts and ends the session")
    func overlappingPosts() {
        var trace = SessionTrace()
        _ = trace.get(1)
        _ = trace.startPost(2)
        let expected = ["#3 \(Self.bad)", "#1 200 1", "#2 \(Self.bad)", "over overlappingPosts"]
        #expect(trace.startPost(3) == expected)
        #expect(trace.finishPost(2, "4late") == [])
        #expect(trace.startPost(4) == ["#4 \(Self.unknown)"])
    }

    @Test("ends the session when the client aborts a poll or a post, unless it was answered")
    func aborts() {
        var polling = SessionTrace()
        _ = polling.get(1)
        #expect(polling.abortGet(1) == ["over transportError"])
        #expect(polling.get(2) == ["#2 \(Self.unknown)"])

        var posting = SessionTrace()
        _ = posting.get(1)
        _ = posting.startPost(2)
        #expect(posting.abortPost(2) == ["#1 200 1", "over transportError"])

        var answered = SessionTrace()
        _ = answered.get(1)
        _ = answered.send("a")
        _ = answered.post(2, "4b")
        #expect(answered.abortGet(1) == [])
        #expect(answered.abortPost(2) == [])
        #expect(answered.get(3) == [])
    }

    @Test(
        "refuses a binary post and ends the session",
        arguments: [
            "application/octet-stream", "Application/Octet-Stream", "application/octet-stream; charset=utf-8",
            " application/octet-stream ;x",
        ])
    func octets(type: String) {
        var trace = SessionTrace()
        #expect(trace.startPost(1, type: type) == ["#1 \(Self.bad)", "over invalidContentType"])
        #expect(trace.get(2) == ["#2 \(Self.unknown)"])
    }

    @Test("accepts any other content type, and none", arguments: ["text/plain", "application/json", "", nil])
    func contentTypes(type: String?) {
        var trace = SessionTrace()
        #expect(trace.startPost(1, type: type) == [])
        #expect(trace.finishPost(1, "4a") == ["#1 200 ok", "up a"])
    }

    @Test("refuses an oversized body by its length or its content and keeps the session")
    func tooLarge() {
        var trace = SessionTrace(polling: EngineIOConfiguration(maximumPayload: 5))
        #expect(trace.startPost(1, length: 6) == ["#1 413 "])
        #expect(trace.post(2, "412345") == ["#2 413 "])
        #expect(trace.startPost(3, length: 5) == [])
        #expect(trace.finishPost(3, "41234") == ["#3 200 ok", "up 1234"])
    }

    @Test(
        "refuses a whole body with an invalid packet and ends the session",
        arguments: ["abc", "", "4a|abc", "4a|", "4a|b!", "4a|55"])
    func parseErrors(body: String) {
        var trace = SessionTrace()
        _ = trace.get(1)
        #expect(trace.post(2, body) == ["#2 \(Self.bad)", "#1 200 1", "over parseError"])
        #expect(trace.get(3) == ["#3 \(Self.unknown)"])
    }

    @Test("ends the session at too many packets in a body")
    func tooManyPackets() {
        var trace = SessionTrace(polling: EngineIOConfiguration(maximumPacketsReceived: 2))
        #expect(trace.post(1, "4a|4b") == ["#1 200 ok", "up a", "up b"])
        #expect(trace.post(2, "4a|4b|4c") == ["#2 \(Self.bad)", "over parseError"])
    }

    @Test("releases the poll with a noop on the client's close and ignores the rest of the body")
    func clientCloses() {
        var trace = SessionTrace()
        _ = trace.get(1)
        #expect(trace.post(2, "4a|1|4b") == ["#2 200 ok", "up a", "#1 200 6", "over transportClose"])
        #expect(trace.get(3) == ["#3 \(Self.unknown)"])
        #expect(trace.send("late") == [])
    }

    @Test("answers a client's ping with ok and ends the session")
    func clientPings() {
        var trace = SessionTrace()
        _ = trace.get(1)
        #expect(trace.post(2, "2") == ["#2 200 ok", "#1 200 1", "over pingFromClient"])
    }

    @Test("ignores packets out of place", arguments: ["5", "6", "0{}", "3", "3probe"])
    func outOfPlace(body: String) {
        var trace = SessionTrace()
        #expect(trace.post(1, body) == ["#1 200 ok"])
        #expect(trace.post(2, "4a") == ["#2 200 ok", "up a"])
        #expect(trace.tick(24_999) == [])
        #expect(trace.session.nextDeadline == 25_000)
    }

    @Test("limits waiting packets and closes the session with its own reason at the limit")
    func bound() {
        let overhead = EngineIOConfiguration.packetOverhead
        var trace = SessionTrace(polling: EngineIOConfiguration(maximumWaiting: 3 * (overhead + 2)))
        for text in ["a", "b", "c"] { #expect(trace.send(text) == []) }
        #expect(trace.send("d") == ["over tooMuchWaiting"])
        var actions: [EngineIOAction] = []
        #expect(!trace.session.send([.text([])], into: &actions))
        #expect(actions.isEmpty)

        var emptied = SessionTrace(polling: EngineIOConfiguration(maximumWaiting: 3 * (overhead + 2)))
        for request in 1...10 as ClosedRange<UInt64> {
            for text in ["a", "b", "c"] { #expect(emptied.send(text) == []) }
            #expect(emptied.get(request) == ["#\(request) 200 4a|4b|4c"])
        }
    }

    @Test("refuses a text with the record separator, which polling cannot carry")
    func separator() {
        var trace = SessionTrace()
        #expect(trace.send("a", "b\u{1E}4c") == [])
        #expect(trace.session.messagesSent == 0)
        #expect(trace.get(1) == [])
        #expect(trace.send("d") == ["#1 200 4d"])
    }

    @Test("proves by the next poll what the last answer held, and nothing later")
    func proof() {
        var trace = SessionTrace()
        func counts() -> [UInt64] { [trace.session.messagesSent, trace.session.messagesProven] }
        #expect(counts() == [0, 0])
        _ = trace.send("a", "b")
        #expect(counts() == [2, 0])
        _ = trace.get(1)
        #expect(counts() == [2, 0])
        _ = trace.send("c")
        _ = trace.post(2, "4x")
        #expect(counts() == [3, 0])
        _ = trace.get(3)
        #expect(counts() == [3, 2])
        _ = trace.get(4)
        #expect(counts() == [3, 3])
        for _ in 0..<20 { _ = trace.send("d") }
        #expect(counts() == [23, 3])
        _ = trace.get(5)
        #expect(counts() == [23, 4])
        _ = trace.get(6)
        #expect(counts() == [23, 20])
        _ = trace.get(7)
        #expect(counts() == [23, 23])
    }

    @Test("ends the session at a browser's repeat of the last poll, which proves nothing")
    func repeated() {
        var trace = SessionTrace(mark: "a")
        _ = trace.get(1, mark: "b")
        #expect(trace.send("x") == ["#1 200 4x"])
        #expect(trace.get(2, mark: "b", at: 3_000) == ["#2 \(Self.unknown)", "over transportError"])
        #expect(trace.session.messagesProven == 0)

        var closing = SessionTrace(mark: "a")
        for number in 0..<20 { _ = closing.send("\(number)") }
        _ = closing.close()
        _ = closing.get(1, mark: "b")
        #expect(closing.get(2, mark: "b", at: 3_000) == ["#2 \(Self.unknown)", "over transportError"])
    }

    @Test(
        "takes a poll for a new one if its mark is new, absent or constant",
        arguments: [
            ["a", "b", "a"], ["a", "b", nil], ["a", nil, "a"], [nil, nil, nil], ["a", "a", "a"], [nil, "a", "a"],
        ] as [[String?]])
    func notRepeated(marks: [String?]) {
        var trace = SessionTrace(mark: marks[0])
        _ = trace.get(1, mark: marks[1])
        _ = trace.send("x")
        #expect(trace.get(2, mark: marks[2], at: 10_000) == [])
        #expect(trace.session.messagesProven == 1)
    }

    @Test("takes polls within 3 s for new ones, since some clients mark them with the second")
    func sameSecond() {
        var trace = SessionTrace(mark: "1")
        _ = trace.get(1, mark: "2", at: 1_000)
        _ = trace.send("x")
        #expect(trace.get(2, mark: "2", at: 3_999) == [])
        #expect(trace.send("y") == ["#2 200 4y"])
        #expect(trace.get(3, mark: "2", at: 6_998) == [])
        #expect(trace.session.messagesProven == 2)
    }

    @Test("does not count pings for proofs")
    func pingsProveNothing() {
        var trace = SessionTrace()
        _ = trace.get(1)
        #expect(trace.tick(25_000) == ["#1 200 2"])
        _ = trace.get(2, at: 25_001)
        #expect(trace.session.messagesProven == 0)
        #expect(trace.session.messagesSent == 0)
    }
}

/// A session and its actions, one short line each.
///
/// `#7 200 4a|2` answers request 7, `~9 4a` and `~9 [1, 2]` send on WebSocket 9, `~9 closed 1000`
/// closes it, `~9 upgraded` reports its upgrade, `up a` and `up [1, 2]` deliver, `over pingTimeout`
/// ends. A bar stands for the record separator.
struct SessionTrace {
    static let sid = "abcdefghijklmnopqrst"

    var session: EngineIOStateMachine
    private var actions: [EngineIOAction] = []

    /// A session at time 0, opened by request 0.
    init(polling configuration: EngineIOConfiguration = EngineIOConfiguration(), mark: String? = nil) {
        var actions: [EngineIOAction] = []
        self.session = EngineIOStateMachine(
            sid: Self.sid, polling: EngineIOCarrier(0), mark: PollMark(mark), configuration: configuration, now: 0,
            into: &actions)
    }

    /// A session at time 0, opened on WebSocket 0.
    init(webSocket configuration: EngineIOConfiguration) {
        var actions: [EngineIOAction] = []
        self.session = EngineIOStateMachine(
            sid: Self.sid, webSocket: EngineIOCarrier(0), configuration: configuration, now: 0, into: &actions)
    }

    /// A session at time 0 that probing WebSocket 9 is about to upgrade.
    static func probed(_ configuration: EngineIOConfiguration = EngineIOConfiguration()) -> SessionTrace {
        var trace = SessionTrace(polling: configuration)
        _ = trace.open(9)
        _ = trace.text(9, "2probe")
        return trace
    }

    mutating func get(_ request: UInt64, mark: String? = nil, at now: Milliseconds = 0) -> [String] {
        self.run { $0.pollRequested(EngineIOCarrier(request), mark: PollMark(mark), now: now, into: &$1) }
    }

    mutating func abortGet(_ request: UInt64) -> [String] {
        self.run { $0.pollAborted(EngineIOCarrier(request), into: &$1) }
    }

    mutating func startPost(
        _ request: UInt64, type: String? = "text/plain;charset=UTF-8", length: Int? = nil, at now: Milliseconds = 0
    ) -> [String] {
        self.run {
            _ = $0.postStarted(
                EngineIOCarrier(request), contentType: type, contentLength: length, now: now, into: &$1)
        }
    }

    mutating func finishPost(_ request: UInt64, _ body: String, at now: Milliseconds = 0) -> [String] {
        let body = body.utf8.map { $0 == UInt8(ascii: "|") ? 0x1E : $0 }
        return self.run { $0.postCompleted(EngineIOCarrier(request), body: body, now: now, into: &$1) }
    }

    mutating func abortPost(_ request: UInt64) -> [String] {
        self.run { $0.postAborted(EngineIOCarrier(request), into: &$1) }
    }

    mutating func post(_ request: UInt64, _ body: String, at now: Milliseconds = 0) -> [String] {
        self.startPost(request, at: now) + self.finishPost(request, body, at: now)
    }

    mutating func open(_ carrier: UInt64, at now: Milliseconds = 0) -> [String] {
        self.run { $0.webSocketOpened(EngineIOCarrier(carrier), now: now, into: &$1) }
    }

    mutating func text(_ carrier: UInt64, _ text: String, at now: Milliseconds = 0) -> [String] {
        self.run { $0.webSocketText(EngineIOCarrier(carrier), Array(text.utf8), now: now, into: &$1) }
    }

    mutating func binary(_ carrier: UInt64, _ bytes: [UInt8], at now: Milliseconds = 0) -> [String] {
        self.run { $0.webSocketBinary(EngineIOCarrier(carrier), bytes, now: now, into: &$1) }
    }

    mutating func closed(_ carrier: UInt64, failed: Bool = false) -> [String] {
        self.run { $0.webSocketClosed(EngineIOCarrier(carrier), failed: failed, into: &$1) }
    }

    mutating func send(_ texts: String...) -> [String] {
        self.run { $0.send(texts.map { .text(Array($0.utf8)) }, into: &$1) }
    }

    mutating func send(bytes: [UInt8]) -> [String] {
        self.run { $0.send([.binary(bytes)], into: &$1) }
    }

    mutating func close(
        _ reason: EngineIOCloseReason = .forcedClose, lingers: Bool = true, at now: Milliseconds = 0
    ) -> [String] {
        self.run { $0.close(reason, lingers: lingers, now: now, into: &$1) }
    }

    mutating func tick(_ now: Milliseconds) -> [String] {
        self.run { $0.tick(now: now, into: &$1) }
    }

    private mutating func run(_ call: (inout EngineIOStateMachine, inout [EngineIOAction]) -> Void) -> [String] {
        var actions: [EngineIOAction] = []
        call(&self.session, &actions)
        return actions.map { Self.line($0) }
    }

    static func line(_ action: EngineIOAction) -> String {
        switch action {
        case .respond(let request, let response):
            "#\(request.number) \(response.status) \(Self.text(response.body))"
        case .sendText(let carrier, let text): "~\(carrier.number) \(Self.text(text))"
        case .sendBinary(let carrier, let bytes): "~\(carrier.number) \(bytes)"
        case .closeWebSocket(let carrier, let code): "~\(carrier.number) closed \(code.rawValue)"
        case .upgraded(let carrier): "~\(carrier.number) upgraded"
        case .deliver(.text(let text)): "up \(Self.text(text))"
        case .deliver(.binary(let bytes)): "up \(bytes)"
        case .closed(let reason): "over \(reason.rawValue)"
        }
    }

    private static func text(_ bytes: [UInt8]) -> String {
        String(decoding: bytes.map { $0 == 0x1E ? UInt8(ascii: "|") : $0 }, as: UTF8.self)
    }
}
