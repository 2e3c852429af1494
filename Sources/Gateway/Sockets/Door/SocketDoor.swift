// Carillon · SocketDoor.swift
// SPDX-License-Identifier: Apache-2.0

import Model
import NIOHTTP1

/// Decides which requests become sockets, and for whom.
package struct SocketDoor: Sendable {
    /// The path of native sockets.
    package static let path = "/v1/socket"
    /// The subprotocol of the native dialect; a browser adds its token as a second one, `bearer.<token>`.
    static let subprotocol = "carillon.v1"

    /// A request that is let in.
    struct Admission: Sendable {
        /// Nil for a client that will send its token in the first message.
        let identity: SocketIdentity?
        /// The inbox version that the client has, from the query's `resume`.
        let since: Int64?
        let subprotocol: String?
    }

    private let backend: any SocketBackend

    package init(backend: any SocketBackend) {
        self.backend = backend
    }

    /// Whether a request asks for a socket.
    static func wantsSocket(_ head: HTTPRequestHead) -> Bool {
        guard head.uri.prefix(while: { $0 != "?" }) == Self.path else { return false }
        return head.headers[canonicalForm: "upgrade"].contains { $0.lowercased() == "websocket" }
    }

    /// What is wrong with the handshake itself (RFC 6455 section 4.2.1); nil if nothing is.
    static func fault(_ head: HTTPRequestHead) -> (status: HTTPResponseStatus, reason: String)? {
        guard head.method == .GET, head.version == .http1_1 else {
            return (.badRequest, "a socket begins with GET and HTTP/1.1")
        }
        guard head.headers[canonicalForm: "connection"].contains(where: { $0.lowercased() == "upgrade" }) else {
            return (.badRequest, "the Connection header must name upgrade")
        }
        guard head.headers.first(name: "sec-websocket-version") == "13" else {
            return (.upgradeRequired, "Sec-WebSocket-Version must be 13")
        }
        let keys = head.headers["sec-websocket-key"]
        guard keys.count == 1, WebSocketKey.isValid(keys[0]) else {
            return (.badRequest, "Sec-WebSocket-Key must be 16 bytes in base64")
        }
        return nil
    }

    /// Finds out who asks.
    ///
    /// - Throws: ``SocketRefusal``, or the backend's error.
    func admit(_ head: HTTPRequestHead) async throws -> Admission {
        let offered = head.headers[canonicalForm: "sec-websocket-protocol"].map { String($0) }
        let query = Self.query(head.uri)
        let since = query["resume"].flatMap { Int64($0) }
        var credentials = SocketCredentials(head.headers)
        credentials.token = offered.first { $0.hasPrefix("bearer.") }.map { String($0.dropFirst("bearer.".count)) }
        credentials.ticket = query["ticket"].map { String($0) }
        return Admission(
            identity: try await self.backend.authenticate(credentials),
            since: since,
            subprotocol: offered.contains(Self.subprotocol) ? Self.subprotocol : nil
        )
    }

    private static func query(_ uri: String) -> [Substring: Substring] {
        guard let start = uri.firstIndex(of: "?") else { return [:] }
        var query: [Substring: Substring] = [:]
        for pair in uri[uri.index(after: start)...].split(separator: "&") {
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            query[parts[0]] = parts.count > 1 ? parts[1] : ""
        }
        return query
    }
}
