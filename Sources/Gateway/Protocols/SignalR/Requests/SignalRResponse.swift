// Carillon · SignalRResponse.swift
// SPDX-License-Identifier: Apache-2.0

/// An HTTP answer whose body is whole.
package struct SignalRResponse: Sendable, Equatable {
    package static let plainText = "text/plain"
    package static let json = "application/json"

    /// Polls and their answers must not be kept by anyone on the way.
    package static let cacheControl = "no-cache, no-store"

    package let status: Int
    package let contentType: String
    package let body: [UInt8]

    package init(status: Int, contentType: String = SignalRResponse.plainText, body: [UInt8] = []) {
        self.status = status
        self.contentType = contentType
        self.body = body
    }

    /// A refusal with its reason as text.
    package static func refusal(_ status: Int, _ reason: String = "") -> SignalRResponse {
        SignalRResponse(status: status, body: Array(reason.utf8))
    }

    /// What a POST with messages gets.
    package static let sent = SignalRResponse(status: 200)
    /// What a DELETE of a long-polling connection gets.
    package static let deleted = SignalRResponse(status: 202)
}
