// Carillon · NodeChange.swift
// SPDX-License-Identifier: Apache-2.0

import JSON
package import Model

/// What a node was told about one user: a change of the inbox or an event.
package struct NodeChange: Sendable {
    package enum Kind: Sendable {
        /// The body is the notification's canonical JSON.
        case notification
        /// The body is `{"ids":[…]}` or `{"all":true}`.
        case read
        /// The body is `{"ids":[…]}` or `{"all_read":true}`.
        case deleted
        /// The body is `{"name":…,"args":[…]}`.
        case event
    }

    let user: ExactText
    package let previous: Int64
    /// The inbox version; 0 for an event.
    package let version: Int64
    package let id: NotificationID
    package let awaitingLane: Lane?
    let kind: Kind
    let unread: Int32
    let body: [UInt8]

    package init(
        kind: Kind,
        user: String,
        previous: Int64,
        version: Int64,
        unread: Int32,
        id: NotificationID,
        awaitingLane: Lane?,
        body: [UInt8]
    ) {
        self.kind = kind
        self.user = ExactText(user)
        self.previous = previous
        self.version = version
        self.unread = unread
        self.id = id
        self.awaitingLane = awaitingLane
        self.body = body
    }

    var isNotification: Bool { self.kind == .notification }
}
