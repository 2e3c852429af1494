// Carillon · DialectTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOHTTP1
import Protocols
import Testing

@testable import Core
@testable import Sockets

@Suite("Native dialect", .timeLimit(.minutes(10)))
struct NativeDialectTests {
    private static let id = "01a1f866-0d7b-841c-a9a6-5597aa0575f3"
    private static let other = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
    private static let ids: [NotificationID] = [Self.id, Self.other].compactMap { NotificationID($0) }

    private static func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }

    @Test("decodes client messages")
    func decodes() throws {
        let ids = #"["\#(Self.id)","\#(Self.other.uppercased())"]"#
        // 256 bytes with its quotation marks.
        let longReference = String(repeating: "r", count: 254)
        let table: [(String, ClientMessage, String?)] = [
            (#"{"type":"auth","token":"t"}"#, .auth(token: "t"), nil),
            (#"{"type":"auth","token":"t","ref":7}"#, .auth(token: "t"), "7"),
            (#"{"type":"resume","version":0}"#, .resume(version: 0), nil),
            (#"{"type":"resume","version":9223372036854775807}"#, .resume(version: .max), nil),
            (#"{"type":"read","ids":\#(ids)}"#, .read(ids: Self.ids), nil),
            (#"{"type":"read","ids":[]}"#, .read(ids: []), nil),
            (#"{"type":"read","all":true}"#, .read(ids: nil), nil),
            (#"{"type":"read","all":false,"ids":[]}"#, .read(ids: []), nil),
            (#"{"ref":{"a":["é"]},"type":"unread"}"#, .unread, #"{"a":["é"]}"#),
            (#"{"type":"ack","ids":\#(ids)}"#, .acknowledge(ids: Self.ids), nil),
            (#"{"type":"focus","active":true}"#, .focus(isActive: true), nil),
            (#"{"type":"focus","active":false,"ref":"x"}"#, .focus(isActive: false), #""x""#),
            (#"{"type":"unread","ref":null}"#, .unread, "null"),
            (#"{"type":"unread","ref":"\#(longReference)"}"#, .unread, "\"\(longReference)\""),
            (#"{"type":"unread","unknown":1}"#, .unread, nil),
        ]
        for (text, message, reference) in table {
            let decoded = try NativeDialect.decode(text)
            #expect(decoded.message == message, "\(text)")
            #expect(decoded.reference.map(Self.text) == reference, "\(text)")
        }
    }

    @Test("refuses unknown messages with a reason and their reference")
    func faults() {
        let many = Array(repeating: #""\#(Self.id)""#, count: 1_001).joined(separator: ",")
        // 256 bytes with its quotation marks.
        let longReference = String(repeating: "r", count: 254)
        let marks = String(repeating: "\u{300}", count: 65)
        let table: [(String, String, String?)] = [
            ("", "the message is not valid JSON at byte 0", nil),
            ("hello", "the message is not valid JSON at byte 0", nil),
            (#"{"type":"unread","type":"unread"}"#, "the message is JSON with a key that occurs twice at byte 17", nil),
            ("[]", "the message must be a JSON object", nil), (#""unread""#, "the message must be a JSON object", nil),
            ("{}", "type is missing", nil), (#"{"type":1,"ref":2}"#, "type is missing", "2"),
            (#"{"type":"Auth","ref":2}"#, "type must be one of auth, resume, read, unread, ack, focus", "2"),
            (#"{"type":"auth","ref":3}"#, "token must be a string", "3"),
            (#"{"type":"auth","token":1}"#, "token must be a string", nil),
            (#"{"type":"resume"}"#, "version must be a whole number from 0", nil),
            (#"{"type":"resume","version":-1}"#, "version must be a whole number from 0", nil),
            (#"{"type":"resume","version":"1"}"#, "version must be a whole number from 0", nil),
            (#"{"type":"resume","version":1.5}"#, "version must be a whole number from 0", nil),
            (#"{"type":"read"}"#, "ids must be an array of 0 to 1000 notification ids", nil),
            (#"{"type":"read","ids":"x"}"#, "ids must be an array of 0 to 1000 notification ids", nil),
            (#"{"type":"ack","ids":[1]}"#, "ids must be an array of 0 to 1000 notification ids", nil),
            (#"{"type":"ack","ids":[\#(many)]}"#, "ids must be an array of 0 to 1000 notification ids", nil),
            (#"{"type":"ack","ids":["x"],"ref":"r"}"#, "ids must hold notification ids", #""r""#),
            (#"{"type":"unread","ref":"\#(longReference)r"}"#, "ref is longer than 256 bytes of JSON", nil),
            (#"{"type":"x","ref":"\#(longReference)r"}"#, "ref is longer than 256 bytes of JSON", nil),
            (
                #"{"type":"a\#(marks)"}"#, "the message is JSON with more than 64 combining marks in a row at byte 8",
                nil
            ),
            (#"{"type":"focus","active":1}"#, "active must be true or false", nil),
        ]
        for (text, reason, reference) in table {
            let fault = #expect(throws: ClientFault.self) { try NativeDialect.decode(text) }
            #expect(fault?.reason == reason, "\(text)")
            #expect(fault?.reference.map(Self.text) == reference, "\(text)")
        }
    }

    @Test("keeps the encoding of server messages, which deployed clients read")
    func golden() {
        #expect(
            Self.text(NativeDialect.welcome(connection: "c\"1", pingInterval: 25_000, version: 42))
                == #"{"type":"welcome","connection":"c\"1","ping_interval":25000,"version":42}"#)
        #expect(
            Self.text(NativeDialect.notification(Array(#"{"id":1}"#.utf8), version: 42, unread: 7))
                == #"{"type":"notification","version":42,"unread":7,"notification":{"id":1}}"#)
        #expect(
            Self.text(NativeDialect.change("read", Array(#"{"all":true}"#.utf8), version: 43, unread: 0))
                == #"{"type":"read","version":43,"unread":0,"change":{"all":true}}"#)
        #expect(
            Self.text(NativeDialect.event(Array(#"{"name":"n","args":[]}"#.utf8)))
                == #"{"type":"event","event":{"name":"n","args":[]}}"#)
        #expect(Self.text(NativeDialect.unread(3, reference: nil)) == #"{"type":"unread","unread":3}"#)
        #expect(
            Self.text(NativeDialect.unread(3, reference: Array("7".utf8))) == #"{"type":"unread","unread":3,"ref":7}"#)
        #expect(Self.text(NativeDialect.done(reference: Array(#"{"a":1}"#.utf8))) == #"{"type":"done","ref":{"a":1}}"#)
        #expect(Self.text(NativeDialect.error("no \"x\"", reference: nil)) == #"{"type":"error","reason":"no \"x\""}"#)
        #expect(
            Self.text(NativeDialect.error("r", reference: Array("null".utf8)))
                == #"{"type":"error","reason":"r","ref":null}"#)
        #expect(
            NativeDialect.answer(.busy("r"), to: Array("7".utf8)).map(Self.text)
                == #"{"type":"error","reason":"r","retry":true,"ref":7}"#)
        #expect(
            Self.text(NativeDialect.goodbye(.serviceRestart, reason: "drain", reconnectAfter: 1_500))
                == #"{"type":"goodbye","code":1012,"reason":"drain","reconnect_after":1500}"#)
    }

    @Test("encodes a sync with its notifications, and a cursor if there are more")
    func sync() {
        var snapshot = InboxSnapshot(version: 5, unread: 2, total: 9)
        #expect(
            Self.text(NativeDialect.sync(snapshot))
                == #"{"type":"sync","version":5,"unread":2,"total":9,"reset":false,"has_more":false,"cursor":null,"#
                + #""notifications":[],"deleted":[]}"#)
        let answer = Self.text(NativeDialect.sync(snapshot, reference: Array("[7]".utf8)))
        #expect(answer.hasSuffix(#""deleted":[],"ref":[7]}"#))
        snapshot.items = Self.ids.map {
            .init(id: $0, version: 5, json: Array(#"{"x":1}"#.utf8), awaitsProof: true, lane: .bulk, isRead: false)
        }
        snapshot.deleted = Self.ids.map { .init(id: $0, version: 5) }
        snapshot.isReset = true
        snapshot.hasMore = true
        #expect(
            Self.text(NativeDialect.sync(snapshot))
                == #"{"type":"sync","version":5,"unread":2,"total":9,"reset":true,"has_more":true,"#
                + #""cursor":"\#(Self.other)","notifications":[{"x":1},{"x":1}],"#
                + #""deleted":["\#(Self.id)","\#(Self.other)"]}"#)
    }

    @Test("encodes a change by its kind")
    func nodeChange() {
        let table: [(NodeFrame.Kind, String, String)] = [
            (.notification, "{}", #"{"type":"notification","version":2,"unread":1,"notification":{}}"#),
            (.read, "{}", #"{"type":"read","version":2,"unread":1,"change":{}}"#),
            (.deleted, "{}", #"{"type":"deleted","version":2,"unread":1,"change":{}}"#),
            (.event, "{}", #"{"type":"event","event":{}}"#),
        ]
        for (kind, body, json) in table {
            let change = NodeFrame(
                kind: kind, user: "u", previous: 1, version: 2, unread: 1, id: Self.ids[0],
                body: Array(body.utf8))
            #expect(Self.text(NativeDialect.change(change)) == json)
            #expect(change.isNotification == (kind == .notification))
        }
    }
}

@Suite("SignalR dialect", .timeLimit(.minutes(10)))
struct SignalRDialectTests {
    private static let ids = (1...3).map { NotificationID(high: 0, low: $0) }

    /// The client methods of records, each with its first argument as JSON.
    private static func words(_ records: [SignalRRecord]) throws -> [String] {
        try records.map { record in
            let message = try JSONParser.parse(record.bytes.dropLast())
            let argument = message["arguments"]?.array?.first.map { JSONWriter.bytes(of: $0) } ?? []
            return "\(message["target"]?.string ?? "") \(String(decoding: argument, as: UTF8.self))"
        }
    }

    private static func change(_ kind: NodeFrame.Kind, _ body: String, camelCase: String = "") -> NodeFrame {
        NodeFrame(
            kind: kind,
            user: "ada",
            previous: 1,
            version: 2,
            unread: 7,
            id: Self.ids[0],
            body: Array(body.utf8),
            camelCaseBody: Array(camelCase.utf8)
        )
    }

    @Test("encodes changes as calls of client methods, followed by the count")
    func changes() throws {
        let id = Self.ids[0].description
        let cases: [(NodeFrame, [String])] = [
            (
                Self.change(.notification, "{}", camelCase: #"{"isRead":false}"#),
                [#"ReceiveNotification {"isRead":false}"#, "UnreadCountChanged 7"]
            ),
            (Self.change(.read, #"{"ids":["\#(id)"]}"#), ["NotificationRead \"\(id)\"", "UnreadCountChanged 7"]),
            (
                Self.change(.read, #"{"all":true,"up_to_version":1}"#),
                ["AllNotificationsRead 1", "UnreadCountChanged 7"]
            ),
            (Self.change(.deleted, #"{"ids":["\#(id)"]}"#), ["NotificationDeleted \"\(id)\"", "UnreadCountChanged 7"]),
            (
                Self.change(.deleted, #"{"all_read":true,"up_to_version":1}"#),
                ["AllReadNotificationsDeleted 1", "UnreadCountChanged 7"]
            ),
            (Self.change(.event, #"{"name":"BalanceUpdated","args":[1.50]}"#), ["BalanceUpdated 1.50"]),
        ]
        for (change, words) in cases { #expect(try Self.words(SignalRDialect.change(change)) == words) }
    }

    @Test("encodes a sync by what happened to each notification, and then the count")
    func syncs() throws {
        var snapshot = InboxSnapshot(version: 9, unread: 2, total: 3)
        snapshot.items = [
            .init(id: Self.ids[0], version: 9, json: Array("3".utf8), awaitsProof: true, lane: .bulk, isRead: false),
            .init(id: Self.ids[1], version: 8, json: Array("2".utf8), awaitsProof: false, lane: .bulk, isRead: true),
            .init(id: Self.ids[2], version: 7, json: Array("1".utf8), awaitsProof: true, lane: .bulk, isRead: false),
        ]
        snapshot.deleted = [.init(id: Self.ids[0], version: 9)]
        #expect(
            try Self.words(SignalRDialect.sync(snapshot)) == [
                "ReceiveNotification 3", "NotificationRead \"\(Self.ids[1])\"", "ReceiveNotification 1",
                "NotificationDeleted \"\(Self.ids[0])\"", "UnreadCountChanged 2",
            ]
        )
    }

    @Test("a reset says that all are read, or all read ones deleted, if its counts show it")
    func resets() throws {
        let (allRead, allDeleted) = ("AllNotificationsRead 9", "AllReadNotificationsDeleted 9")
        let item = InboxSnapshot.Item(
            id: Self.ids[0], version: 9, json: Array("1".utf8), awaitsProof: true, lane: .bulk, isRead: false)
        let cases: [(unread: Int32, total: Int32, isReset: Bool, words: [String])] = [
            (0, 2, true, [allRead]), (2, 2, true, [allDeleted]), (0, 0, true, [allRead, allDeleted]),
            (1, 2, true, []), (0, 0, false, []), (2, 2, false, []),
        ]
        for (unread, total, isReset, words) in cases {
            var snapshot = InboxSnapshot(version: 9, unread: unread, total: total)
            snapshot.isReset = isReset
            if unread > 0 { snapshot.items = [item] }
            let received = unread > 0 ? ["ReceiveNotification 1"] : []
            let records = try Self.words(SignalRDialect.sync(snapshot))
            #expect(records == words + received + ["UnreadCountChanged \(unread)"])
        }
    }

    @Test("finds methods in any letter case and names the method in faults")
    func methods() throws {
        let id = Self.ids[0]
        func message(_ target: String, _ arguments: [JSONValue], isStream: Bool = false) throws -> ClientMessage? {
            try SignalRDialect.message(
                SignalRInvocation(target: target, arguments: arguments, invocationID: "1", isStream: isStream)
            )
        }
        #expect(try message("markREAD", [.string(id.description)]) == .read(ids: [id]))
        #expect(try message("MarkAsRead", [.array([.string(id.description)])]) == .read(ids: [id]))
        #expect(try message("MarkAllAsRead", []) == .read(ids: nil))
        #expect(try message("getunreadcount", []) == .unread)
        #expect(try message("Subscribe", [.string("anything")]) == nil)
        let tooMany = JSONValue.array(Array(repeating: .string(id.description), count: 1_001))
        for arguments in [[], [.null], [.string("x")], [.array([])], [tooMany]] as [[JSONValue]] {
            #expect(throws: ClientFault.self) { try message("MarkAsRead", arguments) }
        }
        #expect(throws: ClientFault.self) { try message("GetUnreadCount", [], isStream: true) }
        do {
            _ = try message("Nonsense", [])
            Issue.record("it was taken")
        } catch let fault as ClientFault {
            #expect(fault.reason.contains("'Nonsense'"))
        }
    }
}

@Suite("Socket.IO dialect", .timeLimit(.minutes(10)))
struct SocketIODialectTests {
    private static let id = "01a1f866-0d7b-841c-a9a6-5597aa0575f3"
    private static let other = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"

    @Test(
        "takes the token of a handshake from the header after any number of spaces, or from the query",
        arguments: [
            ("Bearer header", "header"), ("bEARER   header", "header"), ("Basic eDp5", "query"), ("Bearer ", "query"),
            ("Bearer", "query"), ("Bearerheader", "query"), (nil, "query"),
        ] as [(String?, String)]
    )
    func handshakeTokens(_ authorization: String?, _ token: String) throws {
        var head = HTTPRequestHead(version: .http1_1, method: .GET, uri: "/socket.io/?EIO=4&token=query")
        if let authorization { head.headers.add(name: "authorization", value: authorization) }
        let query = EngineIOQuery(try RequestQuery(target: head.uri))
        #expect(SocketIOEndpoint.token(EngineIOOpening(head: head, query: query)) == token)
    }

    private static func decode(_ name: String, _ json: String?) throws -> SocketIODialect.Request {
        let arguments = try json.map { [SocketIOValue.json(try JSONParser.parse(Array($0.utf8)))] } ?? []
        return try SocketIODialect.decode(.text(name), arguments)
    }

    @Test("decodes client messages")
    func decodes() throws {
        let ids = [Self.id, Self.other].compactMap { NotificationID($0) }
        let table: [(String, String?, SocketIODialect.Request)] = [
            ("subscribe", #"{"user_id":"ada"}"#, .subscribe(user: "ada")), ("resync", nil, .message(.resync)),
            ("resync", #"{"last_sync_at":"2026-01-01T00:00:00Z"}"#, .message(.resync)),
            ("resync", #"{"last_sync_at":null}"#, .message(.resync)),
            ("mark_read", #"{"notification_id":"\#(Self.id)"}"#, .message(.read(ids: [ids[0]]))),
            (
                "bulk_read", #"{"notification_ids":["\#(Self.id)","\#(Self.other)"]}"#,
                .message(.read(ids: ids, isBulk: true))
            ),
            ("bulk_read", #"{"notification_ids":["\#(Self.id)"]}"#, .message(.read(ids: [ids[0]], isBulk: true))),
            ("get_unread_count", "{}", .message(.unread)), ("get_unread_count", "null", .message(.unread)),
        ]
        for (name, json, request) in table { #expect(try Self.decode(name, json) == request, "\(name)") }
    }

    @Test("names the faulty field")
    func faults() {
        let many = (0...1_000).map { _ in "\"\(Self.id)\"" }.joined(separator: ",")
        let table: [(String, String?, String)] = [
            ("subscribe", "{}", "user_id"), ("subscribe", #"{"user_id":1}"#, "user_id"),
            ("resync", #"{"last_sync_at":{}}"#, "last_sync_at"), ("mark_read", nil, "notification_id"),
            ("mark_read", #"{"notification_id":"x"}"#, "notification_id"),
            ("bulk_read", #"{"notification_ids":"x"}"#, "notification_ids"),
            ("bulk_read", #"{"notification_ids":["x"]}"#, "notification_ids"),
            ("bulk_read", #"{"notification_ids":[\#(many)]}"#, "notification_ids"),
            ("mark_read", "[1]", "the argument"), ("nonsense", "{}", "the event must be one of"),
        ]
        for (name, json, words) in table {
            let fault = #expect(throws: ClientFault.self) { _ = try Self.decode(name, json) }
            #expect(fault?.reason.hasPrefix(words) == true, "\(name) \(json ?? "")")
        }
    }

    @Test("marks a cut list")
    func more() {
        let whole = SocketIODialect.packet(SocketIODialect.sync([Array("{}".utf8)]), offset: nil)
        #expect(String(decoding: whole, as: UTF8.self) == #"42["sync",{"notifications":[{}]}]"#)
        let cut = SocketIODialect.packet(SocketIODialect.sync([Array("{}".utf8)], hasMore: true), offset: nil)
        #expect(String(decoding: cut, as: UTF8.self) == #"42["sync",{"notifications":[{}],"has_more":true}]"#)
    }

    @Test("tells what was read from notifications stored before marks were limited")
    func storedMarks() throws {
        let id = try #require(NotificationID("01a1f866-0d7b-841c-a9a6-5597aa0575f3"))
        let moment = "2026-01-01T00:00:00Z"
        let title = "a" + String(repeating: "\u{300}", count: 65)
        var snapshot = InboxSnapshot(version: 1, unread: 0, total: 1)
        snapshot.items = [
            .init(
                id: id, version: 1, json: Array(#"{"title":"\#(title)","read_at":"\#(moment)"}"#.utf8),
                awaitsProof: false, lane: .normal, isRead: true)
        ]
        #expect(SocketIODialect.changes(snapshot).map(\.name) == ["notification_read"])
    }

    @Test("encodes changes as events of the dialect")
    func changes() throws {
        let moment = "2026-01-01T00:00:00Z"
        let table: [(NodeFrame.Kind, String, String?)] = [
            (.notification, #"{"id":"a"}"#, #"42["notification",{"id":"a"}]"#),
            (
                .read, #"{"ids":["a"],"at":"\#(moment)"}"#,
                #"42["notification_read",{"notification_id":"a","read_at":"\#(moment)"}]"#
            ),
            (
                .read, #"{"ids":["a","b"],"at":"\#(moment)"}"#,
                #"42["notifications_bulk_read",{"notification_ids":["a","b"]}]"#
            ),
            (
                .read, #"{"all":true,"up_to_version":1,"at":"\#(moment)"}"#,
                #"42["notifications_bulk_read",{"notification_ids":[],"all":true,"up_to_version":1}]"#
            ),
            (
                .read, #"{"ids":["a"],"bulk":true,"at":"\#(moment)"}"#,
                #"42["notifications_bulk_read",{"notification_ids":["a"]}]"#
            ),
            (.deleted, #"{"ids":["a"]}"#, #"42["notification_deleted",{"notification_id":"a"}]"#),
            (
                .deleted, #"{"all_read":true,"up_to_version":1}"#,
                #"42["notifications_deleted",{"notification_ids":[],"all_read":true,"up_to_version":1}]"#
            ),
            (.event, #"{"name":"tick","args":[1,"x",{"a":null}]}"#, #"42["tick",1,"x",{"a":null}]"#),
            (.event, #"{"name":"tick","args":[]}"#, #"42["tick"]"#),
            (.event, #"{"name":"disconnect","args":[]}"#, nil),
        ]
        let id = try #require(NotificationID(Self.id))
        for (kind, body, packet) in table {
            let change = NodeFrame(
                kind: kind, user: "ada", previous: 1, version: 2, unread: 0, id: id,
                body: Array(body.utf8))
            let told = SocketIODialect.event(change).map { SocketIODialect.packet($0, offset: nil) }
            #expect(told.map { String(decoding: $0, as: UTF8.self) } == packet)
        }
    }
}
