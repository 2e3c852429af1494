// Carillon · SignalRDialectTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols
import Testing

@testable import Sockets

@Suite("The notification hub's words", .timeLimit(.minutes(10)))
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

    private static func change(_ kind: NodeChange.Kind, _ body: String, camelCase: String = "") -> NodeChange {
        NodeChange(
            kind: kind,
            user: "ada",
            previous: 1,
            version: 2,
            unread: 7,
            id: Self.ids[0],
            awaitingLane: nil,
            body: .init(canonical: Array(body.utf8), camelCase: Array(camelCase.utf8))
        )
    }

    @Test("Changes are calls of the client's methods, with the count after them")
    func changes() throws {
        let id = Self.ids[0].description
        let cases: [(NodeChange, [String])] = [
            (
                Self.change(.notification, "{}", camelCase: #"{"isRead":false}"#),
                [#"ReceiveNotification {"isRead":false}"#, "UnreadCountChanged 7"]
            ),
            (Self.change(.read, #"{"ids":["\#(id)"]}"#), ["NotificationRead \"\(id)\"", "UnreadCountChanged 7"]),
            (
                Self.change(.read, #"{"all":true,"up_to_version":2}"#),
                ["AllNotificationsRead 2", "UnreadCountChanged 7"]
            ),
            (Self.change(.deleted, #"{"ids":["\#(id)"]}"#), ["NotificationDeleted \"\(id)\"", "UnreadCountChanged 7"]),
            (
                Self.change(.deleted, #"{"all_read":true,"up_to_version":2}"#),
                ["AllReadNotificationsDeleted 2", "UnreadCountChanged 7"]
            ),
            (Self.change(.event, #"{"name":"BalanceUpdated","args":[1.50]}"#), ["BalanceUpdated 1.50"]),
        ]
        for (change, words) in cases { #expect(try Self.words(SignalRDialect.change(change)) == words) }
    }

    @Test("The first sync tells what was missed, oldest first; a later one all that changed")
    func syncs() throws {
        var snapshot = InboxSnapshot(version: 9, unread: 2, total: 3)
        snapshot.items = [
            .init(id: Self.ids[0], version: 9, json: Array("3".utf8), awaitsProof: true, lane: .bulk, isRead: false),
            .init(id: Self.ids[1], version: 8, json: Array("2".utf8), awaitsProof: false, lane: .bulk, isRead: true),
            .init(id: Self.ids[2], version: 7, json: Array("1".utf8), awaitsProof: true, lane: .bulk, isRead: false),
        ]
        let missed = ["ReceiveNotification 1", "ReceiveNotification 3", "UnreadCountChanged 2"]
        #expect(try Self.words(SignalRDialect.sync(snapshot, isFirst: true)) == missed)
        snapshot.deleted = [.init(id: Self.ids[0], version: 9)]
        let later = try Self.words(SignalRDialect.sync(snapshot, isFirst: false))
        #expect(
            later == [
                "ReceiveNotification 3", "NotificationRead \"\(Self.ids[1])\"", "ReceiveNotification 1",
                "NotificationDeleted \"\(Self.ids[0])\"", "UnreadCountChanged 2",
            ]
        )
        snapshot.isReturn = true
        #expect(try Self.words(SignalRDialect.sync(snapshot, isFirst: true)) == later, "it came back")
        snapshot.isReturn = false
        snapshot.isReset = true
        #expect(try Self.words(SignalRDialect.sync(snapshot, isFirst: false)) == missed)
        // Notifications that came on this connection do not come again.
        let rest = ["ReceiveNotification 3", "UnreadCountChanged 2"]
        #expect(try Self.words(SignalRDialect.sync(snapshot, isFirst: false, after: 8)) == rest)
    }

    @Test("Methods are known in whatever letter case, and faults name the method")
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
