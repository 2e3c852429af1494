// Carillon · NativeDialect.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols

/// The native dialect: JSON objects `{"type": …}` in WebSocket text messages.
///
/// Bytes and meaning only, no channel.
enum NativeDialect {
    private static let maximumIDs = 1_000

    // MARK: From clients

    /// Reads a message and the reference that its answer repeats, in JSON.
    static func decode(_ text: String) throws(ClientFault) -> (message: ClientMessage, reference: [UInt8]?) {
        let value: JSONValue
        do throws(JSONFault) {
            value = try JSONParser.parse(Array(text.utf8))
        } catch {
            throw ClientFault(reason: "the message is \(error)", reference: nil)
        }
        guard value.object != nil else {
            throw ClientFault(reason: "the message must be a JSON object", reference: nil)
        }
        let reference = value["ref"].map { JSONWriter.bytes(of: $0) }
        func fault(_ reason: String) -> ClientFault { ClientFault(reason: reason, reference: reference) }
        func ids() throws(ClientFault) -> [NotificationID] {
            guard let texts = value["ids"]?.strings, texts.count <= Self.maximumIDs else {
                throw fault("ids must be an array of at most \(Self.maximumIDs) notification ids")
            }
            let ids = texts.compactMap { NotificationID($0) }
            guard ids.count == texts.count else { throw fault("ids must hold notification ids") }
            return ids
        }
        switch value["type"]?.string {
        case "auth":
            guard let token = value["token"]?.string else { throw fault("token must be a string") }
            return (.auth(token: token), reference)
        case "resume":
            guard let version = value["version"]?.integer, version >= 0 else {
                throw fault("version must be a whole number from 0")
            }
            return (.resume(version: version), reference)
        case "read":
            return (.read(ids: value["all"]?.bool == true ? nil : try ids()), reference)
        case "unread": return (.unread, reference)
        case "ack": return (.acknowledge(ids: try ids()), reference)
        case "focus":
            guard let isActive = value["active"]?.bool else { throw fault("active must be true or false") }
            return (.focus(isActive: isActive), reference)
        case nil: throw fault("type is missing")
        default: throw fault("type is none of auth, resume, read, unread, ack, focus")
        }
    }

    // MARK: To clients

    private static func object(_ type: StaticString, _ write: (inout JSONWriter) -> Void) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("type", "\(type)")
        write(&writer)
        writer.endObject()
        return writer.bytes
    }

    static func welcome(connection: String, pingInterval: Int64, version: Int64) -> [UInt8] {
        self.object("welcome") { writer in
            writer.member("connection", connection)
            writer.member("ping_interval", pingInterval)
            writer.member("version", version)
        }
    }

    static func sync(_ snapshot: InboxSnapshot, reference: [UInt8]? = nil) -> [UInt8] {
        self.object("sync") { writer in
            writer.member("version", snapshot.version)
            writer.member("unread", snapshot.unread)
            writer.member("total", snapshot.total)
            writer.member("reset", snapshot.isReset)
            writer.member("has_more", snapshot.hasMore)
            writer.member("cursor", snapshot.hasMore ? snapshot.items.last?.id.description : nil)
            writer.key("notifications")
            writer.beginArray()
            for item in snapshot.items { writer.raw(item.json) }
            writer.endArray()
            writer.key("deleted")
            writer.beginArray()
            for deletion in snapshot.deleted { writer.string(deletion.id.description) }
            writer.endArray()
            self.write(reference, to: &writer)
        }
    }

    /// A change of the inbox, or an event.
    static func change(_ change: NodeChange) -> [UInt8] {
        switch change.kind {
        case .notification: self.notification(change.body.canonical, version: change.version, unread: change.unread)
        case .read: self.change("read", change.body.canonical, version: change.version, unread: change.unread)
        case .deleted: self.change("deleted", change.body.canonical, version: change.version, unread: change.unread)
        case .event: self.event(change.body.canonical)
        }
    }

    /// A notification whose canonical JSON is `body`.
    static func notification(_ body: [UInt8], version: Int64, unread: Int32) -> [UInt8] {
        var writer = JSONWriter(capacity: body.count + 96)
        writer.beginObject()
        writer.member("type", "notification")
        writer.member("version", version)
        writer.member("unread", unread)
        writer.key("notification")
        writer.raw(body)
        writer.endObject()
        return writer.bytes
    }

    /// A change that is not a new notification: `body` is an object whose members stand beside the common ones.
    static func change(_ type: StaticString, _ body: [UInt8], version: Int64, unread: Int32) -> [UInt8] {
        self.object(type) { writer in
            writer.member("version", version)
            writer.member("unread", unread)
            writer.key("change")
            writer.raw(body)
        }
    }

    /// An ephemeral event; `body` is `{"name":…,"args":[…]}`.
    static func event(_ body: [UInt8]) -> [UInt8] {
        self.object("event") { writer in
            writer.key("event")
            writer.raw(body)
        }
    }

    static func unread(_ count: Int32, reference: [UInt8]?) -> [UInt8] {
        self.object("unread") { writer in
            writer.member("unread", count)
            self.write(reference, to: &writer)
        }
    }

    /// The answer to a message that has no other.
    static func done(reference: [UInt8]) -> [UInt8] {
        self.object("done") { self.write(reference, to: &$0) }
    }

    static func error(_ reason: String, reference: [UInt8]?) -> [UInt8] {
        self.object("error") { writer in
            writer.member("reason", reason)
            self.write(reference, to: &writer)
        }
    }

    static func goodbye(_ code: WebSocketCloseCode, reason: String, reconnectAfter: Int64) -> [UInt8] {
        self.object("goodbye") { writer in
            writer.member("code", code.rawValue)
            writer.member("reason", reason)
            writer.member("reconnect_after", reconnectAfter)
        }
    }

    private static func write(_ reference: [UInt8]?, to writer: inout JSONWriter) {
        guard let reference else { return }
        writer.key("ref")
        writer.raw(reference)
    }
}
