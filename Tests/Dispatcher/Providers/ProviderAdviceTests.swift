// Carillon · ProviderAdviceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Providers
import Testing

@Suite("Advice", .timeLimit(.minutes(10)))
struct ProviderAdviceTests {
    @Test(
        "What we keep back ourselves says what to do, as no answer does",
        arguments: [
            ("token_malformed", Provider.apns, "register it again"),
            ("no_subscription", Provider.webpush, "JSON.stringify"),
            ("silent_push_not_allowed", Provider.webpush, "Safari"),
            ("origin_not_allowed", Provider.webpush, "WEBPUSH_ORIGINS"),
            ("bad_subscription_key", Provider.webpush, "subscribe again"),
            ("private_address", Provider.webpush, "private address"),
            ("too_large:title", Provider.apns, "shorten"), ("too_large:platform.apns", Provider.apns, "shorten"),
            ("bad_address", Provider.email, "set again"), ("bad_field:From", Provider.email, "SMTP_FROM"),
        ])
    func refusals(reason: String, provider: Provider, words: String) {
        let reply = ProviderReply(.unsendable(reason: reason), transcript: "not sent")
        #expect(reply.advice(of: provider)?.contains(words) == true)
    }

    @Test("So does what makes no sense, and what no token can be had for")
    func others() {
        func advice(_ result: ProviderReply.Result) -> String? { ProviderReply(result).advice(of: .apns) }
        #expect(advice(.answered(.retry(reason: "not_http2", after: nil)))?.contains("proxy") == true)
        #expect(advice(.answered(.retry(reason: "answer_cut:404", after: nil)))?.contains("ended before") == true)
        #expect(advice(.unanswered(reason: "not_understood", mayHaveBeenSent: true))?.contains("proxy") == true)
        #expect(
            advice(.unanswered(reason: "token_endpoint_503", mayHaveBeenSent: false))?.contains("token endpoint")
                == true)
        #expect(advice(.unanswered(reason: "connect", mayHaveBeenSent: false))?.contains("cannot be reached") == true)
        #expect(advice(.answered(.refused(reason: "NewWord")))?.contains("documentation") == true)
        #expect(advice(.answered(.accepted(id: nil))) == nil)
    }
}
