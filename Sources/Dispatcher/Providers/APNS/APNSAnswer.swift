// Carillon · APNSAnswer.swift
// SPDX-License-Identifier: Apache-2.0

import JSON
import Model

/// Reads Apple's answers ("Handling notification responses from APNs").
package enum APNSAnswer {
    /// Apple asks to let a device rest for a minute at least.
    private static let deviceDelay: Duration = .seconds(60)
    private static let tokenDelay: Duration = .seconds(20 * 60)

    /// What an answer means.
    ///
    /// - Parameter identifier: the header `apns-id`.
    package static func read(status: Int, body: [UInt8], identifier: String?) -> ProviderAnswer {
        if status == 200 { return .accepted(id: identifier) }
        let value = try? JSONParser.parse(body)
        let reason = String((value?["reason"]?.string ?? "HTTP_\(status)").prefix(64))
        switch reason {
        case "BadDeviceToken", "DeviceTokenNotForTopic":
            return .deadToken(reason: reason, evidence: nil)
        case "Unregistered", "ExpiredToken":
            // In milliseconds: until then Apple knows that the token was not valid.
            let evidence = value?["timestamp"]?.integer.map { Timestamp(milliseconds: $0) }
            return .deadToken(reason: reason, evidence: evidence)
        case "ExpiredProviderToken":
            return .staleCredential(reason: reason)
        case "InvalidProviderToken", "MissingProviderToken", "BadCertificate", "BadCertificateEnvironment",
            "UnrelatedKeyIdInToken", "BadEnvironmentKeyIdInToken", "BadEnvironmentKeyInToken", "Forbidden":
            return .configuration(reason: reason)
        case "TooManyProviderTokenUpdates": return .retry(reason: reason, after: Self.tokenDelay)
        case "TooManyRequests": return .retry(reason: reason, after: Self.deviceDelay)
        case "IdleTimeout": return .retry(reason: reason, after: nil)
        default: break
        }
        switch status {
        case 410: return .deadToken(reason: reason, evidence: nil)
        case 403: return .configuration(reason: reason)
        case 429: return .retry(reason: reason, after: Self.deviceDelay)
        case 400..<500: return .refused(reason: reason)
        default: return .retry(reason: reason, after: nil)
        }
    }
}
