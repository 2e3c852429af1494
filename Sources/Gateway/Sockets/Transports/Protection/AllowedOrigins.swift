// Carillon · AllowedOrigins.swift
// SPDX-License-Identifier: Apache-2.0

/// The pages, by their origins (RFC 6454), that may read answers and open sockets.
///
/// A request without an `Origin` is no browser's, or is one that browsers do not guard; it is not judged here.
package enum AllowedOrigins: Sendable, Equatable {
    case any
    /// Any page, its cookies too; only for a server that keeps nothing that is somebody's, such as a program of tests.
    case anyWithCredentials
    /// Origins such as `https://app.example.com`, in lower case.
    case listed(Set<String>)

    /// What a page may do with an answer, as CORS says it.
    package struct Grant: Sendable, Equatable {
        /// For `access-control-allow-origin`.
        let origin: String
        let allowsCredentials: Bool
    }

    /// Whether a page of an origin may open a socket.
    ///
    /// - Parameter host: the request's own; pages that this host serves may, whatever is listed.
    package func admits(_ origin: String, host: String?) -> Bool {
        self.grant(origin) != nil || Self.isOwn(origin, host: host)
    }

    /// What a page of another origin may do with the answer; nil if nothing.
    ///
    /// - Parameter allowsCredentials: whether a page may send them also where every page is allowed.
    package func grant(_ origin: String, allowsCredentials: Bool = false) -> Grant? {
        switch self {
        // Browsers take `*` for no answer to what was sent with credentials (Fetch, section 3.2.5).
        case .any where allowsCredentials: Grant(origin: origin, allowsCredentials: true)
        // No credentials: what everyone may read must not depend on a cookie.
        case .any: Grant(origin: "*", allowsCredentials: false)
        case .anyWithCredentials: Grant(origin: origin, allowsCredentials: true)
        case .listed(let origins):
            origins.contains(origin.lowercased()) ? Grant(origin: origin, allowsCredentials: true) : nil
        }
    }

    private static func isOwn(_ origin: String, host: String?) -> Bool {
        guard let host, !host.isEmpty, let scheme = origin.firstRange(of: "://") else { return false }
        return origin[scheme.upperBound...].lowercased() == host.lowercased()
    }
}
