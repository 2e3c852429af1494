// Carillon · Frame.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// A message from the gateway in the native dialect (docs/sockets.md).
enum Frame: Sendable {
    case update(InboxUpdate)
    case event(EphemeralEvent)
    /// The gateway shuts down. Reconnect after this time.
    case goodbye(reconnectAfter: Duration)
    /// The gateway refused a message.
    case error(reason: String)
    /// A message to ignore, such as one that only a newer client knows.
    case other
}

/// A change of the inbox, with its version and unread count after the change.
struct InboxUpdate: Sendable {
    enum Content: Sendable {
        case sync(notifications: [InboxNotification], deleted: [String], isReset: Bool)
        case notification(InboxNotification)
        case read(Subject, at: Date)
        case deleted(Subject)
    }

    /// The notifications that a change affects.
    enum Subject: Sendable {
        case ids(Set<String>)
        /// All up to this version; a deletion affects only those that are read.
        case upTo(version: Int)
    }

    let version: Int
    let unread: Int
    let content: Content

    var isSync: Bool {
        if case .sync = self.content { true } else { false }
    }
}

extension Frame: Decodable {
    private enum Key: String, CodingKey {
        case type, version, unread, notifications, deleted, reset, notification, change, event, reason
        case reconnectAfter = "reconnect_after"
    }

    private struct Change: Decodable {
        let ids: [String]?
        let upToVersion: Int?
        let at: Date

        private enum CodingKeys: String, CodingKey {
            case ids, at
            case upToVersion = "up_to_version"
        }

        var subject: InboxUpdate.Subject {
            // Without ids and a version, the change affects nothing.
            self.ids.map { .ids(Set($0)) } ?? .upTo(version: self.upToVersion ?? -1)
        }
    }

    init(from decoder: any Decoder) throws {
        let members = try decoder.container(keyedBy: Key.self)
        func update(_ content: InboxUpdate.Content) throws -> Frame {
            .update(
                InboxUpdate(
                    version: try members.decode(Int.self, forKey: .version),
                    unread: try members.decode(Int.self, forKey: .unread),
                    content: content))
        }
        switch try members.decode(String.self, forKey: .type) {
        case "sync":
            self = try update(
                .sync(
                    notifications: try members.decode([InboxNotification].self, forKey: .notifications),
                    deleted: try members.decode([String].self, forKey: .deleted),
                    isReset: try members.decode(Bool.self, forKey: .reset)))
        case "notification":
            self = try update(.notification(try members.decode(InboxNotification.self, forKey: .notification)))
        case "read":
            let change = try members.decode(Change.self, forKey: .change)
            self = try update(.read(change.subject, at: change.at))
        case "deleted":
            self = try update(.deleted(try members.decode(Change.self, forKey: .change).subject))
        case "event":
            self = .event(try members.decode(EphemeralEvent.self, forKey: .event))
        case "goodbye":
            let wait = try members.decode(Int.self, forKey: .reconnectAfter)
            self = .goodbye(reconnectAfter: .milliseconds(wait))
        case "error":
            self = .error(reason: try members.decode(String.self, forKey: .reason))
        default:
            self = .other
        }
    }
}

/// A message to the gateway in the native dialect.
enum ClientMessage: Encodable, Sendable {
    /// Extends the login with a fresh token.
    case authenticate(token: String)
    /// Reports whether the user looks at the app.
    case focus(isActive: Bool)

    private enum Key: String, CodingKey {
        case type, token, active
    }

    func encode(to encoder: any Encoder) throws {
        var members = encoder.container(keyedBy: Key.self)
        switch self {
        case .authenticate(let token):
            try members.encode("auth", forKey: .type)
            try members.encode(token, forKey: .token)
        case .focus(let isActive):
            try members.encode("focus", forKey: .type)
            try members.encode(isActive, forKey: .active)
        }
    }
}
