// Carillon · UserExportStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Everything stored about a user, as JSON, in pages.
package struct UserExportStore: Sendable {
    /// A table with at most one row per user.
    package enum Single: String, Sendable, CaseIterable {
        case user = "users"
        case settings = "user_settings"
        case inbox = "inboxes"
        case revocation = "token_revocations"
    }

    /// A table with many rows per user.
    package enum Section: String, Sendable, CaseIterable {
        case devices, preferences, subscriptions, notifications, archived, schedules
        case followUps = "follow_ups"
        case digests
        case digestItems = "digest_items"
        case deliveryAttempts = "delivery_attempts"
        case deadLetters = "dead_letters"
    }

    /// Rows as JSON objects, and the start of the next page; nil after the last one.
    package struct Page: Sendable {
        package let rows: [[UInt8]]
        package let cursor: String?
    }

    private static let pageSize = 100

    let pool: PostgresPool

    /// The user's single rows.
    package func singles(user: String) async throws(PostgresError) -> [Single: [UInt8]] {
        let results = try await self.pool.run(
            Single.allCases.map {
                PostgresStatement(
                    "SELECT to_jsonb(t) - 'user_id' FROM carillon.\($0.rawValue) t WHERE t.user_id = $1", [.text(user)])
            }
        )
        var rows: [Single: [UInt8]] = [:]
        for (single, result) in zip(Single.allCases, results) { rows[single] = try result.first?.optionalJSON(0) }
        return rows
    }

    /// Whether a section has a row about the user.
    package func hasRows(user: String) async throws(PostgresError) -> Bool {
        for section in Section.allCases {
            var cursor: String?
            repeat {
                let page = try await self.page(section, user: user, after: cursor)
                if !page.rows.isEmpty { return true }
                cursor = page.cursor
            } while cursor != nil
        }
        return false
    }

    /// A page of a table, in the order of its key.
    ///
    /// Dead letters and schedules may name several users: they come without the names of others, so
    /// a page may be short or empty without being the last. They may be large, so a page may take
    /// a minute.
    package func page(_ section: Section, user: String, after cursor: String?) async throws(PostgresError) -> Page {
        let result = try await self.pool.query(
            Self.statement(section, isFirst: cursor == nil), .text(user), .text(cursor),
            .int4(clamping: Self.pageSize), timeout: .seconds(60))
        var rows: [[UInt8]] = []
        var last: String?
        for row in result {
            let object = try row.optionalJSON(0) ?? []
            if section == .deadLetters || section == .schedules {
                if let own = Self.excerpt(object, user: user, isOwn: try row.bool(2)) { rows.append(own) }
            } else {
                rows.append(object)
            }
            last = try row.text(1)
        }
        return Page(rows: rows, cursor: result.count == Self.pageSize ? last : nil)
    }

    /// A row with only those `fields` that concern the user; nil if none do.
    private static func excerpt(_ object: [UInt8], user: String, isOwn: Bool) -> [UInt8]? {
        guard let members = (try? JSONParser.parse(stored: object))?.object,
            let fields = members.first(where: { $0.key == "fields" })?.value.array,
            let shown = JobExcerpt.of(fields, user: user, isOwn: isOwn)
        else { return nil }
        return JSONWriter.bytes(
            of: .object(members.map { $0.key == "fields" ? JSONMember("fields", .array(shown)) : $0 }))
    }

    /// $1: user, $2: cursor or null, $3: limit.
    ///
    /// - Parameter isFirst: whether the cursor is null. A generic plan for both could not begin at
    ///   the cursor by index.
    static func statement(_ section: Section, isFirst: Bool) -> String {
        let (key, condition) =
            switch section {
            case .devices, .notifications, .digests, .schedules: ("t.id", "t.id > $2::uuid")
            case .digestItems, .archived: ("t.notification_id", "t.notification_id > $2::uuid")
            case .preferences: ("t.type", "t.type > $2")
            case .subscriptions: ("t.topic", "t.topic > $2")
            case .followUps:
                (
                    "t.notification_id, t.kind",
                    "(t.notification_id, t.kind) > (split_part($2, ' @ ', 1)::uuid, split_part($2, ' @ ', 2))"
                )
            // The audit has no key, but its rows never change, and those of a day share a
            // partition, so `ctid` orders them.
            case .deliveryAttempts:
                (
                    "t.at, t.ctid",
                    "(t.at, t.ctid) > (split_part($2, ' @ ', 1)::timestamptz, split_part($2, ' @ ', 2)::tid)"
                )
            case .deadLetters:
                ("t.stream, t.entry", "(t.stream, t.entry) > (split_part($2, ' @ ', 1), split_part($2, ' @ ', 2))")
            }
        let isOwn = section == .deadLetters ? "false" : "coalesce(t.user_id = $1, false)"
        let mayName = FieldsErasure.mayName("$1", in: "t.fields")
        let owner =
            switch section {
            case .deadLetters: mayName
            case .schedules: "(t.user_id = $1 OR t.user_id IS NULL AND \(mayName))"
            default: "t.user_id = $1"
            }
        let isAfter = isFirst ? "$2::text IS NULL" : condition
        if section == .deadLetters || section == .schedules {
            // Most rows may be for others, and the page bounds how many are unpacked at a time.
            let candidates = section == .schedules ? "(t.user_id = $1 OR t.user_id IS NULL)" : "true"
            return """
                WITH page AS MATERIALIZED (
                    SELECT * FROM carillon.\(section.rawValue) t
                    WHERE \(candidates) AND \(isAfter) ORDER BY \(key) LIMIT $3
                )
                SELECT CASE WHEN \(owner) THEN to_jsonb(t) - 'user_id' END, concat_ws(' @ ', \(key)), \(isOwn)
                FROM page t ORDER BY \(key)
                """
        }
        return """
            SELECT to_jsonb(t) - 'user_id', concat_ws(' @ ', \(key)), \(isOwn) FROM carillon.\(section.rawValue) t
            WHERE \(owner) AND \(isAfter) ORDER BY \(key) LIMIT $3
            """
    }
}

/// The fields of a job or a delivery that concern one user, for that user's export.
///
/// It finds what ``FieldsErasure`` removes and reveals no other user's id.
enum JobExcerpt {
    private enum Part {
        /// The field names no recipients.
        case plain
        /// The field names the user as a recipient or an exclusion; the value is the part to show.
        case recipient(JSONValue)
        case exception(JSONValue)
        /// The field names only others.
        case foreign
    }

    /// The fields without other users' ids; nil if they do not name the user.
    ///
    /// A job that only excludes the user is reduced to the exclusion, because its content is for
    /// others.
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
        guard let name = field.array?.first?.string else { return .plain }
        let value = FieldsColumn.bytes(field.array?.last)
        func isUser(_ text: some Sequence<UInt8>) -> Bool { text.elementsEqual(user.utf8) }
        switch ExactText(name) {
        case "user": return isUser(value) ? .recipient(field) : .foreign
        case "d":
            guard let owner = FieldsErasure.owner(ofDelivery: value) else { return .foreign }
            return isUser(owner) ? .recipient(field) : .foreign
        case "job":
            // It may name others, too.
            guard FieldsErasure.names(user, inJob: value) else { return .foreign }
            return .recipient(.array([.string(name), .null]))
        case "users", "except":
            let shown: JSONValue
            if let users = (try? JSONParser.parse(value))?.strings {
                guard users.contains(where: { isUser($0.utf8) }) else { return .foreign }
                let list = JSONWriter.bytes(of: .array([.string(user)]))
                shown = .string(String(decoding: list, as: UTF8.self))
            } else {
                // A list that cannot be parsed may name others, too.
                guard FieldsErasure.contains(user, in: value) else { return .foreign }
                shown = .null
            }
            let field = JSONValue.array([.string(name), shown])
            return name == "users" ? .recipient(field) : .exception(field)
        default: return .plain
        }
    }
}
