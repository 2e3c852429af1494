// Carillon · SocketIOAction.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// An action for the owner to carry out, in list order.
package enum SocketIOAction: Sendable, Equatable {
    /// Send these messages together, with nothing in between.
    case send([EngineIOMessage])
    /// Decide with ``SocketIOConnection/accept(_:sid:recovery:into:)`` or
    /// ``SocketIOConnection/refuse(_:message:data:into:)``.
    case connectRequested(SocketIOConnectRequest)
    /// The request was withdrawn; deciding it has no effect.
    case connectWithdrawn(SocketIOConnectRequest.Ticket)
    /// An event from the client; with an acknowledgement id the client awaits
    /// ``SocketIOConnection/acknowledge(_:with:in:into:)``.
    case event(namespace: String, SocketIOEventName, [SocketIOValue], acknowledgement: UInt64?)
    /// The client's acknowledgement of our event.
    case acknowledged(namespace: String, UInt64, [SocketIOValue])
    case left(namespace: String, SocketIODisconnectReason)
    /// Close the underlying session; no action follows.
    case close(SocketIOCloseReason)
}

/// A client's request to join a namespace, for the owner to accept or refuse.
package struct SocketIOConnectRequest: Sendable, Equatable {
    /// Identifies one request of one connection, so that a late decision cannot hit another.
    package struct Ticket: Sendable, Hashable {
        let number: UInt32
    }

    /// The client's state before it lost its connection.
    package struct Recovery: Sendable, Equatable {
        /// The secret from the earlier connection.
        package let pid: String
        /// The offset of the last event that the client has.
        package let offset: String
    }

    package let ticket: Ticket
    package let namespace: String
    /// The payload of the request; an empty object if it had none.
    package let auth: JSONValue
    /// Nil unless recovery is offered and requested; credentials must be checked in any case.
    package let recovery: Recovery?

    init(ticket: Ticket, namespace: String, payload: JSONValue?, offersRecovery: Bool) {
        self.ticket = ticket
        self.namespace = namespace
        self.auth = payload ?? .object([])
        if offersRecovery, let pid = payload?["pid"]?.string, let offset = payload?["offset"]?.string {
            self.recovery = Recovery(pid: pid, offset: offset)
        } else {
            self.recovery = nil
        }
    }
}

/// The data that makes a joined namespace recoverable.
package struct SocketIORecoveryGrant: Sendable, Equatable {
    /// The secret for the next recovery: the old one after a recovery, else a new one.
    let pid: String
    /// The missed events in order, sent before the reply to the client's CONNECT.
    let missed: [SocketIOMissedEvent]

    package init(pid: String, missed: [SocketIOMissedEvent] = []) {
        self.pid = pid
        self.missed = missed
    }
}

/// An event that a client missed, with its offset.
package struct SocketIOMissedEvent: Sendable, Equatable {
    let name: SocketIOEventName
    let arguments: [SocketIOValue]
    package let offset: String

    package init(_ name: SocketIOEventName, _ arguments: [SocketIOValue], offset: String) {
        self.name = name
        self.arguments = arguments
        self.offset = offset
    }
}

/// The mode of sending an event.
package enum SocketIOEmission: Sendable, Equatable {
    /// No offset and no acknowledgement. A recoverable client never gets it again, and takes a
    /// trailing text for an offset.
    case plain
    /// With an offset, which a recoverable client reports later; left out for other clients.
    case recoverable(offset: String)
    /// The client must acknowledge it.
    case acknowledged
}

/// The result of sending an event.
package enum SocketIOEmissionResult: Sendable, Equatable {
    case sent
    /// The acknowledgement comes as ``SocketIOAction/acknowledged(namespace:_:_:)`` with this id,
    /// or never.
    case awaiting(UInt64)
    /// The namespace is not joined; nothing was sent.
    case notJoined
    /// ``SocketIOConfiguration/maximumAwaitedAcknowledgements`` is reached; nothing was sent.
    case tooManyAwaited
}

/// The reason why a connection wants its session closed.
package enum SocketIOCloseReason: Sendable, Equatable {
    case fault(SocketIOFault)
    /// No namespace was joined in time, and no request to join one is undecided.
    case connectTimeout
    /// The owner asked for it.
    case forced
    case serverShuttingDown
    /// The server cannot serve the client now; it may reconnect at once.
    case tryAgainLater
    /// The client's token has expired; it may reconnect at once with a new one.
    case tokenExpired

    /// The reason for closing the session.
    package var session: EngineIOCloseReason {
        switch self {
        case .fault: .parseError
        case .connectTimeout, .forced: .forcedClose
        case .serverShuttingDown: .serverShuttingDown
        case .tryAgainLater: .tryAgainLater
        case .tokenExpired: .tokenExpired
        }
    }

    /// The reason reported for each joined namespace.
    var namespace: SocketIODisconnectReason {
        switch self {
        case .fault: .parseError
        case .connectTimeout, .forced, .tryAgainLater, .tokenExpired: .forcedServerClose
        case .serverShuttingDown: .serverShuttingDown
        }
    }
}

/// The reason for leaving a namespace, with the texts of the reference server.
package enum SocketIODisconnectReason: String, Sendable, CaseIterable {
    case transportError = "transport error"
    case transportClose = "transport close"
    case forcedClose = "forced close"
    case pingTimeout = "ping timeout"
    case parseError = "parse error"
    case serverShuttingDown = "server shutting down"
    case forcedServerClose = "forced server close"
    case clientNamespaceDisconnect = "client namespace disconnect"
    case serverNamespaceDisconnect = "server namespace disconnect"

    /// Whether a client that reconnects may get its missed events.
    var isRecoverable: Bool {
        switch self {
        case .transportError, .transportClose, .forcedClose, .pingTimeout, .serverShuttingDown, .forcedServerClose: true
        case .parseError, .clientNamespaceDisconnect, .serverNamespaceDisconnect: false
        }
    }

    /// Maps the end of the session.
    init(_ reason: EngineIOCloseReason) {
        switch reason {
        case .transportClose: self = .transportClose
        case .pingTimeout: self = .pingTimeout
        case .parseError: self = .parseError
        case .forcedClose, .tryAgainLater, .tokenExpired: self = .forcedClose
        case .serverShuttingDown: self = .serverShuttingDown
        case .transportError, .pingFromClient, .overlappingPolls, .overlappingPosts, .invalidContentType,
            .tooMuchWaiting:
            self = .transportError
        }
    }
}
