// Carillon · APNSAnswer.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Parses Apple's answers ("Handling notification responses from APNs").
package enum APNSAnswer {
    /// Apple wants a device left alone for at least a minute.
    private static let deviceDelay: Duration = .seconds(60)
    private static let tokenDelay: Duration = .seconds(20 * 60)

    private static let wrongKey =
        "check APNS_KEY, APNS_KEY_ID and APNS_TEAM_ID: the key may be revoked or belong to another team"
    private static let wrongTopic = "check APNS_TOPIC, the app's bundle id"
    private static let wrongMessage = "the request is invalid; check the job's platform.apns"

    /// The meaning of each of Apple's reasons.
    package static let rules: [AnswerRule] = [
        AnswerRule(
            "BadDeviceToken", .deadToken, needsProof: true,
            "the token is invalid or from the other environment; register it with environment sandbox or production"),
        AnswerRule(
            "DeviceTokenNotForTopic", .deadToken, needsProof: true,
            "the token belongs to another app; check the topic, which is the bundle id"),
        AnswerRule(
            "Unregistered", .deadToken, "the app was removed from the device; it registers again when reinstalled"),
        AnswerRule("ExpiredToken", .deadToken, "the token has expired; the app registers a new one"),
        AnswerRule("ExpiredProviderToken", .staleCredential, "the provider token was too old; check the clock"),
        AnswerRule("InvalidProviderToken", .configuration, wrongKey),
        AnswerRule("MissingProviderToken", .configuration, wrongKey),
        AnswerRule("BadCertificate", .configuration, wrongKey),
        AnswerRule("BadCertificateEnvironment", .configuration, wrongKey),
        AnswerRule("UnrelatedKeyIdInToken", .configuration, wrongKey),
        AnswerRule(
            "BadEnvironmentKeyIdInToken", .partialConfiguration,
            "the key is for Apple's other environment; create one for both"),
        AnswerRule(
            "BadEnvironmentKeyInToken", .partialConfiguration,
            "the key is for Apple's other environment; create one for both"),
        AnswerRule("Forbidden", .configuration, wrongKey),
        AnswerRule(
            "TooManyProviderTokenUpdates", .slowDown, after: tokenDelay,
            "provider tokens were created too often; let no other program use the key from this address"),
        AnswerRule(
            "TooManyRequests", .retryDevice, after: deviceDelay,
            "this device got too many messages; collapse or digest them"),
        AnswerRule("IdleTimeout", .retry, "the connection was idle; no action needed"),
        AnswerRule("InternalServerError", .retry, "Apple failed internally; no action needed"),
        AnswerRule("ServiceUnavailable", .retry, "Apple's service is unavailable; no action needed"),
        AnswerRule("Shutdown", .retry, "Apple's server is shutting down; no action needed"),
        AnswerRule("PayloadTooLarge", .refused, "the payload exceeds 4,096 bytes; make platform.apns smaller"),
        // The topic is a setting, so every message of the app gets the same answer.
        AnswerRule("BadTopic", .configuration, wrongTopic),
        AnswerRule("MissingTopic", .configuration, wrongTopic),
        AnswerRule(
            "TopicDisallowed", .configuration, "the key may not send to this topic; check the key and APNS_TOPIC"),
        AnswerRule("BadCollapseId", .refused, wrongMessage),
        AnswerRule("BadExpirationDate", .refused, wrongMessage),
        AnswerRule("BadMessageId", .refused, wrongMessage),
        AnswerRule("BadPriority", .refused, wrongMessage),
        AnswerRule("DuplicateHeaders", .refused, wrongMessage),
        AnswerRule("InvalidPushType", .refused, wrongMessage),
        AnswerRule("MissingDeviceToken", .refused, wrongMessage),
        AnswerRule("PayloadEmpty", .refused, wrongMessage),
        AnswerRule("BadPath", .refused, wrongMessage),
        AnswerRule("MethodNotAllowed", .refused, wrongMessage),
    ]

    private static let byReason = Dictionary(uniqueKeysWithValues: rules.map { ($0.reason, $0) })

    /// Maps an answer; nil for a success without an id or with a body, which is not Apple's.
    ///
    /// - Parameters:
    ///   - isPage: whether the body is an HTML page, and so not Apple's.
    ///   - isComplete: false if the body may be cut.
    ///   - identifier: the header `apns-id`.
    ///   - retryAfter: the Retry-After header; Apple's own minimum still applies.
    static func read(
        status: Int,
        body: [UInt8],
        isPage: @autoclosure () -> Bool = false,
        isComplete: Bool = true,
        identifier: String?,
        retryAfter: @autoclosure () -> Duration?
    ) -> ProviderAnswer? {
        if status == 200 {
            guard let identifier, !identifier.isEmpty, body.isEmpty else { return nil }
            return .accepted(id: identifier)
        }
        // The headers are read for refusals only; most answers are successes.
        let (isPage, retryAfter) = (isPage(), retryAfter())
        let value = try? JSONParser.parse(body)
        let reason = String((value?["reason"]?.string ?? "HTTP_\(status)").unicodeScalars.prefix(64))
        if let rule = Self.byReason[reason] {
            // In milliseconds: the last time at which Apple knew the token to be invalid.
            let isDated = reason == "Unregistered" || reason == "ExpiredToken"
            let stated = isDated ? value?["timestamp"]?.integer : nil
            let moment: Int64? = stated.flatMap { Timestamp.writableMilliseconds.contains($0) ? $0 : nil }
            let delay = retryAfter.map { max($0, rule.after ?? .zero) }
            return rule.answer(after: delay, evidence: moment.map { Timestamp(milliseconds: $0) })
        }
        // A cut body is not valid JSON.
        let isCut = !isComplete && value == nil
        return switch status {
        case 400..<500 where isCut && status != 410 && status != 429: .cut(status: status, after: retryAfter)
        case 410: .deadToken(reason: reason, evidence: nil)
        case 403: .configuration(reason: reason)
        case 429: .retryDevice(reason: reason, after: max(retryAfter ?? .zero, Self.deviceDelay))
        // They ask for the same request again (RFC 9110 sections 15.5.9 and 15.5.20, RFC 8470).
        case 408, 421, 425: .retry(reason: reason, after: retryAfter)
        case 400..<500 where !isPage: .refused(reason: reason)
        default: .retry(reason: reason, after: retryAfter)
        }
    }
}
