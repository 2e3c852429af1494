// Carillon · ReceivedMessage.swift
// SPDX-License-Identifier: Apache-2.0

import struct Foundation.Date

/// One message that a provider's face accepted.
package struct ReceivedMessage: Sendable {
    /// The face that took it.
    package enum Provider: String, Sendable, CaseIterable {
        case fcm, apns, webpush, email, webhook
    }

    package let provider: Provider
    /// For FCM the project whose path and access token it came by.
    package let project: String?
    /// The device token; for FCM the topic, the condition or the installation id where that is the target; for Web Push the
    /// subscription's name; the address of an e-mail; a webhook's token.
    package let token: String
    /// The request's headers in lower case, without the credential; an e-mail's header fields as they came, unfolded.
    package let headers: [String: String]
    /// The request's body, JSON; for Web Push decrypted, a JSON string if it is no JSON, and `null`
    /// if it cannot be opened; of an e-mail sender, subject, text and HTML.
    package let payload: [UInt8]
    /// The request's body as it came.
    package let body: [UInt8]
    /// When it came.
    package let at: Date
    /// Its number since the start, from 0.
    package let sequence: Int
}
