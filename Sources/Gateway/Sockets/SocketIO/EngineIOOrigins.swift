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
}
