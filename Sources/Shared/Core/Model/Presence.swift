// Carillon · Presence.swift
// SPDX-License-Identifier: Apache-2.0

/// A user's open connections.
package enum Presence: Sendable, Equatable {
    /// Redis answered with an error.
    case unknown
    case offline
    case online([ConnectionPresence])

    /// The open connections; none if they are unknown.
    package var connections: [ConnectionPresence] {
        if case .online(let connections) = self { connections } else { [] }
    }
}

/// A wire format of a client.
package enum Dialect: String, Sendable, CaseIterable {
    case native, socketio, signalr, sse

    /// The JSON form of notifications in this dialect.
    package var shape: NotificationShape { self == .signalr ? .camelCase : .canonical }

    /// Whether its clients read their inbox over REST, so a sync brings only what they miss.
    package var readsInboxOverREST: Bool { self == .signalr }

    /// Whether its clients can prove receipt without a call of their own.
    ///
    /// The transport may still forbid it.
    var canProve: Bool { self != .sse }
}

/// A JSON form of a notification.
package enum NotificationShape: Sendable, CaseIterable {
    /// snake_case, types by name.
    case canonical
    /// camelCase, types as integers.
    case camelCase
}

/// One connection of a user.
package struct ConnectionPresence: Sendable, Equatable {
    package enum State: String, Sendable {
        case active, idle
    }

    package let connection: String
    package let node: String
    package let dialect: Dialect
    package let state: State
    package let since: Timestamp
    /// When it entered its state; nil if it never changed.
    package let stateSince: Timestamp?

    /// How long focus must be away before the user counts as idle.
    package static let idleAfter: Duration = .seconds(90)

    package init(
        connection: String,
        node: String,
        dialect: Dialect,
        state: State,
        since: Timestamp,
        stateSince: Timestamp? = nil
    ) {
        self.connection = connection
        self.node = node
        self.dialect = dialect
        self.state = state
        self.since = since
        self.stateSince = stateSince
    }

    /// Whether the client reported the loss of focus at least ``idleAfter`` ago.
    ///
    /// A connection that never reported focus is active.
    func isIdle(at now: Timestamp) -> Bool {
        self.state == .idle && (self.stateSince ?? self.since) + Self.idleAfter <= now
    }
}

/// Names for processes and connections: 96 random bits in lower-case letters and digits.
package enum RandomName {
    package static func make() -> String {
        String(UInt64.random(in: .min ... .max), radix: 36) + String(UInt32.random(in: .min ... .max), radix: 36)
    }
}
