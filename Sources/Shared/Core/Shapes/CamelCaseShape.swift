// Carillon · CamelCaseShape.swift
// SPDX-License-Identifier: Apache-2.0

/// The notification JSON of .NET clients: camelCase, integer types, and `data` as a string of JSON.
///
/// `ReceiveNotification` and the lists of `/api/v1/notifications` use the same object. Its
/// `timeAgo` is computed at `now`, so do not cache the bytes.
package enum CamelCaseShape {
    /// The `type` of a notification whose type has no code.
    private static let noCode = 0

    /// Returns the JSON object.
    ///
    /// - Parameters:
    ///   - code: the type's integer code from the catalog; nil is written as 0.
    ///   - now: the time from which `timeAgo` counts.
    package static func encode(_ notification: Notification, code: Int?, now: Timestamp) -> [UInt8] {
        let content = notification.title.utf8.count + notification.body.utf8.count + (notification.data?.count ?? 0)
        var writer = JSONWriter(capacity: 512 + content)
        self.write(notification, code: code, now: now, to: &writer)
        return writer.bytes
    }

    /// Writes the JSON object as a value.
    package static func write(_ notification: Notification, code: Int?, now: Timestamp, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("id", notification.id.description)
        writer.member("type", code ?? Self.noCode)
        writer.member("typeName", TypeTitle.text(notification.type))
        writer.member("title", notification.title)
        writer.member("body", notification.body)
        writer.member("data", notification.data.map { String(decoding: $0, as: UTF8.self) })
        writer.member("isRead", notification.readAt != nil)
        writer.member("readAt", notification.readAt?.rfc3339)
        writer.member("createdAt", notification.createdAt.rfc3339)
        writer.member("relatedEntityType", notification.entityType)
        writer.key("relatedEntityId")
        // Clients decode it as a UUID; any other text would fail the whole list.
        writer.string(notification.entityID.flatMap { NotificationID($0) == nil ? nil : $0 })
        writer.member("timeAgo", TimeAgo.text(notification.createdAt, now: now))
        writer.endObject()
    }
}

/// A short English age for lists: `just now`, `5m ago`, `3h ago`, `2d ago`, `1w ago`, `4mo ago`,
/// `1y ago`.
enum TimeAgo {
    private static let minute: Int64 = 60
    private static let hour = 60 * Self.minute
    private static let day = 24 * Self.hour
    private static let week = 7 * Self.day
    private static let month = 30 * Self.day
    private static let year = 365 * Self.day

    /// Returns the age of a moment at `now`; future moments are `just now`.
    static func text(_ moment: Timestamp, now: Timestamp) -> String {
        let seconds = (now - moment).components.seconds
        return switch seconds {
        case ..<Self.minute: "just now"
        case ..<Self.hour: "\(seconds / Self.minute)m ago"
        case ..<Self.day: "\(seconds / Self.hour)h ago"
        case ..<Self.week: "\(seconds / Self.day)d ago"
        case ..<Self.month: "\(seconds / Self.week)w ago"
        case ..<Self.year: "\(seconds / Self.month)mo ago"
        default: "\(seconds / Self.year)y ago"
        }
    }
}

/// The readable title of a type.
package enum TypeTitle {
    /// Splits a name into capitalised words: `AllowanceDeposit` and `allowance_deposit` become
    /// `Allowance Deposit`; a run of capitals stays together.
    package static func text(_ name: String) -> String {
        var words: [String] = []
        var word = ""
        let characters = Array(name)
        for (index, character) in characters.enumerated() {
            guard character.isLetter || character.isNumber else {
                words.append(word)
                word = ""
                continue
            }
            let previous = index > 0 ? characters[index - 1] : nil
            let next = index + 1 < characters.count ? characters[index + 1] : nil
            let beginsWord =
                character.isUppercase && (previous?.isUppercase == false || next?.isLowercase == true)
            if beginsWord {
                words.append(word)
                word = ""
            }
            word.append(character)
        }
        words.append(word)
        return words.filter { !$0.isEmpty }.map { $0.prefix(1).uppercased() + $0.dropFirst() }.joined(separator: " ")
    }
}
