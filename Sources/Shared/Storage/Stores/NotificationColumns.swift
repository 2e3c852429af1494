// Carillon · NotificationColumns.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// A column of `carillon.notifications`, as data.
///
/// The INSERT with its `unnest` parameters, the SELECTs, the digests' table and the decoding
/// follow from ``all``. A new column is a line there and one in the migration. A column of digests'
/// items also needs one of `digest_items` in the migration, and a line in `DigestStore.alone`.
struct NotificationColumn: Sendable {
    /// The lists that contain a column.
    struct Uses: OptionSet {
        let rawValue: Int

        /// Identifies the row; stands first in every list.
        static let key = Self(rawValue: 1)
        /// Has its value when the notification is stored.
        static let insert = Self(rawValue: 2)
        /// A push or a mail needs it.
        static let message = Self(rawValue: 4)
        /// A page of the inbox needs it; implied by ``NotificationColumn/field``.
        static let page = Self(rawValue: 8)
        /// A column of `digest_items`.
        static let item = Self(rawValue: 16)
    }

    let name: String
    let type: PostgresType
    /// The field of ``InboxRow`` that shows it.
    let field: NotificationField?
    let uses: Uses
    /// Appends the value of each notification to the column's parameter.
    ///
    /// It takes all at once, because a loop that passes each notification to a closure copies it.
    let append: @Sendable (_ notifications: [Notification], _ array: inout PostgresArray) -> Void
    /// Reads the column at an index of a row into a notification.
    let read:
        @Sendable (_ row: PostgresRow, _ index: Int, _ notification: inout Notification) throws(PostgresError) -> Void

    /// All columns that are decoded.
    ///
    /// The columns of `digest_items` are in the order of that table.
    static let all: [NotificationColumn] = [
        NotificationColumn(
            name: "user_id", type: .text, field: nil, uses: .key, append: { for one in $0 { $1.append(one.user) } },
            read: { _, _, _ in }),
        NotificationColumn(
            name: "id", type: .uuid, field: .id, uses: .key,
            append: { for one in $0 { $1.append(uuid: one.id.halves) } }, read: { _, _, _ in }),
        NotificationColumn(
            name: "version", type: .int8, field: .version, uses: .message,
            append: { for one in $0 { $1.append(int8: one.version) } },
            read: { (row, index, notification) throws(PostgresError) in notification.version = try row.int8(index) }),
        .text("job_entry", [.insert, .message, .item], { $0.jobEntry }, { $0.jobEntry = $1 }),
        .text("org_id", as: .org, [.insert, .message, .item], { $0.org }, { $0.org = $1 }),
        .optionalText("job_id", [.insert, .message, .item], { $0.jobID }, { $0.jobID = $1 }),
        .text("type", as: .type, [.insert, .message, .item], { $0.type }, { $0.type = $1 }),
        .word("severity", as: .severity, [.insert, .message, .item], { $0.severity }, { $0.severity = $1 }),
        .word("delivery", as: .delivery, [.insert, .item], { $0.delivery }, { $0.delivery = $1 }),
        .word("lane", [.insert, .message], { $0.lane }, { $0.lane = $1 }),
        NotificationColumn(
            name: "channels", type: .int4, field: nil, uses: [.insert, .message, .item],
            append: { for one in $0 { $1.append(int4: Int32(one.channels.rawValue)) } },
            read: { (row, index, notification) throws(PostgresError) in
                notification.channels = Channels(rawValue: UInt8(truncatingIfNeeded: try row.int4(index)))
            }),
        .text("title", as: .title, [.insert, .message, .item], { $0.title }, { $0.title = $1 }),
        .text("body", as: .body, [.insert, .message, .item], { $0.body }, { $0.body = $1 }),
        .json("data", as: .data, [.insert, .message, .item], { $0.data }, { $0.data = $1 }),
        .json(
            "extras", [.insert, .message, .page, .item], { ExtrasColumn.json($0.extras) },
            { $0.extras = $1.map { ExtrasColumn.extras($0) } ?? NotificationExtras() }),
        .optionalText("category", as: .category, [.insert, .message, .item], { $0.category }, { $0.category = $1 }),
        .optionalText(
            "entity_type", as: .entityType, [.insert, .message, .item], { $0.entityType }, { $0.entityType = $1 }),
        .optionalText("entity_id", as: .entityID, [.insert, .message, .item], { $0.entityID }, { $0.entityID = $1 }),
        .optionalText(
            "collapse_key", as: .collapseKey, [.insert, .message, .item], { $0.collapseKey }, { $0.collapseKey = $1 }),
        .word("status", [.insert, .message], { $0.status }, { $0.status = $1 }),
        .optionalText("status_reason", [.insert, .message], { $0.statusReason }, { $0.statusReason = $1 }),
        .moment(
            "created_at", as: .createdAt, [.insert, .message], { $0.createdAt }, { $0.createdAt = $1 ?? $0.createdAt }),
        .moment("delivered_at", [], { $0.deliveredAt }, { $0.deliveredAt = $1 }),
        .moment("opened_at", [], { $0.openedAt }, { $0.openedAt = $1 }),
        .moment("read_at", as: .readAt, .message, { $0.readAt }, { $0.readAt = $1 }),
        .moment("expires_at", as: .expiresAt, [.insert, .message, .item], { $0.expiresAt }, { $0.expiresAt = $1 }),
        .moment("keep_until", [.insert, .message, .item], { $0.keepUntil }, { $0.keepUntil = $1 }),
        .moment("deleted_at", [.message, .page], { $0.deletedAt }, { $0.deletedAt = $1 }),
        .optionalText("decision", as: .heldBack, [], { $0.decision }, { $0.decision = $1 }),
    ]

    /// The column of an alias, as a type that ``PostgresRow`` reads.
    func expression(of alias: String) -> String {
        // `channels` is a smallint.
        self.type == .int4 ? "\(alias).\(self.name)::int4" : "\(alias).\(self.name)"
    }
}

extension NotificationColumn {
    private static func text(
        _ name: String,
        as field: NotificationField? = nil,
        _ uses: Uses,
        _ get: @escaping @Sendable (Notification) -> String,
        _ set: @escaping @Sendable (inout Notification, String) -> Void
    ) -> NotificationColumn {
        NotificationColumn(
            name: name, type: .text, field: field, uses: uses, append: { for one in $0 { $1.append(get(one)) } },
            read: { (row, index, notification) throws(PostgresError) in set(&notification, try row.text(index)) })
    }

    private static func optionalText(
        _ name: String,
        as field: NotificationField? = nil,
        _ uses: Uses,
        _ get: @escaping @Sendable (Notification) -> String?,
        _ set: @escaping @Sendable (inout Notification, String?) -> Void
    ) -> NotificationColumn {
        NotificationColumn(
            name: name, type: .text, field: field, uses: uses, append: { for one in $0 { $1.append(get(one)) } },
            read: { (row, index, notification) throws(PostgresError) in
                set(&notification, try row.optionalText(index))
            })
    }

    /// A word of an enumeration.
    ///
    /// A null, or a word of a newer release, leaves the default.
    private static func word<Word: RawRepresentable<String> & SendableMetatype>(
        _ name: String,
        as field: NotificationField? = nil,
        _ uses: Uses,
        _ get: @escaping @Sendable (Notification) -> Word,
        _ set: @escaping @Sendable (inout Notification, Word) -> Void
    ) -> NotificationColumn {
        NotificationColumn(
            name: name, type: .text, field: field, uses: uses,
            append: { for one in $0 { $1.append(get(one).rawValue) } },
            read: { (row, index, notification) throws(PostgresError) in
                if let word = try row.optionalText(index).flatMap({ Word(rawValue: $0) }) { set(&notification, word) }
            })
    }

    private static func json(
        _ name: String,
        as field: NotificationField? = nil,
        _ uses: Uses,
        _ get: @escaping @Sendable (Notification) -> [UInt8]?,
        _ set: @escaping @Sendable (inout Notification, [UInt8]?) -> Void
    ) -> NotificationColumn {
        NotificationColumn(
            name: name, type: .jsonb, field: field, uses: uses, append: { for one in $0 { $1.append(json: get(one)) } },
            read: { (row, index, notification) throws(PostgresError) in
                set(&notification, try row.optionalJSON(index))
            })
    }

    private static func moment(
        _ name: String,
        as field: NotificationField? = nil,
        _ uses: Uses,
        _ get: @escaping @Sendable (Notification) -> Timestamp?,
        _ set: @escaping @Sendable (inout Notification, Timestamp?) -> Void
    ) -> NotificationColumn {
        NotificationColumn(
            name: name, type: .timestamptz, field: field, uses: uses,
            append: { for one in $0 { $1.append(timestamptz: get(one)?.microseconds) } },
            read: { (row, index, notification) throws(PostgresError) in
                set(&notification, try row.optionalTimestamp(index))
            })
    }
}

/// Some columns of `carillon.notifications`, in an order.
struct NotificationColumns: Sendable {
    let columns: [NotificationColumn]

    /// All that a notification holds.
    static let all = Self(NotificationColumn.all)
    /// The columns that a job's notification is stored with; the version follows from its inbox.
    static let inserted = Self(uses: [.key, .insert])
    /// The columns that a message is made from.
    static let message = Self(uses: [.key, .message])
    /// The columns of `digest_items`, in the order of the table and without the key.
    static let item = Self(uses: .item)
    /// The columns with which an item is gathered.
    static let gathered = Self(
        NotificationColumn.all.filter { column in
            column.name == "lane" || !column.uses.isDisjoint(with: [.key, .item])
        })

    /// ``all`` and ``message`` of an alias `n`.
    static let list = Self.all.list(of: "n")
    static let messageList = Self.message.list(of: "n")

    private init(_ columns: [NotificationColumn]) {
        self.columns = columns
    }

    private init(uses: NotificationColumn.Uses) {
        self.columns = NotificationColumn.all.filter { !$0.uses.isDisjoint(with: uses) }
    }

    var count: Int { self.columns.count }

    /// The names, for an INSERT and for the alias of an `unnest`.
    var names: String { self.columns.map(\.name).joined(separator: ", ") }

    /// The columns of an alias; `replacing` has other expressions for some of them.
    func list(of alias: String, replacing: [String: String] = [:]) -> String {
        self.columns.map { replacing[$0.name] ?? $0.expression(of: alias) }.joined(separator: ", ")
    }

    // MARK: Parameters

    /// `$1` to `$n` for ``arrays(_:)``.
    var parameters: String { (1...self.count).map { "$\($0)" }.joined(separator: ", ") }

    /// The parameter of one column.
    func parameter(_ name: String) -> String {
        guard let index = self.columns.firstIndex(where: { $0.name == name }) else {
            preconditionFailure("no column \(name)")
        }
        return "$\(index + 1)"
    }

    /// An array for each column, with a value for each notification.
    func arrays(_ notifications: [Notification]) -> [PostgresValue] {
        self.columns.map { column in
            var array = PostgresArray(column.type, capacity: notifications.count)
            column.append(notifications, &array)
            return .array(array)
        }
    }

    // MARK: Rows

    func read(_ result: PostgresResult) throws(PostgresError) -> [Notification] {
        try result.map { (row) throws(PostgresError) in try self.read(row) }
    }

    /// Reads a notification whose columns, the key first, begin at `first`.
    func read(_ row: PostgresRow, at first: Int = 0) throws(PostgresError) -> Notification {
        var notification = Notification(
            id: try row.id(first + 1), user: try row.text(first), type: "",
            createdAt: Timestamp(microseconds: 0))
        try self.read(row, at: first, into: &notification)
        return notification
    }

    /// Reads the columns into a notification; the key stays.
    func read(_ row: PostgresRow, at first: Int, into notification: inout Notification) throws(PostgresError) {
        for index in self.columns.indices { try self.columns[index].read(row, first + index, &notification) }
    }
}

/// A notification of a page, written as JSON straight from PostgreSQL's answer.
package struct InboxRow: NotificationFields, Sendable {
    /// How a field is written.
    private enum Form {
        case id, text, json, integer, moment
        /// A text whose absence is stored as an empty one.
        case emptyText
        case extra(@Sendable (NotificationExtras) -> String?)
    }

    private static let columns = NotificationColumn.all.filter { $0.field != nil || $0.uses.contains(.page) }

    /// The index and the form of each field, by its raw value.
    private static let layout = NotificationField.allCases.map { field -> (index: Int, form: Form) in
        switch field {
        case .url: return (Self.extras, .extra { $0.url })
        case .image: return (Self.extras, .extra { $0.image })
        default:
            guard let index = Self.columns.firstIndex(where: { $0.field == field }) else {
                preconditionFailure("no column for \(field)")
            }
            switch Self.columns[index].type {
            case .text where field == .org: return (index, .emptyText)
            case .uuid: return (index, .id)
            case .jsonb: return (index, .json)
            case .int8: return (index, .integer)
            case .timestamptz: return (index, .moment)
            default: return (index, .text)
            }
        }
    }

    private static let extras = Self.index(of: "extras")
    private static let deletedAt = Self.index(of: "deleted_at")

    private static func index(of name: String) -> Int {
        guard let index = Self.columns.firstIndex(where: { $0.name == name }) else {
            preconditionFailure("no column \(name)")
        }
        return index
    }

    /// The columns of an alias.
    static func list(of alias: String) -> String {
        Self.columns.map { $0.expression(of: alias) }.joined(separator: ", ")
    }

    /// A null for each column.
    static let nulls = Self.columns.map { "NULL::\($0.type)" }.joined(separator: ", ")

    package let id: NotificationID
    private let row: PostgresRow
    private let first: Int

    /// Takes a row whose columns begin at `first`.
    init(_ row: PostgresRow, at first: Int) throws(PostgresError) {
        self.id = try row.id(first + Self.layout[NotificationField.id.rawValue].index)
        self.row = row
        self.first = first
    }

    package var isDeleted: Bool { !self.row.isNull(self.first + Self.deletedAt) }

    package func write(_ field: NotificationField, to writer: inout JSONWriter) throws(PostgresError) {
        let (index, form) = Self.layout[field.rawValue]
        let column = self.first + index
        switch form {
        case .id: self.id.write(to: &writer)
        case .integer: writer.integer(try self.row.int8(column))
        case .text:
            try self.row.withBytes(column) { text in
                if let text { writer.string(utf8: text) } else { writer.null() }
            }
        case .emptyText:
            try self.row.withBytes(column) { text in
                if let text, !text.isEmpty { writer.string(utf8: text) } else { writer.null() }
            }
        case .json:
            try self.row.withBytes(column) { json in
                guard let json else { return writer.raw("{}") }
                // The first byte is the version of the format.
                writer.raw(bytes: UnsafeRawBufferPointer(rebasing: json.dropFirst()))
            }
        case .moment:
            if let moment = try self.row.optionalTimestamp(column) {
                moment.write(to: &writer)
            } else {
                writer.null()
            }
        case .extra(let value):
            writer.string(try self.row.optionalJSON(column).flatMap { value(ExtrasColumn.extras($0)) })
        }
    }
}

/// The column `extras`: a JSON object of the fields that most notifications lack.
enum ExtrasColumn {
    static func json(_ extras: NotificationExtras) -> [UInt8]? {
        guard !extras.isEmpty else { return nil }
        var writer = JSONWriter()
        writer.beginObject()
        if let url = extras.url {
            writer.member("url", url)
        }
        if let image = extras.image {
            writer.member("image", image)
        }
        if let sound = extras.sound {
            writer.member("sound", sound)
        }
        if let badge = extras.badge {
            writer.member("badge", badge)
        }
        if let priority = extras.pushPriority {
            writer.member("push_priority", priority.rawValue)
        }
        if let state = extras.state {
            writer.member("state", state)
        }
        if let platform = extras.platform {
            writer.key("platform")
            writer.raw(platform)
        }
        if let traceParent = extras.traceParent {
            writer.member("traceparent", traceParent)
        }
        writer.endObject()
        return writer.bytes
    }

    static func extras(_ json: [UInt8]) -> NotificationExtras {
        var extras = NotificationExtras()
        guard let value = try? JSONParser.parse(stored: json) else { return extras }
        extras.url = value["url"]?.string
        extras.image = value["image"]?.string
        extras.sound = value["sound"]?.string
        extras.badge = value["badge"]?.integer
        extras.pushPriority = value["push_priority"]?.string.flatMap { PushPriority(rawValue: $0) }
        extras.state = value["state"]?.string
        extras.platform = value["platform"].map { JSONWriter.bytes(of: $0) }
        extras.traceParent = value["traceparent"]?.string
        return extras
    }
}
