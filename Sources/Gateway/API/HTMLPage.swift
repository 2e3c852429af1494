// Carillon · HTMLPage.swift
// SPDX-License-Identifier: Apache-2.0

import HTTPTypes
import Hummingbird
import NIOCore

/// A page that loads nothing, runs nothing, and may stand in no frame.
enum HTMLPage {
    private static let policy = "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    /// A link's token is in the page's address, which no other site and no cache shall learn.
    private static let fields: [(name: String, value: String)] = [
        ("Content-Security-Policy", Self.policy), ("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY"),
        ("Referrer-Policy", "no-referrer"), ("Cache-Control", "no-store"), ("X-Robots-Tag", "noindex"),
    ]

    /// - Parameter body: HTML; what comes from outside is to be ``escaped(_:)``.
    static func response(title: String, body: String) -> Response {
        let page = """
            <!DOCTYPE html>
            <html lang="en">
            <head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>\(title)</title></head>
            <body><main><h1>\(title)</h1>
            \(body)
            </main></body>
            </html>

            """
        var headers: HTTPFields = [.contentType: "text/html; charset=utf-8"]
        for (name, value) in Self.fields {
            if let name = HTTPField.Name(name) { headers[name] = value }
        }
        return Response(status: .ok, headers: headers, body: ResponseBody(byteBuffer: ByteBuffer(string: page)))
    }

    /// Text as it may stand in an element or an attribute.
    static func escaped(_ text: String) -> String {
        text.replacing("&", with: "&amp;").replacing("<", with: "&lt;").replacing(">", with: "&gt;")
            .replacing("\"", with: "&quot;").replacing("'", with: "&#39;")
    }
}
