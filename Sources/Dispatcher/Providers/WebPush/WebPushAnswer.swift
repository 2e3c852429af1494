// Carillon · WebPushAnswer.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Reads push services' answers (RFC 8030 section 5, RFC 8292 section 4.2).
///
/// Endpoints are what browsers say: no answer of one is a reason to keep the others waiting.
package enum WebPushAnswer {
    private static let longestID = 256
    private static let firstDelay: Duration = .seconds(10)

    /// What each status means.
    package static let rules: [AnswerRule] = [
        AnswerRule("HTTP_400", .refused, "the service does not take the request, and its answer says why"),
        AnswerRule(
            "HTTP_401", .partialConfiguration,
            "the token was not accepted; check VAPID_SUBJECT, the key and the clock"),
        AnswerRule(
            "HTTP_403", .partialConfiguration,
            "the browser subscribed with another key; put the old VAPID_KEY back, or have the page subscribe anew"),
        AnswerRule("HTTP_404", .deadToken, "the subscription is gone; the page subscribes again when it is opened"),
        AnswerRule(
            "HTTP_408", .retry, after: .seconds(10),
            "the service had to wait for the request; nothing is to be done"),
        AnswerRule("HTTP_410", .deadToken, "the subscription has ended; the page subscribes again when it is opened"),
        AnswerRule("HTTP_413", .refused, "the service takes less than 4,096 bytes; send less data"),
        AnswerRule(
            "HTTP_429", .retryDevice, after: .seconds(60), "the subscription gets too many messages; send fewer"),
        AnswerRule(
            "HTTP_500", .retry, after: .seconds(10), "the service has an error of its own; nothing is to be done"),
        AnswerRule("HTTP_503", .retry, after: .seconds(10), "the service is overloaded; nothing is to be done"),
        // Apple says 400 where others say 403.
        AnswerRule(
            "VapidPkHashMismatch", .partialConfiguration,
            "the browser subscribed with another key; put the old VAPID_KEY back, or have the page subscribe anew"),
    ]

    private static let byReason = Dictionary(uniqueKeysWithValues: rules.map { ($0.reason, $0) })
    private static let outOfOrder = AnswerRule("HTTP_5xx", .retry, after: .seconds(10), "the service is out of order")
    private static let notUnderstood = AnswerRule("HTTP", .refused, "the service answers what is no answer")

    /// What an answer means; nil for a success with a page and without a place, which is no push service's.
    ///
    /// A refusal with a page may be one: services answer with text and with pages of their own, as Google's does.
    ///
    /// - Parameters:
    ///   - isPage: whether there is a body that is labelled as HTML.
    ///   - isComplete: false if the body may be cut.
    ///   - location: the header; where the message can be called back.
    ///   - retryAfter: what the Retry-After header asks for.
    package static func read(
        status: Int,
        body: [UInt8],
        isPage: Bool = false,
        isComplete: Bool = true,
        location: String?,
        retryAfter: Duration?
    ) -> ProviderAnswer? {
        // Redirects are not followed: where to is somebody else's word.
        if (200..<300).contains(status) {
            if isPage, location == nil { return nil }
            return .accepted(id: location.map { String($0.prefix(Self.longestID)) })
        }
        let code = "HTTP_\(status)"
        // Anybody may run a service: of its words only those count that are known.
        let value = try? JSONParser.parse(body)
        if let word = value?["reason"]?.string, let rule = Self.byReason[word], !word.hasPrefix("HTTP_") {
            return rule.answer(after: retryAfter)
        }
        // Of all refusals only this one may have a word that says more than its status; what is cut is no JSON.
        if !isComplete, value == nil, status == 400 {
            return .cut(status: status, after: retryAfter ?? Self.firstDelay)
        }
        let rule = Self.byReason[code] ?? (status >= 500 ? Self.outOfOrder : Self.notUnderstood)
        return rule.answer(reason: code, after: retryAfter)
    }
}
