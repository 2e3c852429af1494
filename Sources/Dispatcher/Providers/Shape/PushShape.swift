// Carillon · PushShape.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Which data keys the clients of an app read in a push.
package struct PushShape: Sendable, Equatable {
    /// Where a key's value comes from.
    package enum Source: Sendable, Equatable {
        case id, type, code, severity, category, entityType, entityID, url, image, org, collapseKey, createdAt, version
        /// The inbox version of the badge.
        case badgeVersion
        /// A member of the notification's data.
        case data(String)
        /// Always the same text.
        case text(String)
    }

    package struct Member: Sendable, Equatable {
        package let key: String
        package let source: Source
        /// Whether a member of the notification's data with this key comes first.
        package let yieldsToData: Bool

        package init(_ key: String, _ source: Source, yieldsToData: Bool = false) {
            self.key = key
            self.source = source
            self.yieldsToData = yieldsToData
        }
    }

    package let members: [Member]
    /// Whether the members of the notification's data that no key has the name of go along.
    package let hasData: Bool

    package init(_ members: [Member], hasData: Bool) {
        self.members = members
        self.hasData = hasData
    }

    /// What each app gets that names none.
    package static let standard = PushShape(
        [Member("notification_id", .id), Member("type", .type), Member("url", .url)], hasData: true)

    /// The shapes that have a name: one for the clients of each known system.
    ///
    /// A key that the system's back-end put into its data yields to the job's data.
    package static let named: [String: PushShape] = [
        "standard": .standard,
        // A page and apps on Socket.IO open a notification by its id.
        "socketio-hybrid": .standard,
        // A news app opens a story.
        "breaking-news": PushShape(
            [
                Member("storyId", .entityID, yieldsToData: true), Member("category", .category, yieldsToData: true),
                Member("notification_id", .id), Member("type", .type),
            ],
            hasData: true
        ),
        // A family's app opens what the notification is about.
        "allowance": PushShape(
            [
                Member("notificationId", .id), Member("type", .code),
                Member("relatedEntityType", .entityType, yieldsToData: true),
                Member("relatedEntityId", .entityID, yieldsToData: true),
            ],
            hasData: true
        ),
        // A household's app shows buttons by category on iOS and by `actions` on Android.
        "task-reminders": PushShape(
            [
                Member("notification_id", .id), Member("type", .type),
                Member("task_id", .entityID, yieldsToData: true), Member("url", .url),
            ],
            hasData: true
        ),
        // A baby log follows a route.
        "edge-scheduler": PushShape(
            [
                Member("notification_id", .id), Member("type", .type),
                Member("category", .category, yieldsToData: true), Member("deeplink", .url, yieldsToData: true),
            ],
            hasData: true
        ),
    ]

    /// The data of a message: the shape's keys that have a value, then what else the notification's data holds.
    func data(of message: PushMessage) -> [JSONMember] {
        let own = message.dataMembers
        var members: [JSONMember] = []
        for member in self.members {
            let said = member.yieldsToData ? own.first { ExactText($0.key) == ExactText(member.key) }?.value : nil
            guard let value = said ?? self.value(of: member.source, message, own) else { continue }
            members.append(JSONMember(member.key, value))
        }
        guard self.hasData else { return members }
        let taken = Set(members.map { ExactText($0.key) })
        return members + own.filter { !taken.contains(ExactText($0.key)) }
    }

    /// The keys that name the notification, which go along when there is room for nothing else.
    func essentials(of message: PushMessage) -> [JSONMember] {
        let essential = PushShape(self.members.filter(\.isEssential), hasData: false)
        return essential.data(of: message)
    }

    /// What names a notification that is to be taken off the screen: the keys of ``essentials(of:)``, the name under which
    /// it is shown, and by what a client tells it from one that has taken its place under that name.
    func retraction(of message: PushMessage) -> [JSONMember] {
        let own = [
            JSONMember("retract", .string(message.screenName)),
            JSONMember("notification_id", .string(message.notification.id.description)),
            JSONMember("created_at", .string(message.notification.createdAt.rfc3339)),
        ]
        let taken = Set(own.map { ExactText($0.key) })
        return self.essentials(of: message).filter { !taken.contains(ExactText($0.key)) } + own
    }

    private func value(of source: Source, _ message: PushMessage, _ data: [JSONMember]) -> JSONValue? {
        let notification = message.notification
        return switch source {
        case .id: .string(notification.id.description)
        case .type: .string(notification.type)
        case .code: message.code.map { .number(String($0)) } ?? .string(notification.type)
        case .severity: .string(notification.severity.rawValue)
        case .category: notification.category.map { .string($0) }
        case .entityType: notification.entityType.map { .string($0) }
        case .entityID: notification.entityID.map { .string($0) }
        case .url: notification.extras.url.map { .string($0) }
        case .image: notification.extras.image.map { .string($0) }
        case .org: notification.org.isEmpty ? nil : .string(notification.org)
        case .collapseKey: notification.collapseKey.map { .string($0) }
        case .createdAt: .string(notification.createdAt.rfc3339)
        case .version: .number(String(notification.version))
        case .badgeVersion: message.badgeVersion.map { .number(String($0)) }
        case .data(let key): data.first { ExactText($0.key) == ExactText(key) }?.value
        case .text(let text): .string(text)
        }
    }
}

extension PushShape.Member {
    /// Whether the client can find the notification by it.
    var isEssential: Bool {
        switch self.source {
        case .id, .type, .code, .entityID, .entityType: true
        default: false
        }
    }
}

extension PushShape {
    /// Reads a shape as an app's settings give it: keys and sources.
    ///
    /// - Throws: ``CredentialFault`` that names the key at fault.
    package init(members: [(key: String, source: String)]) throws(CredentialFault) {
        var list: [Member] = []
        var hasData = false
        for (key, text) in members {
            if key == "*", text == "data" {
                hasData = true
                continue
            }
            guard let source = Source(text) else {
                throw CredentialFault(
                    "\(key): no such source as \(text); one of \(Source.names.joined(separator: ", ")), data.NAME or =TEXT",
                    setting: "shape"
                )
            }
            list.append(Member(key, source))
        }
        self.init(list, hasData: hasData)
    }
}

extension PushShape.Source {
    private static let plain: [(name: String, source: PushShape.Source)] = [
        ("notification_id", .id), ("type", .type), ("code", .code), ("severity", .severity), ("category", .category),
        ("entity_type", .entityType), ("entity_id", .entityID), ("url", .url), ("image", .image), ("org", .org),
        ("collapse_key", .collapseKey), ("created_at", .createdAt), ("version", .version),
        ("badge_version", .badgeVersion),
    ]

    static var names: [String] { self.plain.map(\.name) }

    init?(_ text: String) {
        if let found = Self.plain.first(where: { $0.name == text }) {
            self = found.source
        } else if text.hasPrefix("data."), text.count > 5 {
            self = .data(String(text.dropFirst(5)))
        } else if text.hasPrefix("=") {
            self = .text(String(text.dropFirst()))
        } else {
            return nil
        }
    }
}
