// Carillon · ProviderAnswer.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What a provider's answer means for the delivery.
///
/// Reasons are the provider's own words, made for records.
package enum ProviderAnswer: Sendable, Equatable {
    /// The provider has taken it; `id` is its own name for the message.
    case accepted(id: String?)
    /// It may work later; `after` is the provider's own minimum.
    case retry(reason: String, after: Duration?)
    /// This device has had too much; others are not concerned.
    case retryDevice(reason: String, after: Duration)
    /// Everything of this app, and of others of its account, is to wait so long.
    case slowDown(reason: String, after: Duration)
    /// The token is dead. A registration after `evidence` outlives it; nil means the moment of sending.
    case deadToken(reason: String, evidence: Timestamp?)
    /// This message will never be accepted: our fault.
    case refused(reason: String)
    /// Our credential has expired: make a new one and send once more.
    case staleCredential(reason: String)
    /// The provider does not accept our configuration: all of the app's work is kept, or this device's is tried again.
    case configuration(reason: String, concernsAll: Bool = true)
}

extension ProviderAnswer {
    /// What is done about a refusal whose reason was cut off: the whole of it may say of the device, of the message or of
    /// the configuration what its status does not.
    static func cut(status: Int, after: Duration?) -> ProviderAnswer {
        .retry(reason: "answer_cut:\(status)", after: after)
    }

    /// The provider's word for it; nil if it has accepted.
    package var reason: String? {
        switch self {
        case .accepted: nil
        case .retry(let reason, _), .retryDevice(let reason, _), .slowDown(let reason, _), .deadToken(let reason, _),
            .refused(let reason), .staleCredential(let reason), .configuration(let reason, _):
            reason
        }
    }
}
