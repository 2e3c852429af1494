// Carillon · SocketIODialectTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols
import Testing

@testable import Sockets

@Suite("Socket.IO dialect", .timeLimit(.minutes(10)))
struct SocketIODialectTests {
    private static let id = "01a1f866-0d7b-841c-a9a6-5597aa0575f3"
    private static let other = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"

    private static func decode(_ name: String, _ json: String?) throws -> SocketIODialect.Wish {
        let arguments = try json.map { [SocketIOValue.json(try JSONParser.parse(Array($0.utf8)))] } ?? []
        return try SocketIODialect.decode(.text(name), arguments)
    }

    @Test("What clients say is understood")
    func decodes() throws {
        let ids = [Self.id, Self.other].compactMap { NotificationID($0) }
        let table: [(String, String?, SocketIODialect.Wish)] = [
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
        for (name, json, wish) in table { #expect(try Self.decode(name, json) == wish, "\(name)") }
    }

    @Test("Faults name the field")
    func faults() {
        let many = (0...1_000).map { _ in "\"\(Self.id)\"" }.joined(separator: ",")
        let table: [(String, String?, String)] = [
            ("subscribe", "{}", "user_id"), ("subscribe", #"{"user_id":1}"#, "user_id"),
            ("resync", #"{"last_sync_at":{}}"#, "last_sync_at"), ("mark_read", nil, "notification_id"),
            ("mark_read", #"{"notification_id":"x"}"#, "notification_id"),
            ("bulk_read", #"{"notification_ids":"x"}"#, "notification_ids"),
            ("bulk_read", #"{"notification_ids":["x"]}"#, "notification_ids"),
            ("bulk_read", #"{"notification_ids":[\#(many)]}"#, "notification_ids"),
            ("mark_read", "[1]", "the argument"), ("nonsense", "{}", "the event is none of"),
        ]
        for (name, json, words) in table {
            let fault = #expect(throws: ClientFault.self) { _ = try Self.decode(name, json) }
            #expect(fault?.reason.hasPrefix(words) == true, "\(name) \(json ?? "")")
        }
    }

    @Test("A list that is cut says that there is more")
    func more() {
        let whole = SocketIODialect.packet(SocketIODialect.sync([Array("{}".utf8)]), offset: nil)
        #expect(String(decoding: whole, as: UTF8.self) == #"42["sync",{"notifications":[{}]}]"#)
        let cut = SocketIODialect.packet(SocketIODialect.sync([Array("{}".utf8)], hasMore: true), offset: nil)
        #expect(String(decoding: cut, as: UTF8.self) == #"42["sync",{"notifications":[{}],"has_more":true}]"#)
    }

    @Test("Changes are told in the dialect's words")
    func changes() throws {
        let moment = "2026-01-01T00:00:00Z"
        let table: [(NodeChange.Kind, String, String?)] = [
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
            let change = NodeChange(
                kind: kind, user: "ada", previous: 0, version: 1, unread: 0, id: id, awaitingLane: nil,
                body: .init(canonical: Array(body.utf8)))
            let told = SocketIODialect.event(change).map { SocketIODialect.packet($0, offset: nil) }
            #expect(told.map { String(decoding: $0, as: UTF8.self) } == packet)
        }
    }
}
