// Carillon · AnswerRule.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// One row of a provider's table of answers: what its word means, and what a person can do about it.
package struct AnswerRule: Sendable {
    /// What is done about an answer.
    package enum Reaction: String, Sendable, CaseIterable {
        /// Sent again later.
        case retry
        /// Sent again later; only this device is concerned.
        case retryDevice = "retry device"
        /// Everything of the app waits.
        case slowDown = "slow down"
        /// The device is switched off.
        case deadToken = "dead token"
        /// A new credential is made, and the message sent once more.
        case staleCredential = "stale credential"
        /// An alarm; the app's work is kept until it is mended.
        case configuration
        /// The same for this device's messages, while others go out.
        case partialConfiguration = "partial configuration"
        /// A dead letter: the message is at fault.
        case refused
    }

    package let reason: String
    package let reaction: Reaction
    /// The provider's minimum where its answer names none.
    package let after: Duration?
    package let advice: String

    package init(_ reason: String, _ reaction: Reaction, after: Duration? = nil, _ advice: String) {
        self.reason = reason
        self.reaction = reaction
        self.after = after
        self.advice = advice
    }

    /// The answer that this row stands for.
    ///
    /// - Parameters:
    ///   - reason: the word on record, where it is not the row's own.
    ///   - after: the minimum that the answer names.
    func answer(reason: String? = nil, after: Duration? = nil, evidence: Timestamp? = nil) -> ProviderAnswer {
        let reason = reason ?? self.reason
        let delay = after ?? self.after
        return switch self.reaction {
        case .retry: .retry(reason: reason, after: delay)
        case .retryDevice: .retryDevice(reason: reason, after: delay ?? .seconds(60))
        case .slowDown: .slowDown(reason: reason, after: delay ?? .seconds(60))
        case .deadToken: .deadToken(reason: reason, evidence: evidence)
        case .staleCredential: .staleCredential(reason: reason)
        case .configuration: .configuration(reason: reason)
        case .partialConfiguration: .configuration(reason: reason, concernsAll: false)
        case .refused: .refused(reason: reason)
        }
    }
}
