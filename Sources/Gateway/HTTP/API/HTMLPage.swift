// Carillon · HTMLPage.swift
// SPDX-License-Identifier: Apache-2.0

import HTTPTypes
import Hummingbird
import NIOCore

/// A page that runs nothing, loads only the gateway's own style and icon, and may stand in no
/// frame.
enum HTMLPage {
    private static let policy = """
        default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'
        """
    /// A link's token is in the page's address, which no other site and no cache shall learn.
    private static let fields: [(name: String, value: String)] = [
        ("Content-Security-Policy", Self.policy), ("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY"),
        ("Referrer-Policy", "no-referrer"), ("Cache-Control", "no-store"), ("X-Robots-Tag", "noindex"),
    ]

    /// - Parameters:
    ///   - language: the page's language as a BCP 47 tag.
    ///   - body: HTML; text from outside must be ``escaped(_:)``.
    static func response(title: String, language: String, body: String) -> Response {
        let page = """
            <!DOCTYPE html>
            <html lang="\(language)">
            <head>
            <meta charset="utf-8">
            <meta name="viewport" content="width=device-width, initial-scale=1">
            <meta name="color-scheme" content="light dark">
            <title>\(title)</title>
            <link rel="icon" href="../web/icon.svg" type="image/svg+xml">
            <link rel="stylesheet" href="../web/page.css">
            </head>
            <body>
            <main class="card">
            <img src="../web/icon.svg" alt="" width="44" height="44">
            <h1>\(title)</h1>
            \(body)
            </main>
            </body>
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
