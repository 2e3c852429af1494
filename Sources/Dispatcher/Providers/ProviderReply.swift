// Carillon · ProviderReply.swift
// SPDX-License-Identifier: Apache-2.0

/// What came of one call of a provider.
package struct ProviderReply: Sendable, Equatable {
    package enum Result: Sendable, Equatable {
        case answered(ProviderAnswer)
        /// Nobody said anything; whether the provider has it is not known if `mayHaveBeenSent`.
        case unanswered(reason: String, mayHaveBeenSent: Bool)
        /// There is no credential to be had now.
        case noCredential(reason: String)
    }

    package let result: Result
    /// What the provider said, for a person: its status and the beginning of its answer, without credentials.
    package let transcript: String?

    package init(_ result: Result, transcript: String? = nil) {
        self.result = result
        self.transcript = transcript
    }
}
