// Carillon · FCMAnswer.swift
// SPDX-License-Identifier: Apache-2.0

import JSON

/// FCM's error codes.
package enum FCMErrorCode: Sendable, Equatable {
    case unregistered, invalidArgument, senderIDMismatch, thirdPartyAuthError
    case quotaExceeded, unavailable, `internal`
    case unknown(String)

    package init(_ text: String) {
        switch text {
        case "UNREGISTERED": self = .unregistered
        case "INVALID_ARGUMENT": self = .invalidArgument
        case "SENDER_ID_MISMATCH": self = .senderIDMismatch
        case "THIRD_PARTY_AUTH_ERROR": self = .thirdPartyAuthError
        case "QUOTA_EXCEEDED": self = .quotaExceeded
        case "UNAVAILABLE": self = .unavailable
        case "INTERNAL": self = .internal
        default: self = .unknown(text)
        }
    }
}

/// Reads FCM's answers (firebase.google.com/docs/cloud-messaging/error-codes).
package enum FCMAnswer {
    private static let quotaDelay: Duration = .seconds(60)
    private static let firstDelay: Duration = .seconds(10)

    /// What an answer means.
    ///
    /// - Parameter retryAfter: the Retry-After header in seconds.
    package static func read(status: Int, body: [UInt8], retryAfter: Duration?) -> ProviderAnswer {
        let value = try? JSONParser.parse(body)
        if status == 200 { return .accepted(id: value?["name"]?.string) }
        let details = value?["error"]?["details"]?.array ?? []
        let specific = details.compactMap { detail -> String? in
            let type = detail["@type"]?.string ?? ""
            return type.hasSuffix("FcmError") ? detail["errorCode"]?.string : nil
        }.first
        let name = specific ?? value?["error"]?["status"]?.string ?? "HTTP_\(status)"
        let reason = String(name.prefix(64))
        switch (status, FCMErrorCode(name)) {
        case (_, .unregistered): return .deadToken(reason: reason, evidence: nil)
        case (_, .senderIDMismatch): return .deadToken(reason: reason, evidence: nil)
        case (_, .invalidArgument):
            // Only a complaint about the token itself speaks against the token; any other is about our message.
            let isAboutToken = specific != nil && Self.isAboutToken(details, value?["error"]?["message"]?.string ?? "")
            return isAboutToken ? .deadToken(reason: reason, evidence: nil) : .refused(reason: reason)
        case (_, .thirdPartyAuthError): return .configuration(reason: reason)
        case (429, _), (_, .quotaExceeded): return .retry(reason: reason, after: retryAfter ?? Self.quotaDelay)
        case (401, _): return .staleCredential(reason: reason)
        case (403, _): return .configuration(reason: reason)
        case (400..<500, _): return .refused(reason: reason)
        default: return .retry(reason: reason, after: retryAfter ?? Self.firstDelay)
        }
    }

    /// FCM names the token's field, or no field at all; then its message tells a bad token from, say, a large message.
    private static func isAboutToken(_ details: [JSONValue], _ message: String) -> Bool {
        let violations = details.flatMap { $0["fieldViolations"]?.array ?? [] }
        guard violations.isEmpty else { return violations.allSatisfy { $0["field"]?.string == "message.token" } }
        return message.lowercased().contains("registration token")
    }
}
