// Carillon · JobExcerpt.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What of a job's or a delivery's fields concerns one user, for that user's export.
///
/// It finds what ``DeadLetterErasure`` takes away, and gives away no other user's id.
enum JobExcerpt {
    private enum Part {
        /// It says nothing of recipients.
        case plain
        /// It names the user as a recipient, or as one left out; the value is what may be shown.
        case recipient(JSONValue)
        case exception(JSONValue)
        /// It names others only.
        case foreign
    }

    /// The fields without other users' ids; nil if they do not name the user.
    ///
    /// Of a job that only leaves the user out, that alone: what it says is for others.
    ///
    /// - Parameters:
    ///   - fields: `[[name, value], …]`.
    ///   - isOwn: whether the user is known to be the only recipient.
    static func of(_ fields: [JSONValue], user: String, isOwn: Bool) -> [JSONValue]? {
        var shown: [JSONValue] = []
        var exceptions: [JSONValue] = []
        var isRecipient = isOwn
        for field in fields {
            switch Self.part(field, user: user) {
            case .plain: shown.append(field)
            case .recipient(let field):
                isRecipient = true
                shown.append(field)
            case .exception(let field):
                exceptions.append(field)
                shown.append(field)
            case .foreign: break
            }
        }
        if isRecipient { return shown }
        return exceptions.isEmpty ? nil : exceptions
    }

    private static func part(_ field: JSONValue, user: String) -> Part {
        guard let name = field.array?.first?.string, let value = field.array?.last?.string else { return .plain }
        func isUser(_ text: some StringProtocol) -> Bool { text.utf8.elementsEqual(user.utf8) }
        switch name {
        case "user": return isUser(value) ? .recipient(field) : .foreign
        case "d":
            guard let owner = DeadLetterErasure.owner(ofDelivery: value) else { return .foreign }
            return isUser(owner) ? .recipient(field) : .foreign
        case "users", "except":
            let shown: JSONValue
            if let users = (try? JSONParser.parse(Array(value.utf8)))?.strings {
                guard users.contains(where: { isUser($0) }) else { return .foreign }
                let list = JSONWriter.bytes(of: .array([.string(user)]))
                shown = .string(String(decoding: list, as: UTF8.self))
            } else {
                // A list that nobody can read may name others, too.
                guard value.contains(user) else { return .foreign }
                shown = .null
            }
            let field = JSONValue.array([.string(name), shown])
            return name == "users" ? .recipient(field) : .exception(field)
        default: return .plain
        }
    }
}
