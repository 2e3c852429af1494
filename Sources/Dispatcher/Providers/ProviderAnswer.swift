// Carillon · ProviderAnswer.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The meaning of a provider's answer for a delivery.
///
/// Reasons are the provider's own codes, for the records.
package enum ProviderAnswer: Sendable, Equatable {
    /// The provider accepted the message; `id` is its name for it.
    case accepted(id: String?)
    /// A retry may succeed; `after` is the provider's minimum delay.
    case retry(reason: String, after: Duration?)
    /// This device got too many messages; others are unaffected.
    case retryDevice(reason: String, after: Duration)
    /// Everything of this app, and of its account, must pause this long.
    case slowDown(reason: String, after: Duration)
    /// The token is invalid. A registration after `evidence` stays valid; nil means the time of
    /// sending.
    case deadToken(reason: String, evidence: Timestamp?)
    /// This message will never be accepted; our fault.
    case refused(reason: String)
    /// Our credential has expired: renew it and send once more.
    case staleCredential(reason: String)
    /// The provider rejects our configuration: the app's deliveries wait, or only this device's if
    /// not `concernsAll`.
    case configuration(reason: String, concernsAll: Bool = true)
}

extension ProviderAnswer {
    /// Returns the answer to a refusal whose body was cut: the full body might have blamed the
    /// device, the message or the configuration, so retry.
    static func cut(status: Int, after: Duration?) -> ProviderAnswer {
        .retry(reason: "answer_cut:\(status)", after: after)
    }

    /// The provider's reason; nil if it accepted.
    package var reason: String? {
        switch self {
        case .accepted: nil
        case .retry(let reason, _), .retryDevice(let reason, _), .slowDown(let reason, _), .deadToken(let reason, _),
            .refused(let reason), .staleCredential(let reason), .configuration(let reason, _):
            reason
        }
    }
}

/// One row of a provider's answer table: a reason, its effect and advice for the operator.
package struct AnswerRule: Sendable {
    /// The effect of an answer on the delivery.
    package enum Reaction: String, Sendable, CaseIterable {
        /// Retries later.
        case retry
        /// Retries later; only this device is affected.
        case retryDevice = "retry device"
        /// Pauses everything of the app.
        case slowDown = "slow down"
        /// Disables the device.
        case deadToken = "dead token"
        /// Renews the credential and sends once more.
        case staleCredential = "stale credential"
        /// Raises an alarm; the app's deliveries wait until the configuration is fixed.
        case configuration
        /// Raises an alarm; only this device's deliveries retry.
        case partialConfiguration = "partial configuration"
        /// Moves the message to the dead letters: it is invalid.
        case refused
    }

    let reason: String
    let reaction: Reaction
    /// The minimum delay if the answer names none.
    let after: Duration?
    /// Whether every token gets this answer if the credentials or the devices' environment are
    /// wrong.
    ///
    /// Such an answer counts only once the provider has accepted a message to a device
    /// (``ChannelDirectory/Entry/judged(_:of:)``).
    let needsProof: Bool
    let advice: String

    package init(
        _ reason: String,
        _ reaction: Reaction,
        after: Duration? = nil,
        needsProof: Bool = false,
        _ advice: String
    ) {
        self.reason = reason
        self.reaction = reaction
        self.after = after
        self.needsProof = needsProof
        self.advice = advice
    }

    /// Returns the answer of this row.
    ///
    /// - Parameters:
    ///   - reason: the recorded reason if it differs from the row's.
    ///   - after: the minimum delay that the answer names.
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
