// Carillon · SignalRRecord.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A message as bytes, its separator included; encoded once, it can go to many connections.
package struct SignalRRecord: Sendable, Equatable {
    package let bytes: [UInt8]
    /// ``SignalRMessage/isCounted``.
    package let isCounted: Bool

    static let ping = SignalRRecord(.ping)

    /// An invocation of a client's method, for which no answer is wanted.
    ///
    /// - Parameters:
    ///   - target: The client's method.
    ///   - encodedArguments: JSON texts, which are taken as they are. JSON holds no byte 0x1E outside of what it
    ///     escapes, so that a correct text cannot end the record early.
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
