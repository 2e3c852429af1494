// Carillon · ProviderReply.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The outcome of one call of a provider.
package struct ProviderReply: Sendable {
    /// The provider's answer, or the reason why there is none.
    package enum Result: Sendable, Equatable {
        case answered(ProviderAnswer)
        /// No answer came; if `mayHaveBeenSent`, the provider may still have the message.
        case unanswered(reason: String, mayHaveBeenSent: Bool)
        /// No credential is available now.
        case noCredential(reason: String)
        /// Our own rules forbid sending this to the device, now or later; the provider was not
        /// called.
        case unsendable(reason: String)
        /// The message never left our queue; the provider was not called.
        case noTurn
        /// When its turn came, the message was no longer allowed (``PushMessage/mayStart``); the
        /// provider was not called.
        case fenced
    }

    package let result: Result
    /// The provider's status and the start of its answer, for people, without credentials.
    package var transcript: String? {
        // JSON with U+0000 is refused.
        self.makeTranscript().map { String($0.unicodeScalars.map { $0.value == 0 ? "\u{FFFD}" : Character($0) }) }
    }
    private let makeTranscript: @Sendable () -> String?

    /// - Parameter transcript: evaluated only on demand, since most answers are never read.
    package init(_ result: Result, transcript: @autoclosure @escaping @Sendable () -> String? = nil) {
        self.result = result
        self.makeTranscript = transcript
    }
}

extension String {
    /// Replaces a secret with an ellipsis.
    ///
    /// Compares bytes: with a combining mark after it, a secret's last letter is another
    /// `Character`.
    func hiding(_ secret: some StringProtocol) -> String {
        String(decoding: Array(self.utf8).replacing(Array(secret.utf8), with: Array("…".utf8)), as: UTF8.self)
    }
}

extension ProviderReply {
    /// Advice about our own refusals and failures, which no provider's table has.
    private static let ownAdvice: [String: String] = [
        "token_malformed": "the token is malformed; have the app register it again",
        "no_subscription": "the token is not a browser subscription; register JSON.stringify(subscription)",
        "origin_not_allowed":
            "the subscription's push service is not allowed; add it to WEBPUSH_ORIGINS or to the app's origins",
        "bad_subscription_key":
            "the subscription's keys are invalid (RFC 8291); have the page subscribe again and register that",
        "private_address":
            "the service resolves to a private address, which is refused; check the subscription and the DNS",
        "not_http2":
            "the answer came over HTTP/1.1, which Apple does not use; look for a proxy on the way to Apple",
        "answer_cut":
            "the answer ended before its reason; if this repeats, look for a proxy on the way",
        "too_large":
            "the message exceeds the provider's limit even without its optional parts; shorten the named part",
        "bad_address": "the user's e-mail address is invalid; have it set again",
        "bad_field": "the named mail header is invalid; check SMTP_FROM and PUBLIC_URL",
        "not_understood":
            "the answer is not the provider's; look for a proxy on the way, and check the device before you resend",
    ]

    /// Returns advice for the operator; nil if the provider accepted.
    package func advice(of provider: Provider) -> String? {
        switch self.result {
        case .answered(.accepted): return nil
        case .noCredential: return "no credential is available; see the reason"
        case .noTurn: return "the dispatcher had too much to send first; start another dispatcher or send again later"
        case .fenced: return "the dispatcher lost its lease, or the provider failed, before the call; it is sent later"
        case .unsendable(let reason): return Self.advice(on: reason) ?? "it was not sent; see the reason"
        case .unanswered(let reason, let mayHaveBeenSent):
            if let own = Self.ownAdvice[reason] { return own }
            if reason.hasPrefix("token_endpoint_") {
                return "the token endpoint issues no token now; check the network, PROVIDER_CA and the service account"
            }
            return mayHaveBeenSent
                ? "the provider may have the message; check the device before you resend"
                : "the provider cannot be reached from the dispatcher; check the network, PROVIDER_CA and the endpoint"
        case .answered(let answer):
            let rules = ProviderKinds.kind(of: provider)?.rules ?? []
            if let rule = rules.first(where: { $0.reason == answer.reason }) { return rule.advice }
            return answer.reason.flatMap { Self.advice(on: $0) }
                ?? "see the provider's answer and its documentation"
        }
    }

    /// The part at fault follows a colon in the reason.
    private static func advice(on reason: String) -> String? { self.ownAdvice[String(reason.prefix { $0 != ":" })] }
}
