// Carillon · DoorPolicy.swift
// SPDX-License-Identifier: Apache-2.0

import NIOHTTP1

/// What holds for every request and answer of a listener, whoever answers.
package struct DoorPolicy: Sendable {
    /// Loads nothing, runs nothing, stands in no frame.
    private static let pagePolicy = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    /// Fields of answers that pages of other origins may read beside the simple ones.
    private static let exposedFields = "ETag, Location, Retry-After, WWW-Authenticate, X-Request-ID"

    /// Which pages may use the listener.
    package var origins = AllowedOrigins.listed([])
    /// Whether clients come over TLS, and are told to go on so for a year.
    package var isSecure = false
    /// Bytes of a body that the HTTP server may be asked to read, beyond which the answer is 413.
    ///
    /// Its routes have smaller limits of their own.
    package var maximumBody = 32 * 1024 * 1024
    /// Whose word on the client's address is believed.
    package var trustedProxies = AddressList()
    /// Counts the sockets and streams of each address; nil for no bound.
    package var addresses: AddressTally?
    /// Counts all connections; nil for no bound.
    package var connections: Tally?
    /// Counts the bytes of endpoints' requests that are not answered, over all connections: those
    /// come before anyone has said who they are.
    package var bodies = Tally(limit: 16 * 1024 * 1024)

    package init() {}

    /// What a page that sent a request may do with the answer.
    ///
    /// - Parameter endpoint: whose path it is; nil for the server's.
    func grant(_ head: HTTPRequestHead, _ endpoint: (any TransportEndpoint)? = nil) -> AllowedOrigins.Grant? {
        let allowsCredentials = endpoint?.allowsCredentials ?? false
        return head.headers.first(name: "origin")
            .flatMap { self.origins.grant($0, allowsCredentials: allowsCredentials) }
    }

    /// Whether a request may open a socket, as far as the page that sent it goes.
    func admitsOrigin(_ head: HTTPRequestHead) -> Bool {
        guard let origin = head.headers.first(name: "origin") else { return true }
        return self.origins.admits(origin, host: head.headers.first(name: "host"))
    }

    /// Whether a request is a browser's question before the request proper (Fetch, section 3.2).
    static func isPreflight(_ head: HTTPRequestHead) -> Bool {
        head.method == .OPTIONS && head.headers.contains(name: "origin")
            && head.headers.contains(name: "access-control-request-method")
    }

    /// Adds to an answer what guards it in browsers, unless whoever answers said so already.
    func protect(_ headers: inout HTTPHeaders, _ grant: AllowedOrigins.Grant?) {
        func add(_ name: String, _ value: String) {
            if !headers.contains(name: name) { headers.add(name: name, value: value) }
        }
        add("x-content-type-options", "nosniff")
        add("x-frame-options", "DENY")
        add("referrer-policy", "no-referrer")
        // Without a word on it a cache may keep an answer, and most are one user's.
        add("cache-control", "no-store")
        if headers.first(name: "content-type")?.hasPrefix("text/html") == true {
            add("content-security-policy", Self.pagePolicy)
        }
        if self.isSecure { add("strict-transport-security", "max-age=31536000") }
        if self.origins != .listed([]) { headers.add(name: "vary", value: "Origin") }
        guard let grant else { return }
        if !headers.contains(name: "access-control-allow-origin") {
            headers.add(name: "access-control-allow-origin", value: grant.origin)
            if grant.allowsCredentials { add("access-control-allow-credentials", "true") }
        }
        add("access-control-expose-headers", Self.exposedFields)
    }
}
