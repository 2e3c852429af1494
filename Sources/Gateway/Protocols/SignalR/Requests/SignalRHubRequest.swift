// Carillon · SignalRHubRequest.swift
// SPDX-License-Identifier: Apache-2.0

/// A request to a hub's own path, and what becomes of it.
package struct SignalRHubRequest: Sendable, Equatable {
    /// What a request needs to know about the connection that its id names.
    package struct Standing: Sendable, Equatable {
        /// Nil until the first request chose one.
        package var transport: SignalRTransport?
        /// A transport is there now; of no account for long polling.
        package var isAttached: Bool
        /// The connection may move to a new socket: ``SignalRConnection/canReattach``.
        package var canReattach: Bool

        package init(transport: SignalRTransport?, isAttached: Bool, canReattach: Bool) {
            self.transport = transport
            self.isAttached = isAttached
            self.canReattach = canReattach
        }
    }

    package enum Verdict: Sendable, Equatable {
        /// A WebSocket without id: a connection of its own, which nobody negotiated.
        case create
        /// The connection's first request of that transport: WebSockets or Server-Sent Events.
        case attach(SignalRTransport)
        /// A new socket for a connection that kept its state; one that is still there is replaced.
        case reattach
        /// A GET of long polling: ``SignalRPollingState/poll(_:now:)``.
        case poll
        /// The body is the client's messages; the answer is ``SignalRResponse/sent``.
        case send
        /// The end of a long-polling connection; the answer is ``SignalRResponse/deleted``.
        case delete
        case refuse(SignalRResponse)
    }

    package let method: String
    /// ``SignalRConnectRequest/id``.
    package let id: String?
    package let wantsWebSocket: Bool
    package let wantsEventStream: Bool

    /// Describes a request.
    ///
    /// - Parameters:
    ///   - method: As in the request, in capitals.
    ///   - id: ``SignalRConnectRequest/id``.
    ///   - wantsWebSocket: The request is an upgrade to a WebSocket.
    ///   - accept: The Accept header.
    package init(method: String, id: String?, wantsWebSocket: Bool, accept: String?) {
        self.method = method
        self.id = id
        self.wantsWebSocket = wantsWebSocket
        self.wantsEventStream = Self.acceptsEventStream(accept ?? "")
    }

    /// Decides what becomes of the request.
    ///
    /// - Parameters:
    ///   - connection: What the id names; nil if there is no id, or nothing of that id.
    ///   - transports: What the hub offers.
    package func verdict(_ connection: Standing?, transports: [SignalRTransport]) -> Verdict {
        switch self.method {
        case "GET": self.get(connection, transports)
        case "POST": self.existing(connection) { Self.post($0) }
        case "DELETE":
            self.existing(connection) { connection in
                guard connection.transport == .longPolling else {
                    return .refuse(.refusal(400, "Cannot terminate this connection using the DELETE endpoint."))
                }
                return .delete
            }
        default: .refuse(.refusal(405))
        }
    }

    private func existing(_ connection: Standing?, _ judge: (Standing) -> Verdict) -> Verdict {
        guard self.id != nil else { return .refuse(.refusal(400, "Connection ID required")) }
        guard let connection else { return .refuse(.refusal(404, "No Connection with that ID")) }
        return judge(connection)
    }

    private static func post(_ connection: Standing) -> Verdict {
        switch connection.transport {
        case .webSockets:
            .refuse(.refusal(405, "POST requests are not allowed for WebSocket connections."))
        case nil: .refuse(.refusal(400, "The connection has no transport yet"))
        case .serverSentEvents, .longPolling: .send
        }
    }

    private func get(_ connection: Standing?, _ transports: [SignalRTransport]) -> Verdict {
        let transport: SignalRTransport =
            if self.wantsEventStream { .serverSentEvents } else if self.wantsWebSocket { .webSockets } else {
                .longPolling
            }
        if transport == .webSockets, self.id == nil {
            return transports.contains(transport) ? .create : Self.notOffered(transport)
        }
        return self.existing(connection) { connection in
            guard transports.contains(transport) else { return Self.notOffered(transport) }
            guard let chosen = connection.transport else {
                return transport == .longPolling ? .poll : .attach(transport)
            }
            guard chosen == transport else {
                return .refuse(.refusal(400, "Cannot change transports mid-connection"))
            }
            switch transport {
            case .longPolling: return .poll
            case .webSockets where connection.canReattach: return .reattach
            case .webSockets, .serverSentEvents:
                // Without its transport, a connection that cannot move is over.
                return .refuse(connection.isAttached ? .refusal(409) : .refusal(404, "No Connection with that ID"))
            }
        }
    }

    private static func notOffered(_ transport: SignalRTransport) -> Verdict {
        .refuse(.refusal(404, "\(transport.rawValue) transport not supported by this end point type"))
    }

    private static func acceptsEventStream(_ accept: String) -> Bool {
        accept.split(separator: ",").contains { range in
            let type = range.prefix { $0 != ";" }.filter { $0 != " " && $0 != "\t" }
            return type.lowercased() == "text/event-stream"
        }
    }
}
