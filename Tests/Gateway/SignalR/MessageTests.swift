// Carillon · MessageTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@testable import Protocols

@Suite("SignalR messages", .timeLimit(.minutes(10)))
struct MessageTests {
    private static func decode(_ text: String) throws(SignalRFault) -> SignalRMessage? {
        try SignalRDecoder.message(Array(text.utf8))
    }

    private static let table: [(String, SignalRMessage)] = [
        (
            #"{"type":1,"target":"Send","arguments":[42,"x",null]}"#,
            .invocation(SignalRInvocation(target: "Send", arguments: [.number("42"), .string("x"), .null]))
        ),
        (
            #"{"type":1,"headers":{"k":"v"},"invocationId":"7","target":"Add","arguments":[],"streamIds":["a"]}"#,
            .invocation(SignalRInvocation(target: "Add", arguments: [], invocationID: "7"))
        ),
        (
            #"{"type":4,"invocationId":"1","target":"S","arguments":[[]]}"#,
            .invocation(SignalRInvocation(target: "S", arguments: [.array([])], invocationID: "1", isStream: true))
        ),
        (#"{"type":2,"invocationId":"1","item":{}}"#, .ignored),
        (#"{"type":3,"invocationId":"1","result":null}"#, .ignored),
        (#"{"type":5,"invocationId":"1"}"#, .cancellation(invocationID: "1")),
        (#"{"type":6}"#, .ping),
        (#"{"type":7}"#, .close),
        (#"{"type":7,"error":"x","allowReconnect":true}"#, .close),
        (#"{"type":8,"sequenceId":9}"#, .acknowledgement(sequenceID: 9)),
        (#"{"type":9,"sequenceId":1}"#, .sequence(sequenceID: 1)),
    ]

    @Test("decodes every type", arguments: table)
    func decodes(_ text: String, _ message: SignalRMessage) throws {
        let decoded = try Self.decode(text)
        #expect(decoded == message)
    }

    @Test(
        "encodes items, answers and control messages",
        arguments: [
            (.streamItem(invocationID: "1", .object([])), #"{"type":2,"invocationId":"1","item":{}}"#),
            (.streamItem(invocationID: "1", .null), #"{"type":2,"invocationId":"1","item":null}"#),
            (.completion(invocationID: "1", .void), #"{"type":3,"invocationId":"1"}"#),
            (.completion(invocationID: "1", .result(.null)), #"{"type":3,"invocationId":"1","result":null}"#),
            (.completion(invocationID: "1", .result(.bool(true))), #"{"type":3,"invocationId":"1","result":true}"#),
            (
                .completion(invocationID: "1", .error("a\u{1E}\"b")),
                #"{"type":3,"invocationId":"1","error":"a\u001e\"b"}"#
            ),
            (.ping, #"{"type":6}"#),
            (.close(error: nil, allowReconnect: false), #"{"type":7}"#),
            (.close(error: "x", allowReconnect: true), #"{"type":7,"error":"x","allowReconnect":true}"#),
            (.acknowledgement(sequenceID: 9), #"{"type":8,"sequenceId":9}"#),
            (.sequence(sequenceID: 1), #"{"type":9,"sequenceId":1}"#),
        ] as [(SignalRRecord, String)]
    )
    func encodes(_ record: SignalRRecord, _ text: String) {
        #expect(Wire.text(record.bytes) == text + "|")
        #expect(record.isCounted == ["2", "3"].contains(text.dropFirst(8).prefix(1)))
    }

    @Test("numbers types 1 to 5 only")
    func counted() {
        let counted = Self.table.filter { $0.1.isCounted }.map { $0.0.dropFirst(8).prefix(1) }
        #expect(Set(counted) == ["1", "2", "3", "4", "5"])
    }

    @Test(
        "accepts properties in any order, skips unknown ones and treats null as absent",
        arguments: [
            #"{"arguments":[1],"target":"A","type":1}"#,
            #"{"x":{"type":3,"y":[{}]},"arguments":[1],"invocationId":null,"type":1,"target":"A","headers":[]}"#,
            #" { "type" : 1 , "target" : "\u0041" , "arguments" : [ 1 ] , "streamIds" : null , "error" : 5 } "#,
            #"{"type":1,"target":"A","arguments":[1],"invocationId":""}"#,
        ]
    )
    func free(_ text: String) throws {
        let message = try Self.decode(text)
        #expect(message == .invocation(SignalRInvocation(target: "A", arguments: [.number("1")])))
    }

    @Test("ignores unknown types", arguments: ["0", "10", "-1", "9223372036854775807"])
    func unknown(_ type: String) throws {
        let message = try Self.decode(#"{"type":\#(type),"target":5}"#)
        #expect(message == nil)
    }

    @Test(
        "names the property of a faulty message",
        arguments: [
            (#"{}"#, "type"), (#"{"type":"1"}"#, "type"), (#"{"type":null}"#, "type"), (#"{"type":1.5}"#, "type"),
            (#"{"type":1,"arguments":[]}"#, "target"), (#"{"type":1,"target":5,"arguments":[]}"#, "target"),
            (#"{"type":1,"target":"","arguments":[]}"#, "target"),
            (#"{"type":1,"target":"A"}"#, "arguments"), (#"{"type":1,"target":"A","arguments":{}}"#, "arguments"),
            (#"{"type":1,"target":"A","arguments":null}"#, "arguments"),
            (#"{"type":1,"target":"A","arguments":[],"invocationId":1}"#, "invocationId"),
            (#"{"type":4,"target":"A","arguments":[]}"#, "invocationId"),
            (#"{"type":4,"target":"A","arguments":[],"invocationId":""}"#, "invocationId"),
            (#"{"type":5}"#, "invocationId"), (#"{"type":5,"invocationId":1}"#, "invocationId"),
            (#"{"type":8}"#, "sequenceId"), (#"{"type":9,"sequenceId":"1"}"#, "sequenceId"),
        ]
    )
    func broken(_ text: String, _ location: String) {
        let fault = #expect(throws: SignalRFault.self) { try Self.decode(text) }
        #expect(fault?.code == .invalidMessage)
        #expect(fault?.location == location)
    }

    @Test(
        "refuses anything but a JSON object", arguments: ["", "x", "{", "{\"type\":6}x", "[6]", "6", "{\"type\":6,}"])
    func notJSON(_ text: String) {
        #expect(throws: SignalRFault.self) { try Self.decode(text) }
    }

    @Test("does not repeat the client's input in a fault")
    func discreet() {
        let fault = #expect(throws: SignalRFault.self) {
            try Self.decode(#"{"type":1,"target":"secret","arguments":"secret"}"#)
        }
        #expect(fault.map { "\($0)".contains("secret") } == false)
    }

    @Test("takes encoded arguments as they are")
    func encodedArguments() {
        let record = SignalRRecord(
            target: "ReceiveNotification", encodedArguments: [Array(#"{"id": 1}"#.utf8), Array("2".utf8)])
        #expect(
            Wire.text(record.bytes) == #"{"type":1,"target":"ReceiveNotification","arguments":[{"id": 1},2]}|"#)
        #expect(record.isCounted)
        let none = SignalRRecord(target: "x\"", encodedArguments: [])
        #expect(Wire.text(none.bytes) == #"{"type":1,"target":"x\"","arguments":[]}|"#)
    }

    @Test("compares method names without case")
    func names() {
        let invocation = SignalRInvocation(target: "markAsREAD", arguments: [])
        #expect(invocation.calls("MarkAsRead"))
        #expect(!invocation.calls("MarkAllAsRead"))
    }

    @Test("keeps the error texts that clients know")
    func errors() {
        #expect(
            SignalRErrorText.unknownMethod("X")
                == "Failed to invoke 'X' due to an error on the server. HubException: Method does not exist.")
        #expect(SignalRErrorText.unexpected("X") == "An unexpected error occurred invoking 'X' on the server.")
        #expect(
            SignalRErrorText.failed("X", "no")
                == "An unexpected error occurred invoking 'X' on the server. HubException: no")
        #expect(SignalRErrorText.plainMethodStreamed("X").contains("'X' method with a streaming invocation"))
    }
}

@Suite("SignalR handshake", .timeLimit(.minutes(10)))
struct HandshakeTests {
    @Test("accepts versions 0, 1 and 2 of JSON, with properties in any order", arguments: [0, 1, 2])
    func versions(_ version: Int) {
        for request in [
            #"{"protocol":"json","version":\#(version)}|"#, #"{"x":[1], "version":\#(version) ,"protocol":"json"}|"#,
        ] {
            var wire = Wire(version: nil)
            #expect(!wire.connection.isOpen)
            let actions = wire.receive(request)
            #expect(actions == [.write(Wire.bytes("{}|")), .opened(version: version)])
            #expect(wire.connection.isOpen)
        }
    }

    @Test(
        "refuses other protocols and ends the connection",
        arguments: [
            (#"{"protocol":"messagepack","version":1}"#, "The protocol 'messagepack' is not supported."),
            (#"{"protocol":"JSON","version":1}"#, "The protocol 'JSON' is not supported."),
            (#"{"protocol":"json","version":3}"#, "The server does not support version 3 of the 'json' protocol."),
            (#"{"protocol":"json","version":-1}"#, "The server does not support version -1 of the 'json' protocol."),
        ]
    )
    func refusals(_ request: String, _ error: String) {
        var wire = Wire(version: nil)
        let actions = wire.receive(request + "|" + #"{"type":6}|"#)
        #expect(actions.written == #"{"error":"\#(error)"}|"#)
        #expect(actions.end == .handshakeRefused(error))
        #expect(wire.connection.isClosed)
        #expect(wire.receive(#"{"protocol":"json","version":1}|"#).isEmpty)
    }

    @Test(
        "refuses anything but a handshake",
        arguments: [
            "", "x", "[]", "{}", #"{"protocol":"json"}"#, #"{"version":1}"#, #"{"protocol":1,"version":1}"#,
            #"{"protocol":"json","version":"1"}"#, #"{"protocol":"json","version":1.5}"#, #"{"type":6}"#,
            #"{"protocol":"json","version":99999999999999999999}"#,
        ]
    )
    func malformed(_ request: String) {
        var wire = Wire(version: nil)
        let actions = wire.receive(request + "|")
        #expect(actions.written.hasPrefix(#"{"error":"An unexpected error occurred during connection handshake."#))
        #expect(wire.connection.isClosed)
    }

    @Test("escapes the protocol's name in the answer")
    func escaping() {
        var wire = Wire(version: nil)
        let actions = wire.receive(#"{"protocol":"a\"\u001e","version":1}|"#)
        #expect(actions.written == #"{"error":"The protocol 'a\"\u001e' is not supported."}|"#)
    }

    @Test("refuses an oversized handshake")
    func tooLong() {
        var wire = Wire(configuration: SignalRConfiguration(maximumMessageBytes: 64), version: nil)
        let actions = wire.receive(String(repeating: " ", count: 65))
        #expect(actions.written.hasPrefix(#"{"error":"An unexpected error"#))
        #expect(wire.connection.isClosed)
    }

    @Test("refuses an unfinished handshake of more than 4 KB, but takes longer messages after it")
    func unfinished() {
        var wire = Wire(version: nil)
        #expect(wire.receive(String(repeating: " ", count: 4_096)).isEmpty)
        #expect(wire.receive(" ").written.hasPrefix(#"{"error":"An unexpected error"#))
        #expect(wire.connection.isClosed)
        var open = Wire(version: nil)
        _ = open.receive(#"{"protocol":"json","version":1}|"# + String(repeating: " ", count: 5_000))
        #expect(open.connection.isOpen)
    }

    @Test("reads messages after the handshake in the same chunk, and a handshake in several chunks")
    func rest() {
        var wire = Wire(version: nil)
        #expect(wire.receive(#"{"protocol":"json","#).isEmpty)
        let actions = wire.receive(#""version":1}|{"type":6}|{"type":1,"target":"A","arguments":[]}|{"type":1,"#)
        #expect(actions.prefix(2) == [.write(Wire.bytes("{}|")), .opened(version: 1)])
        #expect(actions.targets == ["A"])
    }

    @Test("answers a client whose handshake is late")
    func timeout() {
        var wire = Wire(version: nil, now: 1000)
        _ = wire.receive("{", now: 15_000)
        #expect(wire.connection.tick(now: 15_999).isEmpty)
        let actions = wire.connection.tick(now: 16_000)
        #expect(actions.written == #"{"error":"Handshake was canceled."}|"#)
        #expect(actions.end == .handshakeTimeout)
    }

    @Test("sends nothing before the handshake, and closing refuses the handshake")
    func early() {
        var wire = Wire(version: nil)
        let record = SignalRRecord(target: "x", encodedArguments: [])
        #expect(wire.connection.push(record, now: 0) == .refused(.notOpen))
        let actions = wire.connection.close(error: "Going away.", now: 0)
        #expect(actions.written == #"{"error":"Going away."}|"#)
        #expect(actions.end == .server)
    }
}

@Suite("SignalR records", .timeLimit(.minutes(10)))
struct RecordSplitterTests {
    private static func split(_ pieces: [String], maximumBytes: Int = 8) -> (records: [String], isTooLong: Bool) {
        var splitter = SignalRRecordSplitter(maximumBytes: maximumBytes)
        var records: [String] = []
        var isTooLong = false
        for piece in pieces {
            let batch = splitter.split(Wire.bytes(piece))
            records += batch.records.map { Wire.text($0) }
            isTooLong = isTooLong || batch.isTooLong
        }
        return (records, isTooLong)
    }

    @Test(
        "splits several records of one chunk and joins one over several chunks",
        arguments: [
            (["a|bc|"], ["a", "bc"]),
            (["a|b", "c", "|d"], ["a", "bc"]),
            (["", "a", "", "|"], ["a"]),
            (["|", "||"], ["", "", ""]),
            (["12345678|"], ["12345678"]),
            (["1234", "5678", "|1"], ["12345678"]),
        ]
    )
    func pieces(_ pieces: [String], _ records: [String]) {
        let result = Self.split(pieces)
        #expect(result.records == records)
        #expect(!result.isTooLong)
    }

    @Test(
        "ends at an oversized record and keeps those before it",
        arguments: [
            (["123456789|"], []),
            (["a|123456789|b|"], ["a"]),
            (["123456789"], []),
            (["1234", "56789"], []),
            (["1234", "56789|", "b|"], []),
        ]
    )
    func tooLong(_ pieces: [String], _ records: [String]) {
        let result = Self.split(pieces)
        #expect(result.records == records)
        #expect(result.isTooLong)
    }

    @Test("returns the same records however the input is cut", arguments: 0..<50 as Range<UInt64>)
    func cuts(_ seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        let records = (0..<30).map { _ in String(repeating: "x", count: Int.random(in: 0...8, using: &generator)) }
        var rest = Substring(records.map { $0 + "|" }.joined())
        var pieces: [String] = []
        while !rest.isEmpty {
            let count = Int.random(in: 1...12, using: &generator)
            pieces.append(String(rest.prefix(count)))
            rest = rest.dropFirst(count)
        }
        #expect(Self.split(pieces).records == records)
    }
}

/// A connection with readable wire texts: `|` stands for the separator.
struct Wire {
    var connection: SignalRStateMachine

    init(
        configuration: SignalRConfiguration = .standard,
        offersStatefulReconnect: Bool = false,
        hasInherentKeepAlive: Bool = false,
        version: Int? = 1,
        now: Int64 = 0
    ) {
        self.connection = SignalRStateMachine(
            configuration: configuration,
            offersStatefulReconnect: offersStatefulReconnect,
            hasInherentKeepAlive: hasInherentKeepAlive,
            now: now
        )
        if let version { _ = self.receive(#"{"protocol":"json","version":\#(version)}|"#, now: now) }
    }

    mutating func receive(_ text: String, now: Int64 = 0) -> [SignalRAction] {
        self.connection.receive(Self.bytes(text), now: now)
    }

    static func bytes(_ text: String) -> [UInt8] {
        text.utf8.map { $0 == UInt8(ascii: "|") ? 0x1E : $0 }
    }

    static func text(_ bytes: [UInt8]) -> String {
        String(decoding: bytes.map { $0 == 0x1E ? UInt8(ascii: "|") : $0 }, as: UTF8.self)
    }
}

extension [SignalRAction] {
    /// Everything that is written.
    var written: String {
        Wire.text(self.flatMap { if case .write(let bytes) = $0 { bytes } else { [] as [UInt8] } })
    }

    /// The calls that start.
    var calls: [SignalRCall] {
        self.compactMap { if case .invoke(let call) = $0 { call } else { nil } }
    }

    var targets: [String] { self.calls.map(\.invocation.target) }

    var end: SignalREnd? {
        guard case .end(let end) = self.last else { return nil }
        return end
    }
}
