// Carillon · WebPushAnswer.swift
// SPDX-License-Identifier: Apache-2.0

import JSON
import Model

/// Reads push services' answers (RFC 8030 section 5, RFC 8292 section 4.2).
package enum WebPushAnswer {
    private static let quotaDelay: Duration = .seconds(60)
    private static let firstDelay: Duration = .seconds(10)
    private static let longestID = 256
    private static let longestReason = 64

    /// What an answer means.
    ///
    /// - Parameters:
    ///   - location: the header; where the message can be called back.
    ///   - retryAfter: the header, from now on.
    package static func read(
        status: Int,
        body: [UInt8],
        location: String?,
        retryAfter: Duration?
    ) -> ProviderAnswer {
        let named = (200..<300).contains(status) ? nil : Self.name(body)
        let reason = named ?? "HTTP_\(status)"
        switch status {
        case 200..<300: return .accepted(id: location.map { String($0.prefix(Self.longestID)) })
        case 404, 410: return .deadToken(reason: reason, evidence: nil)
        // Apple answers 400 where the key is not that of the subscription.
        case 400 where named == "VapidPkHashMismatch": return .configuration(reason: reason)
        case 401, 403: return .configuration(reason: reason)
        case 408: return .retry(reason: reason, after: retryAfter)
        case 429: return .retry(reason: reason, after: retryAfter ?? Self.quotaDelay)
        // Redirects are not followed: where to is somebody else's word.
        case 300..<500: return .refused(reason: reason)
        default: return .retry(reason: reason, after: retryAfter ?? Self.firstDelay)
        }
    }

    /// Apple's `reason`, or Mozilla's `error`, as far as it is a plain word.
    private static func name(_ body: [UInt8]) -> String? {
        guard let value = try? JSONParser.parse(body),
            let text = value["reason"]?.string ?? value["error"]?.string, !text.isEmpty
        else { return nil }
        let isPlain = text.utf8.allSatisfy { byte in
            (byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x7A || byte >= 0x30 && byte <= 0x39 || " _-.".utf8.contains(byte)
        }
        return isPlain ? String(text.prefix(Self.longestReason)) : nil
    }
}
