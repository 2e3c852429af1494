// Carillon · EngineIOPollingTests.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols
import Testing

@Suite("A session over polling", .timeLimit(.minutes(10)))
struct EngineIOPollingTests {
    private static let unknown = #"400 {"code":1,"message":"Session ID unknown"}"#
    private static let bad = #"400 {"code":3,"message":"Bad request"}"#

    @Test("The first answer is the handshake")
    func handshake() {
        var actions: [EngineIOAction] = []
        let configuration = EngineIOConfiguration()
        let session = EngineIOSession(
            sid: "S", polling: EngineIOCarrier(7), configuration: configuration, now: 0, into: &actions)
        let json = EngineIOHandshake.json(sid: "S", transport: .polling, configuration: configuration)
        let response = EngineIOResponse(status: 200, contentType: .text, body: [0x30] + json)
        #expect(actions == [.respond(EngineIOCarrier(7), response)])
        #expect(session.transport == .polling)
    }

    @Test("A poll waits for a packet, or takes what waits at once")
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

    @Test("Answers to polls are plain text")
    func contentType() {
        var actions: [EngineIOAction] = []
        var trace = SessionTrace()
        _ = trace.get(1)
        trace.session.send([.text([0x61])], into: &actions)
        let response = EngineIOResponse(status: 200, contentType: .text, body: [0x34, 0x61])
        #expect(actions == [.respond(EngineIOCarrier(1), response)])
        #expect(EngineIOResponse.ContentType.text.rawValue == "text/plain; charset=UTF-8")
    }

    @Test("A post is answered ok, then its messages are delivered in order")
    func posts() {
        var trace = SessionTrace()
        #expect(trace.post(1, "4a|bAQID|4b") == ["#1 200 ok", "up a", "up [1, 2, 3]", "up b"])
        #expect(trace.post(2, "4") == ["#2 200 ok", "up "])
    }

    @Test("A post's ok is text/html")
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

    @Test("At most 16 packets go in one answer, and no more bytes than the bound; a larger one goes alone")
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

    @Test("A second poll closes the first, is refused, and ends the session")
    func overlappingPolls() {
        var trace = SessionTrace()
        _ = trace.get(1)
        #expect(trace.get(2) == ["#1 200 1", "#2 \(Self.bad)", "over overlappingPolls"])
        #expect(trace.get(3) == ["#3 \(Self.unknown)"])
        #expect(trace.session.transport == nil)
    }

    @Test("A second post is refused, and so is the first, and the session ends")
    func overlappingPosts() {
        var trace = SessionTrace()
        _ = trace.get(1)
        _ = trace.startPost(2)
        let expected = ["#3 \(Self.bad)", "#1 200 1", "#2 \(Self.bad)", "over overlappingPosts"]
        #expect(trace.startPost(3) == expected)
        #expect(trace.finishPost(2, "4late") == [])
        #expect(trace.startPost(4) == ["#4 \(Self.unknown)"])
    }

    @Test("A poll or a post that the client aborts ends the session; one that was answered does not")
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
        "A post of octets is refused and ends the session",
        arguments: [
            "application/octet-stream", "Application/Octet-Stream", "application/octet-stream; charset=utf-8",
            " application/octet-stream ;x",
        ])
    func octets(type: String) {
        var trace = SessionTrace()
        #expect(trace.startPost(1, type: type) == ["#1 \(Self.bad)", "over invalidContentType"])
        #expect(trace.get(2) == ["#2 \(Self.unknown)"])
    }

    @Test("Any other content type passes, and none", arguments: ["text/plain", "application/json", "", nil])
    func contentTypes(type: String?) {
        var trace = SessionTrace()
        #expect(trace.startPost(1, type: type) == [])
        #expect(trace.finishPost(1, "4a") == ["#1 200 ok", "up a"])
    }

    @Test("A body that is too large is refused by its length or by itself, and the session stays")
    func tooLarge() {
        var trace = SessionTrace(polling: EngineIOConfiguration(maximumPayload: 5))
        #expect(trace.startPost(1, length: 6) == ["#1 413 "])
        #expect(trace.post(2, "412345") == ["#2 413 "])
        #expect(trace.startPost(3, length: 5) == [])
        #expect(trace.finishPost(3, "41234") == ["#3 200 ok", "up 1234"])
    }

    @Test(
        "A body with anything that is no packet is refused as a whole, and the session ends",
        arguments: ["abc", "", "4a|abc", "4a|", "4a|b!", "4a|55"])
    func parseErrors(body: String) {
        var trace = SessionTrace()
        _ = trace.get(1)
        #expect(trace.post(2, body) == ["#2 \(Self.bad)", "#1 200 1", "over parseError"])
        #expect(trace.get(3) == ["#3 \(Self.unknown)"])
    }

    @Test("Too many packets in a body end the session")
    func tooManyPackets() {
        var trace = SessionTrace(polling: EngineIOConfiguration(maximumPacketsReceived: 2))
        #expect(trace.post(1, "4a|4b") == ["#1 200 ok", "up a", "up b"])
        #expect(trace.post(2, "4a|4b|4c") == ["#2 \(Self.bad)", "over parseError"])
    }

    @Test("A client's close releases the poll with a noop; what follows it in the body does not count")
    func clientCloses() {
        var trace = SessionTrace()
        _ = trace.get(1)
        #expect(trace.post(2, "4a|1|4b") == ["#2 200 ok", "up a", "#1 200 6", "over transportClose"])
        #expect(trace.get(3) == ["#3 \(Self.unknown)"])
        #expect(trace.send("late") == [])
    }

    @Test("A client's ping is answered ok and ends the session")
    func clientPings() {
        var trace = SessionTrace()
        _ = trace.get(1)
        #expect(trace.post(2, "2") == ["#2 200 ok", "#1 200 1", "over pingFromClient"])
    }

    @Test("Packets out of place pass without effect", arguments: ["5", "6", "0{}", "3", "3probe"])
    func outOfPlace(body: String) {
        var trace = SessionTrace()
        #expect(trace.post(1, body) == ["#1 200 ok"])
        #expect(trace.post(2, "4a") == ["#2 200 ok", "up a"])
        #expect(trace.tick(24_999) == [])
        #expect(trace.session.nextDeadline == 25_000)
    }

    @Test("What waits is bounded; at the bound the session closes with its own reason")
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

    @Test("A text with the record separator, which polling cannot carry, is not taken")
    func separator() {
        var trace = SessionTrace()
        #expect(trace.send("a", "b\u{1E}4c") == [])
        #expect(trace.session.messagesSent == 0)
        #expect(trace.get(1) == [])
        #expect(trace.send("d") == ["#1 200 4d"])
    }

    @Test("The next poll proves what the last answer held, and nothing later")
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

    @Test("Pings count for no proof")
    func pingsProveNothing() {
        var trace = SessionTrace()
        _ = trace.get(1)
        #expect(trace.tick(25_000) == ["#1 200 2"])
        _ = trace.get(2, at: 25_001)
        #expect(trace.session.messagesProven == 0)
        #expect(trace.session.messagesSent == 0)
    }
}
