// Carillon · PushShape.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The data keys that an app's clients read in a push.
package struct PushShape: Sendable, Equatable {
    /// The source of a key's value.
    package enum Source: Sendable, Equatable {
        case id, type, code, severity, category, entityType, entityID, url, image, org, collapseKey, createdAt, version
        /// The inbox version of the badge.
        case badgeVersion
        /// A member of the notification's data.
        case data(String)
        /// A constant text.
        case text(String)
    }

    /// A key of the push data, and the sources of its value.
    package struct Member: Sendable, Equatable {
        let key: String
        /// The first source with a value supplies it.
        let sources: [Source]

        package init(_ key: String, _ sources: [Source]) {
            self.key = key
            self.sources = sources
        }
    }

    let members: [Member]
    /// Whether the other members of the notification's data are included.
    let hasData: Bool

    package init(_ members: [Member], hasData: Bool) {
        self.members = members
        self.hasData = hasData
    }

    /// The shape of apps that set none.
    package static let standard = PushShape(
        [Member("notification_id", [.id]), Member("type", [.type]), Member("url", [.url])], hasData: true)

    /// Returns the data of a message: the shape's keys with a value, then the rest of the
    /// notification's data.
    func data(of message: PushMessage) -> [JSONMember] {
        let own = message.dataMembers
        var members: [JSONMember] = []
        members.reserveCapacity(self.members.count + own.count)
        for member in self.members {
            for source in member.sources {
                guard let value = self.value(of: source, message, own) else { continue }
                members.append(JSONMember(member.key, value))
                break
            }
        }
        guard self.hasData else { return members }
        let shaped = members.count
        for member in own where !members[..<shaped].contains(where: { ExactText($0.key) == ExactText(member.key) }) {
            members.append(member)
        }
        return members
    }

    /// Returns only the keys that identify the notification, for when nothing else fits.
    func essentials(of message: PushMessage) -> [JSONMember] {
        let essential = PushShape(self.members.filter(\.isEssential), hasData: false)
        return essential.data(of: message)
    }

    /// Returns the data of a retraction: the keys of ``essentials(of:)``, the screen name, and the
    /// creation time, by which a client recognises a newer notification under that name.
    ///
    /// - Parameter name: the name that the job set; nil for the message's own.
    func retraction(of message: PushMessage, name: String? = nil) -> [JSONMember] {
        let own = [
            JSONMember("retract", .string(name ?? message.screenName)),
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
    /// Whether the client can find the notification by this key.
    var isEssential: Bool {
        self.sources.contains { source in
            switch source {
            case .id, .type, .code, .entityID, .entityType: true
            default: false
            }
        }
    }
}

extension PushShape {
    /// Parses the shape of an app's settings: keys, each with its sources.
    ///
    /// - Throws: ``CredentialFault`` that names the key.
    package init(members: [(key: String, sources: [String])]) throws(CredentialFault) {
        var list: [Member] = []
        var hasData = false
        for (key, texts) in members {
            if key == "*", texts == ["data"] {
                hasData = true
                continue
            }
            var sources: [Source] = []
            for text in texts {
                guard let source = Source(text) else {
                    let names = Source.names.joined(separator: ", ")
                    throw CredentialFault(
                        "\(key): unknown source \(text); use one of \(names), data.NAME or =TEXT", setting: "shape")
                }
                sources.append(source)
            }
            list.append(Member(key, sources))
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
