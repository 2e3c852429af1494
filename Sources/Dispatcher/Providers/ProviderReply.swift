// Carillon · ProviderReply.swift
// SPDX-License-Identifier: Apache-2.0

/// What came of one call of a provider.
package struct ProviderReply: Sendable {
    package enum Result: Sendable, Equatable {
        case answered(ProviderAnswer)
        /// Nobody said anything; whether the provider has it is not known if `mayHaveBeenSent`.
        case unanswered(reason: String, mayHaveBeenSent: Bool)
        /// There is no credential to be had now.
        case noCredential(reason: String)
        /// It cannot be sent to this device by our own rules, now or later; the provider was not called.
        case unsendable(reason: String)
        /// It never left our own queue; the provider was not called.
        case noTurn
    }

    package let result: Result
    /// What the provider said, for a person: its status and the beginning of its answer, without credentials.
    package var transcript: String? { self.said() }
    private let said: @Sendable () -> String?

    /// - Parameter transcript: made only if somebody wants to read it, as most answers are read by nobody.
    package init(_ result: Result, transcript: @autoclosure @escaping @Sendable () -> String? = nil) {
        self.result = result
        self.said = transcript
    }
}
