// Carillon · WebPushAnswer.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Parses push services' answers (RFC 8030 section 5, RFC 8292 section 4.2).
///
/// Browsers choose the endpoints, so no answer of one service may delay the others.
package enum WebPushAnswer {
    private static let longestID = 256
    private static let firstDelay: Duration = .seconds(10)

    /// The meaning of each status.
    package static let rules: [AnswerRule] = [
        AnswerRule("HTTP_400", .refused, "the service rejects the request; see its answer"),
        AnswerRule(
            "HTTP_401", .partialConfiguration,
            "the service rejects the token; check VAPID_SUBJECT, the key and the clock"),
        AnswerRule(
            "HTTP_403", .partialConfiguration,
            "the browser subscribed with another key; restore the old VAPID_KEY or have the page subscribe again"),
        AnswerRule("HTTP_404", .deadToken, "the subscription is gone; the page subscribes again when it is opened"),
        // Microsoft's answer where others have 429.
        AnswerRule("HTTP_406", .retryDevice, after: .seconds(60), "the service throttles the app; set a rate"),
        AnswerRule(
            "HTTP_408", .retry, after: .seconds(10),
            "the service waited too long for the request; no action needed"),
        AnswerRule("HTTP_410", .deadToken, "the subscription has ended; the page subscribes again when it is opened"),
        AnswerRule("HTTP_413", .refused, "the service accepts less than 4,096 bytes; send less data"),
        // Both ask for the same request again (RFC 9110 section 15.5.20, RFC 8470 section 5.2).
        AnswerRule(
            "HTTP_421", .retry, after: .seconds(10),
            "the connection led to another server; no action needed"),
        AnswerRule(
            "HTTP_425", .retry, after: .seconds(10),
            "the service got the request too early; no action needed"),
        AnswerRule(
            "HTTP_429", .retryDevice, after: .seconds(60), "the subscription gets too many messages; send fewer"),
        AnswerRule(
            "HTTP_500", .retry, after: .seconds(10), "the service failed internally; no action needed"),
        AnswerRule("HTTP_503", .retry, after: .seconds(10), "the service is overloaded; no action needed"),
        // Apple answers 400 where others answer 403.
        AnswerRule(
            "VapidPkHashMismatch", .partialConfiguration,
            "the browser subscribed with another key; restore the old VAPID_KEY or have the page subscribe again"),
    ]

    private static let byReason = Dictionary(uniqueKeysWithValues: rules.map { ($0.reason, $0) })

    /// Maps an answer; nil for a success with a page and no location, which is not a push
    /// service's.
    ///
    /// A refusal with a page may be genuine: Google's service, for example, answers with pages.
    ///
    /// - Parameters:
    ///   - isPage: whether the body is an HTML page.
    ///   - isComplete: false if the body may be cut.
    ///   - location: the Location header, which names the message.
    ///   - retryAfter: the Retry-After header.
    static func read(
        status: Int,
        body: [UInt8],
        isPage: @autoclosure () -> Bool = false,
        isComplete: Bool = true,
        location: String?,
        retryAfter: @autoclosure () -> Duration?
    ) -> ProviderAnswer? {
        // Redirects are not followed: strangers choose their targets.
        if (200..<300).contains(status) {
            if location == nil, isPage() { return nil }
            return .accepted(id: location.map { String($0.unicodeScalars.prefix(Self.longestID)) })
        }
        // The header is read for refusals only; most answers are successes.
        let retryAfter = retryAfter()
        let code = "HTTP_\(status)"
        // Anyone may run a service, so only known reasons count.
        let value = try? JSONParser.parse(body)
        if let word = value?["reason"]?.string, let rule = Self.byReason[word], !word.hasPrefix("HTTP_") {
            return rule.answer(after: retryAfter)
        }
        // Only a 400 may carry a reason beyond its status; a cut body is not valid JSON.
        if !isComplete, value == nil, status == 400 {
            return .cut(status: status, after: retryAfter ?? Self.firstDelay)
        }
        if let rule = Self.byReason[code] { return rule.answer(after: retryAfter) }
        return status >= 500 ? .retry(reason: code, after: retryAfter ?? Self.firstDelay) : .refused(reason: code)
    }
}
