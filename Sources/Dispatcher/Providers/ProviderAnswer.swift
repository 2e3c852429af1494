// Carillon · ProviderAnswer.swift
// SPDX-License-Identifier: Apache-2.0

package import Model

/// What a provider's answer means for the delivery.
///
/// Reasons are the provider's own words, made for records.
package enum ProviderAnswer: Sendable, Equatable {
    /// The provider has taken it; `id` is its own name for the message.
    case accepted(id: String?)
    /// It may work later; `after` is the provider's own minimum.
    case retry(reason: String, after: Duration?)
    /// The token is dead. A registration after `evidence` outlives it; nil means the moment of sending.
    case deadToken(reason: String, evidence: Timestamp?)
    /// This message will never be accepted: our fault.
    case refused(reason: String)
    /// Our credential has expired: make a new one and send once more.
    case staleCredential(reason: String)
    /// The provider does not accept our configuration: the work is kept.
    case configuration(reason: String)
}
