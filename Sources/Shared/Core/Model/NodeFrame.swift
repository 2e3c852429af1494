// Carillon · NodeFrame.swift
// SPDX-License-Identifier: Apache-2.0

/// A frame for the sockets of a user: a change of the inbox or an event.
package struct NodeFrame: Sendable, Equatable {
    package enum Kind: UInt8, Sendable {
        /// The body is the notification's canonical JSON.
        case notification = 1
        /// The body is `{"ids":[…]}` or `{"all":true,"up_to_version":N}`.
        case read = 2
        /// The body is `{"ids":[…]}` or `{"all_read":true,"up_to_version":N}`.
        case deleted = 3
        /// The body is `{"name":…,"args":[…]}`.
        case event = 4
    }

    package var kind: Kind
    /// Empty in an event for everyone.
    package var user: ExactText
    /// The inbox version before this change; 0 for an event.
    package var previous: Int64
    /// The inbox version of this change; 0 for an event and for a notification that is not listed.
    package var version: Int64
    /// The unread count after this change.
    package var unread: Int32
    /// The lane of the push that a proof of receipt prevents; nil if no push waits for a proof.
    package var awaitingLane: Lane?
    /// The notification's id; zero for the other kinds.
    package var id: NotificationID
    package var body: [UInt8]
    /// The notification in camelCase, if the user's connections need it; empty otherwise.
    package var camelCaseBody: [UInt8]
    /// The users excluded from an event for everyone; nil if the frame is for `user`.
    package var everyoneBut: Set<ExactText>?

    /// Returns the frame of notifications that were read or deleted together.
    ///
    /// - Parameters:
    ///   - version: the inbox version of the change, one more than before it.
    ///   - isBulk: whether a client sent the ids as a list.
    package static func change(
        _ kind: Kind,
        user: String,
        version: Int64,
        unread: Int32,
        _ subject: InboxChangeShape.Subject,
        isBulk: Bool = false,
        at: Timestamp
    ) -> NodeFrame {
        NodeFrame(
            kind: kind, user: user, previous: version - 1, version: version, unread: unread,
            body: InboxChangeShape.encode(subject, isBulk: isBulk, at: at))
    }

    package init(
        kind: Kind,
        user: String,
        previous: Int64 = 0,
        version: Int64 = 0,
        unread: Int32 = 0,
        awaitingLane: Lane? = nil,
        id: NotificationID = NotificationID(high: 0, low: 0),
        body: [UInt8],
        camelCaseBody: [UInt8] = [],
        everyoneBut: Set<ExactText>? = nil
    ) {
        self.kind = kind
        self.user = ExactText(user)
        self.previous = previous
        self.version = version
        self.unread = unread
        self.awaitingLane = awaitingLane
        self.id = id
        self.body = body
        self.camelCaseBody = camelCaseBody
        self.everyoneBut = everyoneBut
    }
}
