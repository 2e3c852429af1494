// Carillon · EngineIORequest.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A request to the protocol's path, and the decision how to handle it.
package struct EngineIORequest: Sendable {
    /// The action that a request calls for.
    package enum Decision: Sendable, Equatable {
        /// Open a new session; for a WebSocket, after the HTTP upgrade.
        case open
        case poll(sid: String)
        case post(sid: String)
        /// Upgrade HTTP, then hand the WebSocket to the session.
        case takeOver(sid: String)
        /// Answer with ``EngineIORefusal/response``; a request for a WebSocket gets only the
        /// message, with status 400.
        case refuse(EngineIORefusal)
    }

    let method: String
    let query: EngineIOQuery
    /// Whether the request asks for a WebSocket (RFC 6455 section 4.2.1).
    let asksForWebSocket: Bool

    package init(method: String, query: EngineIOQuery, asksForWebSocket: Bool) {
        self.method = method
        self.query = query
        self.asksForWebSocket = asksForWebSocket
    }

    /// Decides about the request by the protocol's rules, in their order.
    ///
    /// - Parameter isKnown: whether there is a session with that id.
    package func judge(isKnown: (_ sid: String) -> Bool) -> Decision {
        guard let name = self.query.transport, let transport = EngineIOTransport(rawValue: name) else {
            return .refuse(.unknownTransport)
        }
        if let sid = self.query.sid {
            return isKnown(sid) ? self.judge(transport, of: sid) : .refuse(.unknownSession)
        }
        guard self.method == "GET" else { return .refuse(.badHandshakeMethod) }
        // The WebSocket transport requires an upgrade request, and an upgrade allows no other
        // transport.
        guard (transport == .webSocket) == self.asksForWebSocket else { return .refuse(.badRequest) }
        guard self.query.version == "4" else { return .refuse(.unsupportedVersion) }
        return .open
    }

    private func judge(_ transport: EngineIOTransport, of sid: String) -> Decision {
        // The session decides whether it can be taken over; if not, it closes the WebSocket.
        if self.asksForWebSocket { return transport == .webSocket ? .takeOver(sid: sid) : .refuse(.badRequest) }
        // A session that was upgraded refuses polls itself.
        guard transport == .polling else { return .refuse(.badRequest) }
        switch self.method {
        case "GET": return .poll(sid: sid)
        case "POST": return .post(sid: sid)
        default: return .refuse(.badRequest)
        }
    }
}

/// The query of a request to the protocol's path.
package struct EngineIOQuery: Sendable, Equatable {
    /// The protocol's own names; version 3's `j` and `b64` are ignored.
    private static let names: Set<String> = ["EIO", "transport", "sid", "t", "j", "b64"]

    private let query: RequestQuery

    package init(_ query: RequestQuery) {
        self.query = query
    }

    /// `EIO`: the protocol's version.
    package var version: String? { self.query["EIO"] }
    var transport: String? { self.query["transport"] }
    /// The session's id; nil if empty.
    package var sid: String? { self.query["sid"].flatMap { $0.isEmpty ? nil : $0 } }
    /// The cache buster `t`, which differs from poll to poll.
    package var mark: PollMark? { PollMark(self.query["t"]) }
    /// The application's own parameters in order.
    package var parameters: [RequestQuery.Field] { self.query.fields.filter { !Self.names.contains($0.name) } }
}

/// The transport of a session's packets.
package enum EngineIOTransport: String, Sendable, Equatable {
    case polling
    case webSocket = "websocket"
}

/// The reason for refusing a request, with the protocol's code.
package enum EngineIORefusal: Sendable, Equatable {
    case unknownTransport
    case unknownSession
    case badHandshakeMethod
    case badRequest
    case unsupportedVersion

    var code: Int {
        switch self {
        case .unknownTransport: 0
        case .unknownSession: 1
        case .badHandshakeMethod: 2
        case .badRequest: 3
        case .unsupportedVersion: 5
        }
    }

    package var message: String {
        switch self {
        case .unknownTransport: "Transport unknown"
        case .unknownSession: "Session ID unknown"
        case .badHandshakeMethod: "Bad handshake method"
        case .badRequest: "Bad request"
        case .unsupportedVersion: "Unsupported protocol version"
        }
    }

    /// The answer to a plain request.
    package var response: EngineIOResponse {
        var writer = JSONWriter(capacity: 64)
        writer.beginObject()
        writer.member("code", self.code)
        writer.member("message", self.message)
        writer.endObject()
        return EngineIOResponse(status: 400, contentType: .json, body: writer.bytes)
    }
}

/// The answer to a polling request; send it with `cache-control: no-store`.
package struct EngineIOResponse: Sendable, Equatable {
    /// The media type of a body.
    package enum ContentType: String, Sendable {
        case text = "text/plain; charset=UTF-8"
        case html = "text/html"
        case json = "application/json"
    }

    package let status: Int
    /// Nil if the body is empty.
    package let contentType: ContentType?
    package let body: [UInt8]

    /// Accepts a post.
    static let ok = EngineIOResponse(status: 200, contentType: .html, body: Array("ok".utf8))

    /// Rejects a post that is too large.
    static let tooLarge = EngineIOResponse(status: 413, contentType: nil, body: [])

    static func packets(_ packets: [EngineIOPacket]) -> EngineIOResponse {
        EngineIOResponse(status: 200, contentType: .text, body: EngineIOPayload.encode(packets))
    }
}
