// Carillon · ProviderReply+Advice.swift
// SPDX-License-Identifier: Apache-2.0

import Core

extension ProviderReply {
    /// What refusals and failures of our own ask for; no provider's table has them.
    private static let ownAdvice: [String: String] = [
        "token_malformed": "the token has characters that no such token has; have the app register it again",
        "no_subscription": "the token is no browser's subscription; register JSON.stringify(subscription)",
        "silent_push_not_allowed":
            "Safari ends a subscription whose pushes show nothing, so that nothing is taken away there",
        "origin_not_allowed":
            "the subscription's push service is not on the list; add it to WEBPUSH_ORIGINS, or to its app's origins",
        "bad_subscription_key":
            "the subscription's keys are no keys (RFC 8291); have the page subscribe anew and register that",
        "private_address":
            "the service's name leads to a private address, to which nothing is sent; check the subscription and the DNS",
        "not_http2":
            "the answer came by HTTP/1.1, which Apple does not speak; look for a proxy between here and Apple",
        "answer_cut":
            "the answer ended before it said why; look for a proxy on the way, if it is always so",
        "too_large":
            "the message is over the provider's limit though all that may be left out was; shorten what is named",
        "bad_address": "the user's e-mail address cannot be written to; have it set again",
        "bad_field": "the mail's field that is named cannot be written; check SMTP_FROM and PUBLIC_URL",
        "not_understood":
            "the answer is none of the provider's; look for a proxy on the way, and at the device before you repeat it",
    ]

    /// What a person can do about it; nil if it was accepted.
    package func advice(of provider: Provider) -> String? {
        switch self.result {
        case .answered(.accepted): return nil
        case .noCredential: return "the credential cannot be had; its reason is beside"
        case .noTurn: return "the dispatcher had too much to send before it; start another, or send it again later"
        case .unsendable(let reason): return Self.advice(on: reason) ?? "it was not sent; the reason is beside"
        case .unanswered(let reason, let mayHaveBeenSent):
            if let own = Self.ownAdvice[reason] { return own }
            if reason.hasPrefix("token_endpoint_") {
                return "the token endpoint gives no token now; check the network, PROVIDER_CA and the service account"
            }
            return mayHaveBeenSent
                ? "the provider may have the message; look at the device before you repeat it"
                : "the provider cannot be reached from the dispatcher; check the network, PROVIDER_CA and the endpoint"
        case .answered(let answer):
            let rules = ProviderKinds.kind(of: provider)?.rules ?? []
            if let rule = rules.first(where: { $0.reason == answer.reason }) { return rule.advice }
            return answer.reason.flatMap { Self.advice(on: $0) }
                ?? "the provider's answer is beside; its documentation has the word"
        }
    }

    /// What is at fault stands behind a colon.
    private static func advice(on reason: String) -> String? { self.ownAdvice[String(reason.prefix { $0 != ":" })] }
}
