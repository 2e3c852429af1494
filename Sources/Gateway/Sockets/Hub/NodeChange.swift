// Carillon · NodeChange.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What a node was told about one user: a change of the inbox or an event.
package struct NodeChange: Sendable {
    package enum Kind: Sendable {
        /// The body is the notification's JSON.
        case notification
        /// The body is `{"ids":[…]}` or `{"all":true,"up_to_version":N}`.
        case read
        /// The body is `{"ids":[…]}` or `{"all_read":true,"up_to_version":N}`.
        case deleted
        /// The body is `{"name":…,"args":[…]}`.
        case event
    }

    /// A notification's JSON, or what else happened.
    package struct Body: Sendable {
        let canonical: [UInt8]
        /// Empty if no connection of the user's needed it when this was published.
        let camelCase: [UInt8]

        package init(canonical: [UInt8], camelCase: [UInt8] = []) {
            self.canonical = canonical
            self.camelCase = camelCase
        }
    }

    let user: ExactText
    package let previous: Int64
    /// The inbox version; 0 for an event.
    package let version: Int64
    package let id: NotificationID
    package let awaitingLane: Lane?
    let kind: Kind
    let unread: Int32
    let body: Body
    /// Who does not get what all others get; nil for a change that is for its user alone.
    let everyoneBut: Set<ExactText>?

    package init(
        kind: Kind,
        user: String,
        previous: Int64,
        version: Int64,
        unread: Int32,
        id: NotificationID,
        awaitingLane: Lane?,
        body: Body,
        everyoneBut: Set<ExactText>? = nil
    ) {
        self.kind = kind
        self.user = ExactText(user)
        self.previous = previous
        self.version = version
        self.unread = unread
        self.id = id
        self.awaitingLane = awaitingLane
        self.body = body
        self.everyoneBut = everyoneBut
    }

    /// Whether a dialect can tell it with what came along.
    ///
    /// What a dialect lacks is in the inbox, and was there before the connection that needs it was known.
    func isComplete(for dialect: Dialect) -> Bool {
        self.kind != .notification || dialect.shape == .canonical || !self.body.camelCase.isEmpty
    }

    var isNotification: Bool { self.kind == .notification }
}
