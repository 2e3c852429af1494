// Carillon · SignalRDecoder.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Decodes records of the JSON hub protocol.
package enum SignalRDecoder {
    /// Decodes a record without its separator; nil for an unknown type, which must be ignored.
    ///
    /// Properties may come in any order, unknown ones are skipped, and null means absent for
    /// optional ones.
    ///
    /// - Throws: ``SignalRFault`` that names the property.
    package static func message(_ record: [UInt8]) throws(SignalRFault) -> SignalRMessage? {
        let value: JSONValue
        do {
            value = try JSONParser.parse(record)
        } catch {
            throw SignalRFault(.invalidJSON, "A message is \(error.kind.rawValue).", at: "byte \(error.offset)")
        }
        guard value.object != nil else { throw SignalRFault(.invalidMessage, "A message is not a JSON object.") }
        guard let type = value["type"] else { throw .missing("type") }
        guard let type = type.integer else { throw .wrongType("type", "Number") }
        switch type {
        case 1, 4: return .invocation(try Self.invocation(value, isStream: type == 4))
        case 2, 3: return .ignored
        case 5: return .cancellation(invocationID: try Self.invocationID(value))
        case 6: return .ping
        case 7: return .close
        case 8: return .acknowledgement(sequenceID: try Self.sequenceID(value))
        case 9: return .sequence(sequenceID: try Self.sequenceID(value))
        default: return nil
        }
    }

    private static func invocation(_ value: JSONValue, isStream: Bool) throws(SignalRFault) -> SignalRInvocation {
        let invocationID = isStream ? try Self.invocationID(value) : try Self.text("invocationId", of: value)
        guard let target = try Self.text("target", of: value), !target.isEmpty else { throw .missing("target") }
        guard let arguments = value["arguments"] else { throw .missing("arguments") }
        guard let arguments = arguments.array else { throw .wrongType("arguments", "Array") }
        return SignalRInvocation(
            target: target,
            arguments: arguments,
            invocationID: invocationID == "" ? nil : invocationID,
            isStream: isStream
        )
    }

    private static func invocationID(_ value: JSONValue) throws(SignalRFault) -> String {
        guard let id = try Self.text("invocationId", of: value), !id.isEmpty else { throw .missing("invocationId") }
        return id
    }

    private static func sequenceID(_ value: JSONValue) throws(SignalRFault) -> Int64 {
        guard let id = value["sequenceId"] else { throw .missing("sequenceId") }
        guard let id = id.integer else { throw .wrongType("sequenceId", "Number") }
        return id
    }

    private static func text(_ property: String, of value: JSONValue) throws(SignalRFault) -> String? {
        guard let member = value[property], member != .null else { return nil }
        guard let text = member.string else { throw .wrongType(property, "String") }
        return text
    }
}

/// Splits input into records, which end with the byte 0x1E and may span pieces.
package struct SignalRRecordSplitter: Sendable {
    package static let separator: UInt8 = 0x1E

    /// The records that one piece of input completes.
    package struct Batch: Sendable, Equatable {
        /// The records without their separators.
        package var records: [[UInt8]] = []
        /// Whether a later record, finished or not, exceeded the limit; later input is ignored.
        package var isTooLong = false
    }

    private let maximumBytes: Int
    private var pending: [UInt8] = []
    private var isBroken = false

    /// The bytes of the unfinished record.
    var pendingBytes: Int { self.pending.count }

    /// Creates a splitter that holds at most one unfinished record of `maximumBytes`, without its
    /// separator.
    package init(maximumBytes: Int) {
        self.maximumBytes = maximumBytes
    }

    /// Returns the records that these bytes complete.
    package mutating func split(_ bytes: [UInt8]) -> Batch {
        var batch = Batch()
        guard !self.isBroken else { return batch }
        var start = 0
        while let end = bytes[start...].firstIndex(of: Self.separator) {
            guard self.pending.count + (end - start) <= self.maximumBytes else { return self.stop(batch) }
            if self.pending.isEmpty {
                batch.records.append(Array(bytes[start..<end]))
            } else {
                self.pending.append(contentsOf: bytes[start..<end])
                batch.records.append(self.pending)
                self.pending = []
            }
            start = end + 1
        }
        guard self.pending.count + (bytes.count - start) <= self.maximumBytes else { return self.stop(batch) }
        self.pending.append(contentsOf: bytes[start...])
        return batch
    }

    private mutating func stop(_ batch: Batch) -> Batch {
        self.isBroken = true
        self.pending = []
        var batch = batch
        batch.isTooLong = true
        return batch
    }
}

/// A fault in a client's input.
package struct SignalRFault: Error, Sendable, Equatable, CustomStringConvertible {
    /// The kind of fault, for logs and tests.
    package enum Code: String, Sendable {
        case recordTooLong
        case invalidJSON
        case invalidMessage
        case invalidSequence
        case tooManyInvocations
    }

    package let code: Code
    /// A text that the client may see; never quotes its input.
    let message: String
    /// The property at fault, or the byte of the record.
    package let location: String?

    init(_ code: Code, _ message: String, at location: String? = nil) {
        self.code = code
        self.message = message
        self.location = location
    }

    package var description: String {
        "\(self.code): \(self.message)" + (self.location.map { ", at \($0)" } ?? "")
    }

    static func missing(_ property: String) -> SignalRFault {
        SignalRFault(.invalidMessage, "Missing required property '\(property)'.", at: property)
    }

    static func wrongType(_ property: String, _ type: String) -> SignalRFault {
        SignalRFault(.invalidMessage, "Expected '\(property)' to be of type \(type).", at: property)
    }
}
