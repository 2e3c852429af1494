// Carillon · NodeChange.swift
// SPDX-License-Identifier: Apache-2.0

import JSON
package import Model
import NIOCore

/// What a node was told about one user: a change of the inbox or an event, encoded once for all of the user's sockets.
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
    let isNotification: Bool
    /// The WebSocket frame of the native dialect.
    let nativeFrame: ByteBuffer

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
        self.user = ExactText(user)
        self.previous = previous
        self.version = version
        self.id = id
        self.awaitingLane = awaitingLane
        self.isNotification = kind == .notification
        let json =
            switch kind {
            case .notification: NativeDialect.notification(body, version: version, unread: unread)
            case .read: NativeDialect.change("read", body, version: version, unread: unread)
            case .deleted: NativeDialect.change("deleted", body, version: version, unread: unread)
            case .event: NativeDialect.event(body)
            }
        var frame = ByteBufferAllocator().buffer(capacity: json.count + 10)
        WebSocketFraming.writeText(json, to: &frame)
        self.nativeFrame = frame
    }
}
