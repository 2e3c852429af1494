// Carillon · SignalRMessage.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A client's message (types 1 to 9 of the hub protocol's specification).
package enum SignalRMessage: Sendable, Equatable {
    /// Types 1 and 4.
    case invocation(SignalRInvocation)
    /// Types 2 and 3: the server awaits no results, and no method reads a stream.
    case ignored
    /// Type 5: the client wants no more items of a stream.
    case cancellation(invocationID: String)
    /// Type 6.
    case ping
    /// Type 7.
    case close
    /// Type 8: all counted messages up to this number have arrived.
    case acknowledgement(sequenceID: Int64)
    /// Type 9: the number of the next counted message.
    case sequence(sequenceID: Int64)

    /// Whether stateful reconnect counts and repeats the message: types 1 to 5.
    var isCounted: Bool {
        switch self {
        case .invocation, .ignored, .cancellation: true
        case .ping, .close, .acknowledgement, .sequence: false
        }
    }
}

/// A client's call of a method.
package struct SignalRInvocation: Sendable, Equatable {
    package let target: String
    package let arguments: [JSONValue]
    /// Nil if no answer is wanted; a stream always has one.
    let invocationID: String?
    /// Whether the answer is a stream (type 4).
    package let isStream: Bool

    package init(target: String, arguments: [JSONValue], invocationID: String? = nil, isStream: Bool = false) {
        self.target = target
        self.arguments = arguments
        self.invocationID = invocationID
        self.isStream = isStream
    }

    /// Whether the invocation calls this method, in any letter case.
    package func calls(_ method: String) -> Bool {
        ExactText(self.target.lowercased()) == ExactText(method.lowercased())
    }
}

/// The answer to a call.
package enum SignalROutcome: Sendable, Equatable {
    case void
    case result(JSONValue)
    case error(String)
}

/// An encoded message with its separator, which many connections can share.
package struct SignalRRecord: Sendable, Equatable {
    package let bytes: [UInt8]
    /// Whether stateful reconnect counts and repeats the message: types 1 to 5.
    let isCounted: Bool

    static let ping = SignalRRecord(type: 6) { _ in }

    /// Encodes an invocation of a client method that wants no answer.
    ///
    /// - Parameters:
    ///   - target: the client's method.
    ///   - encodedArguments: JSON texts, written as is. Valid JSON contains no raw byte 0x1E, so it
    ///     cannot end the record early.
    package init(target: String, encodedArguments: [[UInt8]]) {
        let capacity = encodedArguments.reduce(64) { $0 + $1.count + 1 }
        self.init(type: 1, isCounted: true, capacity: capacity) { writer in
            writer.member("target", target)
            writer.key("arguments")
            writer.beginArray()
            for argument in encodedArguments { writer.raw(argument) }
            writer.endArray()
        }
    }

    private init(
        type: Int, isCounted: Bool = false, capacity: Int = 128, _ writeMembers: (inout JSONWriter) -> Void
    ) {
        var writer = JSONWriter(capacity: capacity)
        writer.beginObject()
        writer.member("type", type)
        writeMembers(&writer)
        writer.endObject()
        self.bytes = writer.bytes + [SignalRRecordSplitter.separator]
        self.isCounted = isCounted
    }

    static func streamItem(invocationID: String, _ item: JSONValue) -> SignalRRecord {
        SignalRRecord(type: 2, isCounted: true) { writer in
            writer.member("invocationId", invocationID)
            writer.member("item", item)
        }
    }

    static func completion(invocationID: String, _ outcome: SignalROutcome) -> SignalRRecord {
        SignalRRecord(type: 3, isCounted: true) { writer in
            writer.member("invocationId", invocationID)
            switch outcome {
            case .void: break
            case .result(let result): writer.member("result", result)
            case .error(let error): writer.member("error", error)
            }
        }
    }

    static func close(error: String?, allowReconnect: Bool) -> SignalRRecord {
        SignalRRecord(type: 7) { writer in
            if let error { writer.member("error", error) }
            if allowReconnect { writer.member("allowReconnect", true) }
        }
    }

    static func acknowledgement(sequenceID: Int64) -> SignalRRecord {
        SignalRRecord(type: 8) { $0.member("sequenceId", sequenceID) }
    }

    static func sequence(sequenceID: Int64) -> SignalRRecord {
        SignalRRecord(type: 9) { $0.member("sequenceId", sequenceID) }
    }
}
