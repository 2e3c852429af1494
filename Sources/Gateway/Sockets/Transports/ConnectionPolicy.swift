// Carillon · ConnectionPolicy.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import Metrics
import NIOCore
import NIOHTTP1

/// Rules for every request and answer of a listener.
package struct ConnectionPolicy: Sendable {
    /// Loads nothing, runs nothing, allows no frame.
    private static let pagePolicy = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    /// The headers that pages of other origins may read, besides those that CORS always allows.
    private static let exposedFields = "Content-Range, ETag, Location, Retry-After, WWW-Authenticate, X-Request-ID"

    /// The paths that a gateway answers even at its limit: a failed probe of its health would end
    /// it, and with it the connections that it has.
    ///
    /// It does not answer `/readyz`, so that new clients go to other gateways.
    static let probes: Set<Substring> = ["/healthz", "/metrics"]

    /// The pages that may use the listener.
    package var origins = AllowedOrigins.listed([])
    /// Whether clients connect over TLS; answers then carry HSTS for a year.
    package var isSecure = false
    /// The most bytes of a body for the HTTP server; a longer one is answered with 413.
    ///
    /// Its routes have smaller limits of their own.
    var maximumBody = 32 * 1024 * 1024
    /// Proxies whose `X-Forwarded-For` is trusted.
    package var trustedProxies = AddressList()
    /// Counts the sockets and streams of each address; nil for no limit.
    package var addresses: AddressLimiter?
    /// Counts all connections; nil for no limit.
    package var connections: Budget?
    /// Counts connections beyond ``connections``, which may only send one of ``probes``.
    package var spare = Budget(limit: 128)
    /// Counts the bytes of endpoints' unanswered requests over all connections; they arrive before
    /// the client is authenticated.
    package var bodies = Budget(limit: 16 * 1024 * 1024)
    /// Counts the bytes of answers that wait on full connections until their clients read.
    package var answers = Budget(limit: 64 * 1024 * 1024)

    package init() {}

    /// The CORS grant for the page that sent a request; nil if there is none.
    ///
    /// - Parameter endpoint: the endpoint that claims the path; nil for the server.
    func grant(_ head: HTTPRequestHead, _ endpoint: (any TransportEndpoint)? = nil) -> AllowedOrigins.Grant? {
        let allowsCredentials = endpoint?.allowsCredentials ?? false
        return head.headers.first(name: "origin")
            .flatMap { self.origins.grant($0, allowsCredentials: allowsCredentials) }
    }

    /// Whether the page that sent a request may open a socket.
    func admitsOrigin(_ head: HTTPRequestHead) -> Bool {
        guard let origin = head.headers.first(name: "origin") else { return true }
        return self.origins.admits(origin, host: head.headers.first(name: "host"))
    }

    /// Whether a request is a CORS preflight (Fetch, section 3.2).
    static func isPreflight(_ head: HTTPRequestHead) -> Bool {
        head.method == .OPTIONS && head.headers.contains(name: "origin")
            && head.headers.contains(name: "access-control-request-method")
    }

    /// Adds the fields that protect an answer in browsers, unless they are set already.
    func protect(_ headers: inout HTTPHeaders, _ grant: AllowedOrigins.Grant?) {
        func add(_ name: String, _ value: String) {
            if !headers.contains(name: name) { headers.add(name: name, value: value) }
        }
        add("x-content-type-options", "nosniff")
        add("x-frame-options", "DENY")
        add("referrer-policy", "no-referrer")
        // Without this field a cache may keep an answer, and most answers belong to one user.
        add("cache-control", "no-store")
        if headers.first(name: "content-type")?.hasPrefix("text/html") == true {
            add("content-security-policy", Self.pagePolicy)
        }
        if self.isSecure { add("strict-transport-security", "max-age=31536000") }
        if self.origins != .listed([]) { headers.add(name: "vary", value: "Origin") }
        guard let grant else { return }
        add("access-control-allow-origin", grant.origin)
        if grant.allowsCredentials { add("access-control-allow-credentials", "true") }
        add("access-control-expose-headers", Self.exposedFields)
    }
}

/// The origins (RFC 6454) of pages that may read answers and open sockets.
///
/// Requests without `Origin` are not checked: they come from no browser, or browsers do not guard
/// them.
package enum AllowedOrigins: Sendable, Equatable {
    case any
    /// Origins such as `https://app.example.com`, in lower case.
    case listed(Set<String>)

    /// A page's rights on an answer, in terms of CORS.
    struct Grant: Sendable, Equatable {
        /// For `access-control-allow-origin`.
        let origin: String
        let allowsCredentials: Bool
    }

    /// Whether a page of an origin may open a socket.
    ///
    /// - Parameter host: the request's host; pages that it serves are always admitted.
    func admits(_ origin: String, host: String?) -> Bool {
        self.grant(origin) != nil || Self.isOwn(origin, host: host)
    }

    /// The rights of another origin's page on the answer; nil if it has none.
    ///
    /// - Parameter allowsCredentials: whether a page may send credentials even if every page is
    ///   allowed.
    func grant(_ origin: String, allowsCredentials: Bool = false) -> Grant? {
        switch self {
        // Browsers reject `*` for requests with credentials (Fetch, section 3.2.5).
        case .any where allowsCredentials: Grant(origin: origin, allowsCredentials: true)
        // No credentials: an answer that everyone may read must not depend on a cookie.
        case .any: Grant(origin: "*", allowsCredentials: false)
        case .listed(let origins) where Self.isASCII(origin) && Self.isListed(origin.lowercased(), in: origins):
            Grant(origin: origin, allowsCredentials: true)
        case .listed: nil
        }
    }

    /// Whether a list has an origin; some clients write `wss` for `https` and `ws` for `http`.
    private static func isListed(_ origin: String, in origins: Set<String>) -> Bool {
        if origins.contains(origin) { return true }
        guard origin.hasPrefix("wss://") || origin.hasPrefix("ws://") else { return false }
        return origins.contains("http\(origin.dropFirst("ws".count))")
    }

    /// Whether a text is ASCII, as all valid origins and hosts are.
    ///
    /// `String` may take quadratic time to compare other text.
    private static func isASCII(_ text: String) -> Bool { text.utf8.allSatisfy { $0 < 0x80 } }

    /// Whether an origin names a host; either may leave out the scheme's port or state it.
    private static func isOwn(_ origin: String, host: String?) -> Bool {
        guard let host, Self.isASCII(origin), Self.isASCII(host), let mark = origin.firstRange(of: "://") else {
            return false
        }
        let port: String? =
            switch origin[..<mark.lowerBound].lowercased() {
            case "https", "wss": ":443"
            case "http", "ws": ":80"
            default: nil
            }
        func normalized(_ authority: String) -> String {
            guard let port, authority.hasSuffix(port) else { return authority }
            return String(authority.dropLast(port.count))
        }
        let own = normalized(host.lowercased())
        return !own.isEmpty && own == normalized(origin[mark.upperBound...].lowercased())
    }
}

/// Answers CORS preflights (Fetch, section 3.2).
struct PreflightEndpoint: TransportEndpoint {
    private static let methods = "GET, HEAD, POST, PUT, PATCH, DELETE"
    /// Seconds for which a browser may cache the answer; browsers have limits of their own.
    private static let age = "7200"
    private static let longestFields = 1_024

    let policy: ConnectionPolicy

    /// Returns false: the connection selects this endpoint by the request, not by its path.
    func claims(_ path: Substring) -> Bool { false }

    func handle(_ exchange: HTTPExchange) {
        guard self.policy.grant(exchange.head) != nil else {
            ConnectionMetrics.refusedOrigins.increment()
            return exchange.respond(.problem(.forbidden, "pages of this origin may not call this server"))
        }
        // The connection adds the other fields, the CORS grant among them.
        var headers: HTTPHeaders = [
            "access-control-allow-methods": Self.methods, "access-control-max-age": Self.age,
            "vary": "Access-Control-Request-Headers",
        ]
        let asked = exchange.head.headers["access-control-request-headers"].joined(separator: ",")
        // A route decides which fields a call may carry, so allow all that were asked for.
        if !asked.isEmpty, asked.utf8.count <= Self.longestFields, asked.utf8.allSatisfy(Self.isListOfTokens) {
            headers.add(name: "access-control-allow-headers", value: asked)
        }
        exchange.respond(.noContent, headers: headers)
    }

    private static func isListOfTokens(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: "-_., ".utf8.contains(byte)
        }
    }
}

/// Counters of refused requests and connections, each created once.
enum ConnectionMetrics {
    /// Sockets and preflights of pages whose origin is not allowed.
    static let refusedOrigins = Self.refused("origin")
    /// Requests whose head is not valid HTTP or too large.
    static let refusedHeads = Self.refused("head")
    /// Bodies that are too large.
    static let refusedBodies = Self.refused("body")
    /// Sockets and streams of addresses that have too many.
    static let refusedAddresses = Self.refused("address")
    /// Connections that pipelined too much behind an unanswered request.
    static let refusedPipelines = Self.refused("pipeline")
    /// Bodies and unread answers beyond the limit for all connections.
    static let refusedMemory = Self.refused("memory")
    /// Connections closed because a request or the reading of an answer took too long.
    static let refusedSlow = Self.refused("slow")
    /// Connections beyond the process's limit.
    static let refusedFiles = Self.refused("files")

    private static func refused(_ reason: String) -> Counter {
        Counter(label: "carillon.connections.refused", dimensions: [("reason", reason)])
    }
}
