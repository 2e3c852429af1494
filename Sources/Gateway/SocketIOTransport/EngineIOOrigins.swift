// Carillon · EngineIOOrigins.swift
// SPDX-License-Identifier: Apache-2.0

import NIOHTTP1

/// From which web pages browsers may poll (Fetch Standard, CORS protocol).
///
/// WebSockets are not judged by it: what a connection may do hangs on the token that it brings, never on a cookie.
package enum EngineIOOrigins: Sendable {
    /// Pages of any origin.
    case any
    /// Exactly these, as browsers write them: scheme, host and port.
    case only(Set<String>)

    /// - Parameter origins: `*` stands for any.
    package init(_ origins: Set<String>) {
        self = origins.contains("*") ? .any : .only(origins)
    }

    /// The fields that let the page of a request read its answer; `vary` alone if it may not.
    func headers(for head: HTTPRequestHead) -> HTTPHeaders {
        guard let origin = head.headers.first(name: "origin") else { return [:] }
        switch self {
        case .only(let origins) where !origins.contains(origin): return ["vary": "Origin"]
        case .any, .only:
            return [
                "access-control-allow-origin": origin, "access-control-allow-credentials": "true", "vary": "Origin",
            ]
        }
    }

    /// The answer's fields to a preflight.
    func preflightHeaders(for head: HTTPRequestHead) -> HTTPHeaders {
        var headers = self.headers(for: head)
        guard headers.contains(name: "access-control-allow-origin") else { return headers }
        headers.add(name: "access-control-allow-methods", value: "GET, POST")
        if let asked = head.headers.first(name: "access-control-request-headers") {
            headers.add(name: "access-control-allow-headers", value: asked)
        }
        headers.add(name: "access-control-max-age", value: "600")
        return headers
    }
}
