// Carillon · SignalRMessage.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A hub protocol message (types 1 to 9 of its specification).
package enum SignalRMessage: Sendable, Equatable {
    /// Types 1 and 4.
    case invocation(SignalRInvocation)
    /// Type 2: an item of an invocation's stream, in either direction.
    case streamItem(invocationID: String, item: JSONValue)
    /// Type 3.
    case completion(SignalRCompletion)
    /// Type 5: the client wants no more items.
    case cancelInvocation(invocationID: String)
    /// Type 6.
    case ping
    /// Type 7.
    case close(error: String?, allowReconnect: Bool)
    /// Type 8: all counted messages up to this number have arrived.
    case acknowledgement(sequenceID: Int64)
    /// Type 9: the number of the next counted message.
    case sequence(sequenceID: Int64)

    /// Whether stateful reconnect counts and repeats the message: types 1 to 5.
    var isCounted: Bool {
        switch self {
        case .invocation, .streamItem, .completion, .cancelInvocation: true
        case .ping, .close, .acknowledgement, .sequence: false
        }
    }
}

/// A call of a method on the other side.
package struct SignalRInvocation: Sendable, Equatable {
    package let target: String
    package let arguments: [JSONValue]
    /// Nil if no answer is wanted; a stream always has one.
    let invocationID: String?
    /// The ids of the streams that the caller sends with the call.
    let streamIDs: [String]
    let headers: [String: String]
    /// Whether the answer is a stream (type 4).
    package let isStream: Bool

    package init(
        target: String,
        arguments: [JSONValue],
        invocationID: String? = nil,
        streamIDs: [String] = [],
        headers: [String: String] = [:],
        isStream: Bool = false
    ) {
        self.target = target
        self.arguments = arguments
        self.invocationID = invocationID
        self.streamIDs = streamIDs
        self.headers = headers
        self.isStream = isStream
    }

    /// Whether it calls the method, ignoring case.
    package func calls(_ method: String) -> Bool {
        ExactText(self.target.lowercased()) == ExactText(method.lowercased())
    }
}

/// The end of an invocation or of a stream.
package struct SignalRCompletion: Sendable, Equatable {
    /// The result of an invocation, or its error.
    package enum Outcome: Sendable, Equatable {
        case void
        case result(JSONValue)
        case error(String)
    }

    let invocationID: String
    let outcome: Outcome
}

/// An encoded message with its separator, which many connections can share.
package struct SignalRRecord: Sendable, Equatable {
    package let bytes: [UInt8]
    /// The message's ``SignalRMessage/isCounted``.
    let isCounted: Bool

    static let ping = SignalRRecord(.ping)

    /// Encodes an invocation of a client method that wants no answer.
    ///
    /// - Parameters:
    ///   - target: the client's method.
    ///   - encodedArguments: JSON texts, written as is. Valid JSON contains no raw byte 0x1E, so it
    ///     cannot end the record early.
    package init(target: String, encodedArguments: [[UInt8]]) {
        var writer = JSONWriter(capacity: encodedArguments.reduce(64) { $0 + $1.count + 1 })
        writer.beginObject()
        writer.member("type", 1)
        writer.member("target", target)
        writer.key("arguments")
        writer.beginArray()
        for argument in encodedArguments { writer.raw(argument) }
        writer.endArray()
        writer.endObject()
        self.init(writer, isCounted: true)
    }

    package init(_ message: SignalRMessage) {
        var writer = JSONWriter(capacity: 128)
        writer.beginObject()
        writer.key("type")
        switch message {
        case .invocation(let invocation): Self.write(invocation, to: &writer)
        case .streamItem(let invocationID, let item):
            writer.integer(2)
            writer.member("invocationId", invocationID)
            writer.member("item", item)
        case .completion(let completion): Self.write(completion, to: &writer)
        case .cancelInvocation(let invocationID):
            writer.integer(5)
            writer.member("invocationId", invocationID)
        case .ping: writer.integer(6)
        case .close(let error, let allowReconnect):
            writer.integer(7)
            if let error {
                writer.member("error", error)
            }
            if allowReconnect {
                writer.member("allowReconnect", true)
            }
        case .acknowledgement(let sequenceID):
            writer.integer(8)
            writer.member("sequenceId", sequenceID)
        case .sequence(let sequenceID):
            writer.integer(9)
            writer.member("sequenceId", sequenceID)
        }
        writer.endObject()
        self.init(writer, isCounted: message.isCounted)
    }

    private init(_ writer: JSONWriter, isCounted: Bool) {
        var bytes = writer.bytes
        bytes.append(SignalRRecordSplitter.separator)
        self.bytes = bytes
        self.isCounted = isCounted
    }

    private static func write(_ invocation: SignalRInvocation, to writer: inout JSONWriter) {
        writer.integer(invocation.isStream ? 4 : 1)
        if !invocation.headers.isEmpty {
            writer.key("headers")
            writer.beginObject()
            for (name, value) in invocation.headers.sorted(by: { $0.key < $1.key }) {
                writer.key(escaping: name)
                writer.string(value)
            }
            writer.endObject()
        }
        if let invocationID = invocation.invocationID {
            writer.member("invocationId", invocationID)
        }
        writer.member("target", invocation.target)
        writer.member("arguments", .array(invocation.arguments))
        if !invocation.streamIDs.isEmpty {
            writer.member("streamIds", .array(invocation.streamIDs.map { .string($0) }))
        }
    }

    private static func write(_ completion: SignalRCompletion, to writer: inout JSONWriter) {
        writer.integer(3)
        writer.member("invocationId", completion.invocationID)
        switch completion.outcome {
        case .void: break
        case .result(let result):
            writer.member("result", result)
        case .error(let error):
            writer.member("error", error)
        }
    }
}
