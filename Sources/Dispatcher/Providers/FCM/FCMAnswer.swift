// Carillon · FCMAnswer.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Reads FCM's answers (firebase.google.com/docs/cloud-messaging/error-codes).
package enum FCMAnswer {
    private static let quotaDelay: Duration = .seconds(60)
    private static let firstDelay: Duration = .seconds(10)

    /// What each word of FCM's means.
    package static let rules: [AnswerRule] = [
        AnswerRule(
            "UNREGISTERED", .deadToken, "the app was removed from the device; it registers again when it is back"),
        AnswerRule(
            "SENDER_ID_MISMATCH", .deadToken,
            "the token belongs to another Firebase project; register the device for the app with that project's credentials"
        ),
        AnswerRule(
            "INVALID_ARGUMENT", .refused,
            "FCM does not take a field of the message, which its answer names; a malformed token switches the device off"
        ),
        AnswerRule(
            "THIRD_PARTY_AUTH_ERROR", .partialConfiguration, after: .seconds(60),
            "Firebase cannot reach Apple or the browser; upload the APNs key or the VAPID key in the project's settings"
        ),
        AnswerRule(
            "QUOTA_EXCEEDED", .slowDown, after: quotaDelay,
            "the project's quota is used up; ask Google for more, or set a rate"),
        AnswerRule("UNAVAILABLE", .retry, after: firstDelay, "FCM is overloaded; nothing is to be done"),
        AnswerRule("INTERNAL", .retry, after: firstDelay, "FCM has an error of its own; nothing is to be done"),
        AnswerRule("UNSPECIFIED_ERROR", .retry, after: firstDelay, "FCM gives no reason; nothing is to be done"),
        AnswerRule(
            "UNAUTHENTICATED", .staleCredential,
            "the access token was not accepted; check the service account and the clock"),
        AnswerRule(
            "PERMISSION_DENIED", .configuration,
            "enable the Firebase Cloud Messaging API, and give the service account the role Firebase Cloud Messaging Admin"
        ),
    ]

    private static let byReason = Dictionary(uniqueKeysWithValues: rules.map { ($0.reason, $0) })

    /// What an answer means; nil for a success without FCM's name for the message: a proxy's page, or a body that was cut.
    ///
    /// - Parameters:
    ///   - isPage: whether there is a body that is labelled as HTML: then it is none of FCM's.
    ///   - isComplete: false if the body may be cut.
    ///   - retryAfter: what the Retry-After header asks for.
    package static func read(
        status: Int,
        body: [UInt8],
        isPage: Bool = false,
        isComplete: Bool = true,
        retryAfter: Duration?
    ) -> ProviderAnswer? {
        let value = try? JSONParser.parse(body)
        if status == 200 {
            guard let name = value?["name"]?.string, !name.isEmpty else { return nil }
            return .accepted(id: name)
        }
        // What is cut is no JSON; too many requests are too many, whatever else it says.
        if !isComplete, value == nil, (400..<500).contains(status), status != 429 {
            return .cut(status: status, after: retryAfter ?? Self.firstDelay)
        }
        let error = value?["error"]
        let details = error?["details"]?.array ?? []
        let specific = details.compactMap { detail -> String? in
            let type = detail["@type"]?.string ?? ""
            return type.hasSuffix("FcmError") ? detail["errorCode"]?.string : nil
        }.first
        let name = specific ?? error?["status"]?.string ?? "HTTP_\(status)"
        let reason = String(name.prefix(64))
        let message = error?["message"]?.string ?? ""
        // What stands in between counts its own calls, and knows nothing of the project's quota.
        if name == "QUOTA_EXCEEDED" || status == 429 && !isPage {
            let delay = retryAfter ?? Self.quotaDelay
            // The project's quota is meant unless the message names the device's or the topic's.
            let isOne = ["device", "topic"].contains { message.lowercased().contains($0) }
            return isOne ? .retryDevice(reason: reason, after: delay) : .slowDown(reason: reason, after: delay)
        }
        // Only a complaint about the token itself speaks against the token; any other is about our message.
        if name == "INVALID_ARGUMENT", specific != nil, Self.isAboutToken(details, message) {
            return .deadToken(reason: reason, evidence: nil)
        }
        if let rule = Self.byReason[name] { return rule.answer(reason: reason, after: retryAfter) }
        return Self.read(status: status, reason: reason, isPage: isPage, retryAfter: retryAfter)
    }

    /// What a status means whose word is new.
    private static func read(status: Int, reason: String, isPage: Bool, retryAfter: Duration?) -> ProviderAnswer {
        switch status {
        case 401: .staleCredential(reason: reason)
        case 403: .configuration(reason: reason)
        case 400..<500 where !isPage: .refused(reason: reason)
        default: .retry(reason: reason, after: retryAfter ?? Self.firstDelay)
        }
    }

    /// FCM names the token's field, or no field at all; then its message tells a bad token from, say, a large message.
    private static func isAboutToken(_ details: [JSONValue], _ message: String) -> Bool {
        let violations = details.flatMap { $0["fieldViolations"]?.array ?? [] }
        guard violations.isEmpty else { return violations.allSatisfy { $0["field"]?.string == "message.token" } }
        return message.lowercased().contains("registration token")
    }
}
