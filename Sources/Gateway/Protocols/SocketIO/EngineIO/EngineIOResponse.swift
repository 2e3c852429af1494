// Carillon · EngineIOResponse.swift
// SPDX-License-Identifier: Apache-2.0

/// An answer to an HTTP request of polling, to be sent with `cache-control: no-store`.
package struct EngineIOResponse: Sendable, Equatable {
    package enum ContentType: String, Sendable {
        case text = "text/plain; charset=UTF-8"
        case html = "text/html"
        case json = "application/json"
    }

    package let status: Int
    /// None where the body is empty.
    package let contentType: ContentType?
    package let body: [UInt8]

    package init(status: Int, contentType: ContentType?, body: [UInt8]) {
        self.status = status
        self.contentType = contentType
        self.body = body
    }

    /// A post was taken.
    static let ok = EngineIOResponse(status: 200, contentType: .html, body: Array("ok".utf8))

    /// A post is larger than the largest body.
    static let tooLarge = EngineIOResponse(status: 413, contentType: nil, body: [])

    static func packets(_ packets: [EngineIOPacket]) -> EngineIOResponse {
        EngineIOResponse(status: 200, contentType: .text, body: EngineIOPayload.encode(packets))
    }
}
