// Carillon · Presence.swift
// SPDX-License-Identifier: Apache-2.0

/// Whether a user holds a socket somewhere, and how.
package enum Presence: Sendable, Equatable {
    /// Redis could not say.
    case unknown
    case offline
    case online([ConnectionPresence])
}

/// A wire format that a client speaks.
package enum Dialect: String, Sendable, CaseIterable {
    case native, socketio, signalr, sse

    /// The JSON form of a notification that its clients read.
    package var shape: NotificationShape { self == .signalr ? .camelCase : .canonical }

    /// Whether its clients can prove receipt without a call of their own; over which transport is not known here.
    package var canProve: Bool { self != .sse }
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
    /// Since when it has been in its state; nil if it never changed.
    package let stateSince: Timestamp?

    /// How long focus must have been away before somebody counts as idle.
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

    /// Whether nobody looks at it: its client reported that focus had gone, and it has been away for long.
    ///
    /// A connection that has never reported focus is active.
    package func isIdle(at now: Timestamp) -> Bool {
        self.state == .idle && (self.stateSince ?? self.since) + Self.idleAfter <= now
    }
}
