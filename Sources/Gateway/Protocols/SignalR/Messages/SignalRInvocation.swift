// Carillon · SignalRInvocation.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A call of a method on the other side.
package struct SignalRInvocation: Sendable, Equatable {
    package let target: String
    package let arguments: [JSONValue]
    /// Without one no answer is allowed; a stream always has one.
    package let invocationID: String?
    /// The streams that the caller sends along, as items under these ids.
    package let streamIDs: [String]
    package let headers: [String: String]
    /// The answer is a stream: type 4.
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

    /// Whether it calls that method; names are alike whatever their case.
    package func calls(_ method: String) -> Bool {
        ExactText(self.target.lowercased()) == ExactText(method.lowercased())
    }
}
