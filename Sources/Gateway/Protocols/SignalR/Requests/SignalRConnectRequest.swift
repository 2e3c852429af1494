// Carillon · SignalRConnectRequest.swift
// SPDX-License-Identifier: Apache-2.0

/// What a request to a hub's own path says about the connection and the caller.
package struct SignalRConnectRequest: Sendable, Equatable {
    private static let secrets: Set<String> = ["access_token", "id"]

    /// The query's `id`: what the negotiation handed out.
    ///
    /// Nil for a client that skipped it; a `connectionId`, which one client sends in that case, names nothing here.
    package let id: String?
    /// The bearer token of the header, or else the query's `access_token`, since browsers can set no header on a
    /// WebSocket or an EventSource.
    package let accessToken: String?

    /// Reads a request.
    ///
    /// - Parameters:
    ///   - query: The request's query, its names in lower case.
    ///   - authorization: The Authorization header; one of another scheme than bearer names no token.
    package init(query: RequestQuery, authorization: String?) {
        self.id = query["id"].flatMap { $0.isEmpty ? nil : $0 }
        let inHeader = authorization.flatMap { Self.bearer($0) }
        self.accessToken = inHeader ?? query["access_token"].flatMap { $0.isEmpty ? nil : $0 }
    }

    /// A request's target as it may be logged: without the values of `access_token` and `id`, which are secrets.
    package static func scrubbed(target: String) -> String {
        let parts = target.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2 else { return target }
        let pairs = parts[1].split(separator: "&", omittingEmptySubsequences: false).map { pair in
            let name = pair.prefix { $0 != "=" }
            // A name that cannot be read may be meant for one of them.
            let isSecret = PercentCoding.decode(name, plusIsSpace: true).map { Self.secrets.contains($0.lowercased()) }
            guard isSecret ?? true else { return String(pair) }
            return name.endIndex < pair.endIndex ? "\(name)=-" : String(pair)
        }
        return "\(parts[0])?\(pairs.joined(separator: "&"))"
    }

    private static func bearer(_ header: String) -> String? {
        let words = header.split(separator: " ", maxSplits: 1)
        guard words.count == 2, words[0].lowercased() == "bearer" else { return nil }
        let token = words[1].drop { $0 == " " }
        return token.isEmpty ? nil : String(token)
    }
}
