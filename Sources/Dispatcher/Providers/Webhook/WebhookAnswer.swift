// Carillon · WebhookAnswer.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Reads the answers of an app's own program, which are statuses of HTTP and nothing else.
package enum WebhookAnswer {
    private static let longestID = 256

    /// What each status means.
    package static let rules: [AnswerRule] = [
        AnswerRule("HTTP_400", .refused, "the receiver does not take the request, and its answer says why"),
        AnswerRule("HTTP_401", .configuration, "the receiver refuses the signature; check the secret and the clock"),
        AnswerRule("HTTP_403", .configuration, "the receiver refuses the signature; check the secret and the clock"),
        AnswerRule("HTTP_404", .refused, "the URL leads nowhere; a token that is gone is answered with 410"),
        AnswerRule("HTTP_408", .retry, after: .seconds(10), "the receiver was too slow; look there"),
        AnswerRule("HTTP_410", .deadToken, "the receiver knows the token no more; register the device again"),
        AnswerRule("HTTP_413", .refused, "the receiver takes smaller requests only; send less data"),
        AnswerRule("HTTP_429", .slowDown, after: .seconds(60), "the receiver wants fewer requests; set a rate"),
        AnswerRule("HTTP_500", .retry, after: .seconds(10), "the receiver has an error of its own; look there"),
        AnswerRule("HTTP_503", .retry, after: .seconds(10), "the receiver is out of service; look there"),
    ]

    private static let byReason = Dictionary(uniqueKeysWithValues: rules.map { ($0.reason, $0) })
    private static let outOfOrder = AnswerRule("HTTP_5xx", .retry, after: .seconds(10), "the receiver is out of order")
    private static let notUnderstood = AnswerRule("HTTP", .refused, "the receiver answers what is no answer")

    /// What an answer means.
    ///
    /// - Parameter retryAfter: what the Retry-After header asks for.
    package static func read(status: Int, body: [UInt8], retryAfter: Duration?) -> ProviderAnswer {
        if (200..<300).contains(status) {
            let id = (try? JSONParser.parse(body))?["id"]?.string
            return .accepted(id: id.map { String($0.prefix(Self.longestID)) })
        }
        let code = "HTTP_\(status)"
        let rule = Self.byReason[code] ?? (status >= 500 ? Self.outOfOrder : Self.notUnderstood)
        return rule.answer(reason: code, after: retryAfter)
    }
}
