// Carillon · EngineIORequest.swift
// SPDX-License-Identifier: Apache-2.0

/// A request to the protocol's path, before anything is done about it.
package struct EngineIORequest: Sendable {
    package enum Decision: Sendable, Equatable {
        /// Open a new session; for a WebSocket after the upgrade of HTTP.
        case open(EngineIOTransport)
        case poll(sid: String)
        case post(sid: String)
        /// Upgrade HTTP, then hand the WebSocket to the session.
        case takeOver(sid: String)
        /// Answer with ``EngineIORefusal/response``, or ``EngineIORefusal/upgradeResponse`` if it asks for a WebSocket.
        case refuse(EngineIORefusal)
    }

    package let method: String
    package let query: EngineIOQuery
    /// Whether the request asks for a WebSocket, as RFC 6455 section 4.2.1 has it.
    package let asksForWebSocket: Bool
    /// The bytes of the header `Origin`.
    package let origin: [UInt8]?

    package init(method: String, query: EngineIOQuery, asksForWebSocket: Bool, origin: [UInt8]? = nil) {
        self.method = method
        self.query = query
        self.asksForWebSocket = asksForWebSocket
        self.origin = origin
    }

    /// Judges the request by the rules of the protocol, in their order.
    ///
    /// - Parameters:
    ///   - transportOf: How the session of that id travels, nil if there is none.
    ///   - allow: The owner's own check of a request for a new session; nil lets it pass.
    package func judge(
        transportOf: (_ sid: String) -> EngineIOTransport?,
        allow: () -> EngineIORefusal? = { nil }
    ) -> Decision {
        guard let name = self.query.transport, let transport = EngineIOTransport(rawValue: name) else {
            return .refuse(.unknownTransport)
        }
        guard self.origin?.allSatisfy({ $0 == 0x09 || $0 >= 0x20 && $0 != 0x7F }) ?? true else {
            return .refuse(.badRequest)
        }
        if let sid = self.query.sid {
            guard let current = transportOf(sid) else { return .refuse(.unknownSession) }
            return self.judge(transport, of: sid, that: current)
        }
        guard self.method == "GET" else { return .refuse(.badHandshakeMethod) }
        // A WebSocket is the only thing to ask for by an upgrade, and never comes without one.
        guard (transport == .webSocket) == self.asksForWebSocket else { return .refuse(.badRequest) }
        if let refusal = allow() { return .refuse(refusal) }
        guard self.query.version == "4" else { return .refuse(.unsupportedVersion) }
        return .open(transport)
    }

    private func judge(_ transport: EngineIOTransport, of sid: String, that current: EngineIOTransport) -> Decision {
        // Whether the session can be taken over is its own to say, by closing the WebSocket.
        if self.asksForWebSocket { return transport == .webSocket ? .takeOver(sid: sid) : .refuse(.badRequest) }
        guard transport == .polling, current == .polling else { return .refuse(.badRequest) }
        switch self.method {
        case "GET": return .poll(sid: sid)
        case "POST": return .post(sid: sid)
        default: return .refuse(.badRequest)
        }
    }
}
