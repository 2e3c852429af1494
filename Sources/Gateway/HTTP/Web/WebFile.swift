// Carillon · WebFile.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto
import HTTPTypes
import Hummingbird
import NIOCore

/// A file that browsers load, held in the program itself.
struct WebFile: Sendable {
    /// What a page may do: run and load what the gateway serves and nothing written into the page, and show pictures of
    /// notifications from anywhere.
    private static let pagePolicy = """
        default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' https: data:; connect-src 'self'; \
        worker-src 'self'; manifest-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; \
        require-trusted-types-for 'script'; trusted-types carillon
        """
    private static let permissions = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"

    private let body: ByteBuffer
    private let tag: String
    private let headers: HTTPFields

    init(_ bytes: [UInt8], type: String) {
        self.body = ByteBuffer(bytes: bytes)
        let digits = Array("0123456789abcdef".utf8)
        let digest = SHA256.hash(data: bytes).prefix(12).flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }
        self.tag = "\"\(String(decoding: digest, as: UTF8.self))\""
        var headers: HTTPFields = [
            // Asked for again at each use, and answered with 304: the parts of a page are always of one version.
            .contentType: type, .eTag: self.tag, .cacheControl: "no-cache",
        ]
        var fields: [(name: String, value: String)] = [
            ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"),
        ]
        if type.hasPrefix("text/html") {
            fields += [
                ("Content-Security-Policy", Self.pagePolicy), ("X-Frame-Options", "DENY"),
                ("Permissions-Policy", Self.permissions), ("Cross-Origin-Opener-Policy", "same-origin"),
            ]
        } else {
            // Pages of any origin may embed the inbox; what it shows them is decided by the calls that it makes.
            fields += [("Access-Control-Allow-Origin", "*"), ("Cross-Origin-Resource-Policy", "cross-origin")]
        }
        for (name, value) in fields {
            if let name = HTTPField.Name(name) { headers[name] = value }
        }
        self.headers = headers
    }

    /// The file, or 304 for who has it.
    func response(to request: Request) -> Response {
        let known = request.headers[.ifNoneMatch]?.split(separator: ",").map { $0.drop { $0 == " " } } ?? []
        if known.contains(where: { $0 == self.tag || $0 == "W/" + self.tag || $0 == "*" }) {
            var headers = self.headers
            headers[.contentType] = nil
            return Response(status: .notModified, headers: headers)
        }
        return Response(status: .ok, headers: self.headers, body: ResponseBody(byteBuffer: self.body))
    }
}
