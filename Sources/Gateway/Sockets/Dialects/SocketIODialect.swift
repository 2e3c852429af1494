// Carillon · SocketIODialect.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols

/// The Socket.IO dialect: events with one object as their argument, and acknowledgements, encoded
/// and decoded without a channel.
enum SocketIODialect {
    private static let maximumIDs = 1_000

    /// A client's event.
    enum Request: Equatable {
        /// Asks for a user's inbox, which every session gets anyway.
        case subscribe(user: String)
        case message(ClientMessage)
    }

    /// An event for the client, with its argument in JSON, or several separated by commas.
    struct Event: Equatable {
        let name: String
        let arguments: [UInt8]
    }

    // MARK: From clients

    /// Decodes an event.
    ///
    /// - Throws: ``ClientFault``, which names the field.
    static func decode(_ name: SocketIOEventName, _ arguments: [SocketIOValue]) throws(ClientFault) -> Request {
        guard case .text(let name) = name else { throw Self.unknownEvent }
        let argument = try Self.argument(arguments.first)
        switch name {
        case "subscribe":
            guard let user = argument["user_id"]?.string else { throw Self.fault("user_id must be a string") }
            return .subscribe(user: user)
        case "resync":
            switch argument["last_sync_at"] {
            case nil, .null, .string, .number: return .message(.resync)
            default: throw Self.fault("last_sync_at must be a time")
            }
        case "mark_read":
            guard let id = argument["notification_id"]?.string.flatMap({ NotificationID($0) }) else {
                throw Self.fault("notification_id must be a notification id")
            }
            return .message(.read(ids: [id]))
        case "bulk_read":
            guard let texts = argument["notification_ids"]?.strings, texts.count <= Self.maximumIDs else {
                throw Self.fault("notification_ids must be an array of 0 to \(Self.maximumIDs) notification ids")
            }
            let ids = texts.compactMap { NotificationID($0) }
            guard ids.count == texts.count else {
                throw Self.fault("notification_ids must hold notification ids")
            }
            return .message(.read(ids: ids, isBulk: true))
        case "get_unread_count": return .message(.unread)
        default: throw Self.unknownEvent
        }
    }

    private static let unknownEvent = Self.fault(
        "the event must be one of subscribe, resync, mark_read, bulk_read, get_unread_count"
    )

    private static func fault(_ reason: String) -> ClientFault { ClientFault(reason: reason, reference: nil) }

    /// The argument's object; an empty one if there is no argument.
    private static func argument(_ value: SocketIOValue?) throws(ClientFault) -> JSONValue {
        switch value {
        case nil, .json(.null): return .object([])
        case .json(let json) where json.object != nil: return json
        default: throw Self.fault("the argument must be a JSON object")
        }
    }

    // MARK: To clients

    /// Encodes a change as an event; nil for an app's event with a reserved name.
    static func event(_ change: NodeFrame) -> Event? {
        switch change.kind {
        case .notification: Event(name: "notification", arguments: change.body)
        case .read: Self.read(change)
        case .deleted: Self.deleted(change)
        case .event: Self.appEvent(change.body)
        }
    }

    private static func read(_ change: NodeFrame) -> Event? {
        guard let body = try? JSONParser.parse(change.body) else { return nil }
        guard let ids = body["ids"]?.strings else { return Self.all("notifications_bulk_read", "all", body) }
        guard let id = ids.first, ids.count == 1, body["bulk"]?.bool != true else {
            return Self.object("notifications_bulk_read", ids: ids)
        }
        return Self.read(id, at: body["at"]?.string)
    }

    private static func read(_ id: String, at moment: String?) -> Event {
        Self.object("notification_read") { writer in
            writer.member("notification_id", id)
            writer.member("read_at", moment)
        }
    }

    private static func deleted(_ change: NodeFrame) -> Event? {
        guard let body = try? JSONParser.parse(change.body) else { return nil }
        guard let ids = body["ids"]?.strings else { return Self.all("notifications_deleted", "all_read", body) }
        guard let id = ids.first, ids.count == 1 else { return Self.object("notifications_deleted", ids: ids) }
        return Self.deleted(id)
    }

    private static func deleted(_ id: String) -> Event {
        Self.object("notification_deleted") { writer in
            writer.member("notification_id", id)
        }
    }

    private static func appEvent(_ body: [UInt8]) -> Event? {
        guard let event = try? JSONParser.parse(body), let name = event["name"]?.string,
            !SocketIOEventName.reserved.contains(name)
        else { return nil }
        let arguments = event["args"]?.array ?? []
        return Event(name: name, arguments: Array(arguments.map { JSONWriter.bytes(of: $0) }.joined(separator: [0x2C])))
    }

    /// Encodes the list that a client starts with.
    ///
    /// - Parameter hasMore: whether the list is cut and the inbox has older unread notifications.
    static func sync(_ items: [[UInt8]], hasMore: Bool = false) -> Event {
        Self.object("sync") { writer in
            writer.key("notifications")
            writer.beginArray()
            for item in items { writer.raw(item) }
            writer.endArray()
            if hasMore { writer.member("has_more", true) }
        }
    }

    /// Encodes the changes for a client that keeps its list: new, read elsewhere, deleted.
    static func changes(_ snapshot: InboxSnapshot) -> [Event] {
        let changed = snapshot.items.map { item in
            if let moment = (try? JSONParser.parse(stored: item.json))?["read_at"]?.string {
                Self.read(item.id.description, at: moment)
            } else {
                Event(name: "notification", arguments: item.json)
            }
        }
        return changed + snapshot.deleted.map { Self.deleted($0.id.description) }
    }

    /// Encodes the reason why the connection ends.
    static func error(_ code: StaticString, _ reason: String) -> Event {
        Self.object("error") { writer in
            writer.member("code", "\(code)")
            writer.member("message", reason)
        }
    }

    /// Encodes a change that covers everything up to a version; the list of ids is empty for
    /// clients that read only ids.
    private static func all(_ name: String, _ member: StaticString, _ body: JSONValue) -> Event {
        Self.object(name) { writer in
            writer.key("notification_ids")
            writer.beginArray()
            writer.endArray()
            writer.member(member, true)
            // Not the frame's version, which may be later.
            writer.member("up_to_version", body["up_to_version"]?.integer)
        }
    }

    private static func object(_ name: String, ids: [String]) -> Event {
        Self.object(name) { writer in
            writer.key("notification_ids")
            writer.beginArray()
            for id in ids { writer.string(id) }
            writer.endArray()
        }
    }

    private static func object(_ name: String, _ write: (inout JSONWriter) -> Void) -> Event {
        var writer = JSONWriter()
        writer.beginObject()
        write(&writer)
        writer.endObject()
        return Event(name: name, arguments: writer.bytes)
    }

    /// Encodes an event as an Engine.IO message packet in the default namespace.
    static func packet(_ event: Event, offset: String?) -> [UInt8] {
        var writer = JSONWriter(capacity: event.arguments.count + event.name.utf8.count + 64)
        writer.beginArray()
        writer.string(event.name)
        if !event.arguments.isEmpty { writer.raw(event.arguments) }
        if let offset { writer.string(offset) }
        writer.endArray()
        return Array("42".utf8) + writer.bytes
    }

    /// Encodes an answer as an acknowledgement.
    static func acknowledgement(_ answer: SocketAnswer) -> JSONValue {
        switch answer {
        case .done, .read: Self.status("ok")
        case .unread(let count): .object([JSONMember("count", .number(String(count)))])
        case .error(let reason), .busy(let reason):
            .object([JSONMember("status", .string("error")), JSONMember("error", .string(reason))])
        }
    }

    static func status(_ status: String) -> JSONValue { .object([JSONMember("status", .string(status))]) }
}
