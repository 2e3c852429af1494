// Carillon · FCMAnswer.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Parses FCM's answers (firebase.google.com/docs/cloud-messaging/error-codes).
package enum FCMAnswer {
    private static let quotaDelay: Duration = .seconds(60)
    private static let firstDelay: Duration = .seconds(10)

    /// The meaning of each of FCM's codes.
    package static let rules: [AnswerRule] = [
        AnswerRule(
            "UNREGISTERED", .deadToken, "the app was removed from the device; it registers again when reinstalled"),
        AnswerRule(
            "SENDER_ID_MISMATCH", .deadToken, needsProof: true,
            "the token belongs to another Firebase project; register the device for the app with that project's credentials"
        ),
        AnswerRule(
            "INVALID_ARGUMENT", .refused,
            "FCM rejects a field of the message, named in its answer; a malformed token disables the device"
        ),
        AnswerRule(
            "THIRD_PARTY_AUTH_ERROR", .partialConfiguration, after: .seconds(60),
            "Firebase cannot log in to Apple or the browser; upload the APNs key or the VAPID key in the project's settings"
        ),
        AnswerRule(
            "QUOTA_EXCEEDED", .slowDown, after: quotaDelay,
            "the project's quota is used up; ask Google for more or set a rate"),
        AnswerRule("UNAVAILABLE", .retry, after: firstDelay, "FCM is overloaded; no action needed"),
        AnswerRule("INTERNAL", .retry, after: firstDelay, "FCM failed internally; no action needed"),
        AnswerRule("UNSPECIFIED_ERROR", .retry, after: firstDelay, "FCM gives no reason; no action needed"),
        AnswerRule(
            "UNAUTHENTICATED", .staleCredential,
            "FCM rejected the access token; check the service account and the clock"),
        AnswerRule(
            "PERMISSION_DENIED", .configuration,
            "enable the Firebase Cloud Messaging API, and give the service account the role Firebase Cloud Messaging Admin"
        ),
    ]

    private static let byReason = Dictionary(uniqueKeysWithValues: rules.map { ($0.reason, $0) })

    /// Maps an answer; nil for a success without a message name: a proxy's page or a cut body.
    ///
    /// - Parameters:
    ///   - isPage: whether the body is an HTML page, and so not FCM's.
    ///   - isComplete: false if the body may be cut.
    ///   - retryAfter: the Retry-After header.
    static func read(
        status: Int,
        body: [UInt8],
        isPage: @autoclosure () -> Bool = false,
        isComplete: Bool = true,
        retryAfter: @autoclosure () -> Duration?
    ) -> ProviderAnswer? {
        let value = try? JSONParser.parse(body)
        if status == 200 {
            guard let name = value?["name"]?.string, !name.isEmpty else { return nil }
            return .accepted(id: name)
        }
        // The headers are read for refusals only; most answers are successes.
        let (isPage, retryAfter) = (isPage(), retryAfter())
        // A cut body is not valid JSON; a 429 means too many requests anyway.
        if !isComplete, value == nil, (400..<500).contains(status), status != 429 {
            return .cut(status: status, after: retryAfter ?? Self.firstDelay)
        }
        let error = value?["error"]
        let details = error?["details"]?.array ?? []
        let specific = details.compactMap { detail -> String? in
            let type = detail["@type"]?.string ?? ""
            return type.hasSuffix("FcmError") ? detail["errorCode"]?.string : nil
        }.first
        // Google's front end counts the project's requests, and answers without FCM's code.
        let general = error?["status"]?.string.map { $0 == "RESOURCE_EXHAUSTED" ? "QUOTA_EXCEEDED" : $0 }
        let name = specific ?? general ?? "HTTP_\(status)"
        let reason = String(name.unicodeScalars.prefix(64))
        let message = error?["message"]?.string ?? ""
        // A proxy counts its own requests and knows nothing of the project's quota.
        if name == "QUOTA_EXCEEDED" || status == 429 && !isPage {
            let delay = retryAfter ?? Self.quotaDelay
            // The quota is the project's unless the message names the device's or the topic's.
            let isOne = ["device", "topic"].contains { message.lowercased().contains($0) }
            return isOne ? .retryDevice(reason: reason, after: delay) : .slowDown(reason: reason, after: delay)
        }
        // Only a complaint about the token itself disables the device; any other is about our
        // message.
        if name == "INVALID_ARGUMENT", specific != nil, Self.isAboutToken(details, message) {
            return .deadToken(reason: reason, evidence: nil)
        }
        if let rule = Self.byReason[name] { return rule.answer(reason: reason, after: retryAfter) }
        return Self.read(status: status, reason: reason, isPage: isPage, retryAfter: retryAfter)
    }

    /// Maps the status of an answer with an unknown code.
    ///
    /// 408, 421 and 425 ask for the same request again (RFC 9110 sections 15.5.9 and 15.5.20, RFC
    /// 8470 section 5.2), and so do 409 and 499: Google's codes for a request that it aborted or
    /// cancelled (ABORTED and CANCELLED of google.rpc.Code).
    private static func read(status: Int, reason: String, isPage: Bool, retryAfter: Duration?) -> ProviderAnswer {
        switch status {
        case 401: .staleCredential(reason: reason)
        case 403: .configuration(reason: reason)
        case 408, 409, 421, 425, 499: .retry(reason: reason, after: retryAfter ?? Self.firstDelay)
        case 400..<500 where !isPage: .refused(reason: reason)
        default: .retry(reason: reason, after: retryAfter ?? Self.firstDelay)
        }
    }

    /// Whether a complaint is about the token.
    ///
    /// FCM names the token's field, or no field. Without one, the message tells a bad token from,
    /// for example, a large message or a token of another package than the job names.
    private static func isAboutToken(_ details: [JSONValue], _ message: String) -> Bool {
        let violations = details.flatMap { $0["fieldViolations"]?.array ?? [] }
        guard violations.isEmpty else { return violations.allSatisfy { $0["field"]?.string == "message.token" } }
        let text = message.lowercased()
        return text.contains("registration token") && !text.contains("package name")
    }
}
