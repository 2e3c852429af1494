// Carillon · MessageTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols
import Testing

@Suite("SignalR messages", .timeLimit(.minutes(10)))
struct MessageTests {
    private static func decode(_ text: String) throws(SignalRFault) -> SignalRMessage? {
        try SignalRDecoder.message(Array(text.utf8))
    }

    private static let table: [(SignalRMessage, String)] = [
        (
            .invocation(SignalRInvocation(target: "Send", arguments: [.number("42"), .string("x"), .null])),
            #"{"type":1,"target":"Send","arguments":[42,"x",null]}"#
        ),
        (
            .invocation(
                SignalRInvocation(
                    target: "Add", arguments: [], invocationID: "7", streamIDs: ["a", "b"],
                    headers: ["k": "v", "a": ""])),
            #"{"type":1,"headers":{"a":"","k":"v"},"invocationId":"7","target":"Add","arguments":[],"streamIds":["a","b"]}"#
        ),
        (
            .invocation(SignalRInvocation(target: "S", arguments: [.array([])], invocationID: "1", isStream: true)),
            #"{"type":4,"invocationId":"1","target":"S","arguments":[[]]}"#
        ),
        (.streamItem(invocationID: "1", item: .object([])), #"{"type":2,"invocationId":"1","item":{}}"#),
        (.streamItem(invocationID: "1", item: .null), #"{"type":2,"invocationId":"1","item":null}"#),
        (.completion(SignalRCompletion(invocationID: "1", outcome: .void)), #"{"type":3,"invocationId":"1"}"#),
        (
            .completion(SignalRCompletion(invocationID: "1", outcome: .result(.null))),
            #"{"type":3,"invocationId":"1","result":null}"#
        ),
        (
            .completion(SignalRCompletion(invocationID: "1", outcome: .result(.bool(true)))),
            #"{"type":3,"invocationId":"1","result":true}"#
        ),
        (
            .completion(SignalRCompletion(invocationID: "1", outcome: .error("a\u{1E}\"b"))),
            #"{"type":3,"invocationId":"1","error":"a\u001e\"b"}"#
        ),
        (.cancelInvocation(invocationID: "1"), #"{"type":5,"invocationId":"1"}"#),
        (.ping, #"{"type":6}"#),
        (.close(error: nil, allowReconnect: false), #"{"type":7}"#),
        (.close(error: nil, allowReconnect: true), #"{"type":7,"allowReconnect":true}"#),
        (.close(error: "x", allowReconnect: true), #"{"type":7,"error":"x","allowReconnect":true}"#),
        (.acknowledgement(sequenceID: 9), #"{"type":8,"sequenceId":9}"#),
        (.sequence(sequenceID: 1), #"{"type":9,"sequenceId":1}"#),
    ]

    @Test("Every type, both ways", arguments: table)
    func bothWays(_ message: SignalRMessage, _ text: String) throws {
        let record = SignalRRecord(message)
        #expect(Wire.text(record.bytes) == text + "|")
        #expect(record.isCounted == message.isCounted)
        let decoded = try Self.decode(text)
        #expect(decoded == message)
    }

    @Test("Types 1 to 5 count")
    func counted() {
        let counted = Self.table.filter { $0.0.isCounted }.map { $0.1.dropFirst(8).prefix(1) }
        #expect(Set(counted) == ["1", "2", "3", "4", "5"])
    }

    @Test(
        "The order of properties is free, unknown ones are skipped, null is absent",
        arguments: [
            #"{"arguments":[1],"target":"A","type":1}"#,
            #"{"x":{"type":3,"y":[{}]},"arguments":[1],"invocationId":null,"type":1,"target":"A","headers":null}"#,
            #" { "type" : 1 , "target" : "\u0041" , "arguments" : [ 1 ] , "streamIds" : null , "error" : 5 } "#,
            #"{"type":1,"target":"A","arguments":[1],"invocationId":""}"#,
        ]
    )
    func free(_ text: String) throws {
        let message = try Self.decode(text)
        #expect(message == .invocation(SignalRInvocation(target: "A", arguments: [.number("1")])))
    }

    @Test("A result with an error of null is a result")
    func nullError() throws {
        let message = try Self.decode(#"{"type":3,"invocationId":"1","error":null,"result":1}"#)
        #expect(message == .completion(SignalRCompletion(invocationID: "1", outcome: .result(.number("1")))))
    }

    @Test("Unknown types are ignored", arguments: ["0", "10", "-1", "9223372036854775807"])
    func unknown(_ type: String) throws {
        let message = try Self.decode(#"{"type":\#(type),"target":5}"#)
        #expect(message == nil)
    }

    @Test(
        "A broken message is named by its property",
        arguments: [
            (#"{}"#, "type"), (#"{"type":"1"}"#, "type"), (#"{"type":null}"#, "type"), (#"{"type":1.5}"#, "type"),
            (#"{"type":1,"arguments":[]}"#, "target"), (#"{"type":1,"target":5,"arguments":[]}"#, "target"),
            (#"{"type":1,"target":"","arguments":[]}"#, "target"),
            (#"{"type":1,"target":"A"}"#, "arguments"), (#"{"type":1,"target":"A","arguments":{}}"#, "arguments"),
            (#"{"type":1,"target":"A","arguments":null}"#, "arguments"),
            (#"{"type":1,"target":"A","arguments":[],"invocationId":1}"#, "invocationId"),
            (#"{"type":1,"target":"A","arguments":[],"streamIds":"a"}"#, "streamIds"),
            (#"{"type":1,"target":"A","arguments":[],"streamIds":[1]}"#, "streamIds"),
            (#"{"type":1,"target":"A","arguments":[],"headers":[]}"#, "headers"),
            (#"{"type":1,"target":"A","arguments":[],"headers":{"a":1}}"#, "headers"),
            (#"{"type":4,"target":"A","arguments":[]}"#, "invocationId"),
            (#"{"type":4,"target":"A","arguments":[],"invocationId":""}"#, "invocationId"),
            (#"{"type":2,"invocationId":"1"}"#, "item"), (#"{"type":2,"item":1}"#, "invocationId"),
            (#"{"type":3}"#, "invocationId"), (#"{"type":3,"invocationId":"1","result":1,"error":"x"}"#, "error"),
            (#"{"type":3,"invocationId":"1","error":1}"#, "error"), (#"{"type":5}"#, "invocationId"),
            (#"{"type":7,"error":1}"#, "error"), (#"{"type":7,"allowReconnect":"yes"}"#, "allowReconnect"),
            (#"{"type":8}"#, "sequenceId"), (#"{"type":9,"sequenceId":"1"}"#, "sequenceId"),
        ]
    )
    func broken(_ text: String, _ place: String) {
        let fault = #expect(throws: SignalRFault.self) { try Self.decode(text) }
        #expect(fault?.code == .invalidMessage)
        #expect(fault?.place == place)
    }

    @Test("What is no JSON object is a fault", arguments: ["", "x", "{", "{\"type\":6}x", "[6]", "6", "{\"type\":6,}"])
    func notJSON(_ text: String) {
        #expect(throws: SignalRFault.self) { try Self.decode(text) }
    }

    @Test("A fault never repeats what the client sent")
    func discreet() {
        let fault = #expect(throws: SignalRFault.self) {
            try Self.decode(#"{"type":1,"target":"secret","arguments":"secret"}"#)
        }
        #expect(fault.map { "\($0)".contains("secret") } == false)
    }

    @Test("Arguments that are JSON already are taken as they are")
    func encodedArguments() {
        let record = SignalRRecord(
            target: "ReceiveNotification", encodedArguments: [Array(#"{"id": 1}"#.utf8), Array("2".utf8)])
        #expect(
            Wire.text(record.bytes) == #"{"type":1,"target":"ReceiveNotification","arguments":[{"id": 1},2]}|"#)
        #expect(record.isCounted)
        let none = SignalRRecord(target: "x\"", encodedArguments: [])
        #expect(Wire.text(none.bytes) == #"{"type":1,"target":"x\"","arguments":[]}|"#)
    }

    @Test("Method names are alike whatever their case")
    func names() {
        let invocation = SignalRInvocation(target: "markAsREAD", arguments: [])
        #expect(invocation.calls("MarkAsRead"))
        #expect(!invocation.calls("MarkAllAsRead"))
    }

    @Test("The errors that clients know")
    func errors() {
        #expect(
            SignalRErrorText.unknownMethod("X")
                == "Failed to invoke 'X' due to an error on the server. HubException: Method does not exist.")
        #expect(SignalRErrorText.unexpected("X") == "An unexpected error occurred invoking 'X' on the server.")
        #expect(SignalRErrorText.unauthorized("X") == "Failed to invoke 'X' because user is unauthorized")
        #expect(
            SignalRErrorText.failed("X", "no")
                == "An unexpected error occurred invoking 'X' on the server. HubException: no")
        #expect(SignalRErrorText.streamingMethodInvoked("X").contains("'X' method with a non-streaming invocation"))
        #expect(SignalRErrorText.plainMethodStreamed("X").contains("'X' method with a streaming invocation"))
    }
}
