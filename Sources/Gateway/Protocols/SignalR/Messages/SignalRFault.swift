// Carillon · SignalRFault.swift
// SPDX-License-Identifier: Apache-2.0

/// What is wrong with what a client sent, or with how it reads.
package struct SignalRFault: Error, Sendable, Equatable, CustomStringConvertible {
    package enum Code: String, Sendable {
        case recordTooLong
        case invalidJSON
        case invalidMessage
        case invalidSequence
        case tooManyInvocations
        case tooManyStreams
        case resendBufferFull
    }

    package let code: Code
    /// In words that a client may see; never a part of what it sent.
    package let message: String
    /// The property that it concerns, or the byte of the record.
    package let place: String?

    package init(_ code: Code, _ message: String, at place: String? = nil) {
        self.code = code
        self.message = message
        self.place = place
    }

    package var description: String {
        "\(self.code): \(self.message)" + (self.place.map { ", at \($0)" } ?? "")
    }

    static func missing(_ property: String) -> SignalRFault {
        SignalRFault(.invalidMessage, "Missing required property '\(property)'.", at: property)
    }

    static func wrongType(_ property: String, _ type: String) -> SignalRFault {
        SignalRFault(.invalidMessage, "Expected '\(property)' to be of type \(type).", at: property)
    }
}
