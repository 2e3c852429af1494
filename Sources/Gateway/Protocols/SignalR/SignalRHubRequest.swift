// Carillon · SignalRHubRequest.swift
// SPDX-License-Identifier: Apache-2.0

/// A request to a hub's path, and the decision how to handle it.
package struct SignalRHubRequest: Sendable, Equatable {
    /// The state of the connection that the request's id names.
    package struct Standing: Sendable, Equatable {
        /// Nil until the first request chose one.
        var transport: SignalRTransport?
        /// Whether a transport is attached now; irrelevant for long polling.
        var isAttached: Bool
        /// Whether the connection may move to a new socket: ``SignalRStateMachine/canReattach``.
        var canReattach: Bool

        package init(transport: SignalRTransport?, isAttached: Bool, canReattach: Bool) {
            self.transport = transport
            self.isAttached = isAttached
            self.canReattach = canReattach
        }
    }

    /// The action that a request calls for.
    package enum Verdict: Sendable, Equatable {
        /// Create a connection for a WebSocket that skipped negotiation and so has no id.
        case create
        /// Attach the connection's first transport: WebSockets or Server-Sent Events.
        case attach(SignalRTransport)
        /// Move a connection with stateful reconnect to a new socket, in place of an attached one.
        case reattach
        /// End a connection whose socket is still attached, and create a new one in its place.
        case replace
        /// Handle a long-polling GET with ``SignalRPollingState/poll(_:mark:now:)``.
        case poll
        /// Handle the client's messages in the body; answer ``SignalRResponse/sent``.
        case send
        /// End a long-polling connection; answer ``SignalRResponse/deleted``.
        case delete
        case refuse(SignalRResponse)
    }

    let method: String
    /// See ``SignalRConnectRequest/id``.
    let id: String?
    let wantsWebSocket: Bool
    let wantsEventStream: Bool
    /// See ``SignalRConnectRequest/mark``.
    package let mark: PollMark?

    /// Describes a request.
    ///
    /// - Parameters:
    ///   - method: the method in capitals.
    ///   - id: ``SignalRConnectRequest/id``.
    ///   - wantsWebSocket: whether the request is a WebSocket upgrade.
    ///   - accept: the Accept header.
    ///   - mark: ``SignalRConnectRequest/mark``.
    package init(method: String, id: String?, wantsWebSocket: Bool, accept: String?, mark: PollMark? = nil) {
        self.method = method
        self.id = id
        self.wantsWebSocket = wantsWebSocket
        self.wantsEventStream = Self.acceptsEventStream(accept ?? "")
        self.mark = mark
    }

    /// Decides about the request.
    ///
    /// - Parameter connection: the connection of the id; nil if there is no id or no such
    ///   connection.
    package func verdict(_ connection: Standing?) -> Verdict {
        switch self.method {
        case "GET": self.get(connection)
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
        guard let connection else { return .refuse(.unknownConnection) }
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

    private func get(_ connection: Standing?) -> Verdict {
        let transport: SignalRTransport =
            if self.wantsEventStream { .serverSentEvents } else if self.wantsWebSocket { .webSockets } else {
                .longPolling
            }
        if transport == .webSockets, self.id == nil { return .create }
        return self.existing(connection) { connection in
            guard let chosen = connection.transport else {
                return transport == .longPolling ? .poll : .attach(transport)
            }
            guard chosen == transport else {
                return .refuse(.refusal(400, "Cannot change transports mid-connection"))
            }
            switch transport {
            case .longPolling: return .poll
            case .webSockets where connection.canReattach: return .reattach
            case .webSockets where connection.isAttached: return .replace
            case .webSockets, .serverSentEvents:
                // A connection that cannot move ends with its transport.
                return .refuse(connection.isAttached ? .refusal(409) : .unknownConnection)
            }
        }
    }

    private static func acceptsEventStream(_ accept: String) -> Bool {
        accept.split(separator: ",").contains { range in
            let type = range.prefix { $0 != ";" }.filter { $0 != " " && $0 != "\t" }
            return type.lowercased() == "text/event-stream"
        }
    }
}

/// The connection id and token in a request to a hub's path.
package struct SignalRConnectRequest: Sendable, Equatable {
    /// The query's `id`, which the negotiation issued.
    ///
    /// Nil for a client that skipped negotiation; a `connectionId`, which some of them send, is
    /// ignored.
    package let id: String?
    /// The bearer token of the header, or of the query's `access_token`: browsers cannot set
    /// headers on a WebSocket or an EventSource.
    package let accessToken: String?
    /// The query's `_`: the time at which Microsoft's JavaScript client polls.
    package let mark: PollMark?

    /// Parses a request.
    ///
    /// - Parameters:
    ///   - query: the request's query with names in lower case.
    ///   - authorization: the Authorization header; schemes other than bearer are ignored.
    package init(query: RequestQuery, authorization: String?) {
        self.id = query["id"].flatMap { $0.isEmpty ? nil : $0 }
        let inHeader = authorization.flatMap { AuthorizationHeader.credential($0, of: "bearer") }
        self.accessToken = inHeader ?? query["access_token"].flatMap { $0.isEmpty ? nil : $0 }
        self.mark = PollMark(query["_"])
    }
}
