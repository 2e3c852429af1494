// Carillon · WebFile.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Crypto
import HTTPTypes
import Hummingbird
import NIOCore
import Synchronization

/// A static file, embedded in the program.
///
/// It is prepared at its first request, so that the gateway starts at once.
final class WebFile: Sendable {
    /// A prepared file.
    private struct Content {
        let body: ByteBuffer
        /// The body in the coding gzip; nil if that is no smaller.
        let compressed: ByteBuffer?
        let tag: String
        let headers: HTTPFields
    }

    /// Pages run and load only what the gateway serves, and no inline code.
    ///
    /// Images of notifications may come from anywhere.
    private static let pagePolicy = """
        default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' https: data:; connect-src 'self'; \
        worker-src 'self'; manifest-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; \
        require-trusted-types-for 'script'; trusted-types carillon
        """
    private static let permissions = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"

    let path: String
    private let type: String
    private let source: @Sendable () -> [UInt8]
    private let content = Mutex<Content?>(nil)

    init(_ path: String, _ source: @autoclosure @escaping @Sendable () -> [UInt8], type: String) {
        self.path = path
        self.source = source
        self.type = type
    }

    private var prepared: Content {
        self.content.withLock { content in
            if let content { return content }
            let made = Self.content(of: self.source(), type: self.type)
            content = made
            return made
        }
    }

    private static func content(of source: [UInt8], type: String) -> Content {
        let isCode = type.hasPrefix("text/javascript") || type.hasPrefix("text/css")
        let bytes = isCode ? Self.withoutComments(source) : source
        let tag = "\"\(SHA256.hash(data: bytes).prefix(12).hex)\""
        var headers: HTTPFields = [
            // Browsers revalidate each file, so that all parts of a page have one version.
            .contentType: type, .eTag: tag, .cacheControl: "no-cache", .vary: "Accept-Encoding",
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
            // Any site may embed the inbox; its data comes from authenticated calls.
            fields += [("Access-Control-Allow-Origin", "*"), ("Cross-Origin-Resource-Policy", "cross-origin")]
        }
        for (name, value) in fields {
            if let name = HTTPField.Name(name) { headers[name] = value }
        }
        let compressed = Gzip.compress(bytes).flatMap { $0.count < bytes.count ? ByteBuffer(bytes: $0) : nil }
        return Content(body: ByteBuffer(bytes: bytes), compressed: compressed, tag: tag, headers: headers)
    }

    /// Returns the file, compressed if the client takes that, or 304 if the client has it.
    func response(to request: Request) -> Response {
        let content = self.prepared
        var headers = content.headers
        let known = request.headers[.ifNoneMatch]?.split(separator: ",").map { $0.drop { $0 == " " } } ?? []
        if known.contains(where: { $0 == content.tag || $0 == "W/" + content.tag || $0 == "*" }) {
            headers[.contentType] = nil
            return Response(status: .notModified, headers: headers)
        }
        guard let compressed = content.compressed, Self.takesGzip(request.headers[.acceptEncoding] ?? "") else {
            return Response(status: .ok, headers: headers, body: ResponseBody(byteBuffer: content.body))
        }
        headers[.contentEncoding] = "gzip"
        // Both codings have the same content, so their tag is weak (RFC 9110 section 8.8.3).
        headers[.eTag] = "W/" + content.tag
        return Response(status: .ok, headers: headers, body: ResponseBody(byteBuffer: compressed))
    }

    /// Whether `Accept-Encoding` takes gzip: as named, or else by `*` (RFC 9110 section 12.5.3).
    private static func takesGzip(_ accepted: String) -> Bool {
        var codings: [Substring: Bool] = [:]
        for part in accepted.lowercased().filter({ $0 != " " && $0 != "\t" }).split(separator: ",") {
            let words = part.split(separator: ";")
            let weight = words.dropFirst().first { $0.hasPrefix("q=") }?.dropFirst(2)
            if let name = words.first { codings[name] = weight?.contains { ("1"..."9").contains($0) } ?? true }
        }
        return codings["gzip"] ?? codings["*"] ?? false
    }

    /// Returns code without indentation and comment lines, which would make it a quarter larger,
    /// even when compressed.
    private static func withoutComments(_ source: [UInt8]) -> [UInt8] {
        let (blank, slash, star) = (UInt8(ascii: " "), UInt8(ascii: "/"), UInt8(ascii: "*"))
        var code: [UInt8] = []
        code.reserveCapacity(source.count)
        var isComment = false
        for line in source.split(separator: UInt8(ascii: "\n")) {
            let text = line.drop { $0 == blank }
            let isBlock = text.starts(with: [slash, star])
            isComment = isComment || isBlock
            if !isComment, !text.starts(with: [slash, slash]), !text.isEmpty {
                code += text
                code.append(UInt8(ascii: "\n"))
            }
            if isComment, zip(text, text.dropFirst()).contains(where: { $0 == star && $1 == slash }) {
                isComment = false
            }
        }
        return code
    }
}
