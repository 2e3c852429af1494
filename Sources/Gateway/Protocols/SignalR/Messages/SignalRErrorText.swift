// Carillon · SignalRErrorText.swift
// SPDX-License-Identifier: Apache-2.0

/// The errors that clients of the reference server know.
package enum SignalRErrorText {
    package static func unknownMethod(_ target: String) -> String {
        "Failed to invoke '\(target)' due to an error on the server. HubException: Method does not exist."
    }

    /// A failure whose details the client must not see.
    package static func unexpected(_ target: String) -> String {
        "An unexpected error occurred invoking '\(target)' on the server."
    }

    /// A failure that the method wants its caller to read.
    package static func failed(_ target: String, _ reason: String) -> String {
        "\(Self.unexpected(target)) HubException: \(reason)"
    }

    package static func unauthorized(_ target: String) -> String {
        "Failed to invoke '\(target)' because user is unauthorized"
    }

    /// A method that answers with a stream was called for a single answer.
    package static func streamingMethodInvoked(_ target: String) -> String {
        "The client attempted to invoke the streaming '\(target)' method with a non-streaming invocation."
    }

    /// A method that answers once was called for a stream.
    package static func plainMethodStreamed(_ target: String) -> String {
        "The client attempted to invoke the non-streaming '\(target)' method with a streaming invocation."
    }

    static func invocationIDInUse(_ invocationID: String) -> String {
        "Invocation ID '\(invocationID)' is already in use."
    }

    static let tooManyStreams = "Too many streams are open on this connection."
    static let closedWithError = "Connection closed with an error."
    static let clientTimeout = "Connection closed with an error. The client was silent for too long."
}
