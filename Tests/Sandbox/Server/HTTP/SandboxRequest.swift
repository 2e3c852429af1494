// Carillon · SandboxRequest.swift
// SPDX-License-Identifier: Apache-2.0

import NIOHPACK

/// One whole request, however it came in.
struct SandboxRequest {
    enum Transport {
        /// Over TLS, chosen by ALPN.
        case http2, http1
        /// The control port: HTTP/1.1 without TLS.
        case plain
    }

    /// The most bytes of a body that are kept; the rest is thrown away and `isTruncated` set.
    static let maximumBody = 65536

    let transport: Transport
    let method: String
    let path: String
    let query: String
    let headers: HPACKHeaders
    let body: [UInt8]
    let isTruncated: Bool

    /// `target` is the path with its query, as on the wire.
    init(
        transport: Transport, method: String, target: String, headers: HPACKHeaders, body: [UInt8], isTruncated: Bool
    ) {
        self.transport = transport
        self.method = method
        if let mark = target.utf8.firstIndex(of: UInt8(ascii: "?")) {
            self.path = String(target[..<mark])
            self.query = String(target[target.index(after: mark)...])
        } else {
            self.path = target
            self.query = ""
        }
        self.headers = headers
        self.body = body
        self.isTruncated = isTruncated
    }

    /// A number in the query, as `since` of `?since=5`.
    func number(inQuery name: String) -> Int? { self.text(inQuery: name).flatMap { Int($0) } }

    /// A text in the query, as it is written there.
    func text(inQuery name: String) -> String? {
        for field in self.query.split(separator: "&") where field.hasPrefix(name + "=") {
            return String(field.dropFirst(name.count + 1))
        }
        return nil
    }
}
