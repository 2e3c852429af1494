// Carillon · NativeDialectTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols
import Testing

@testable import Sockets

@Suite("Native dialect", .timeLimit(.minutes(10)))
struct NativeDialectTests {
    private static let id = "01a1f866-0d7b-841c-a9a6-5597aa0575f3"
    private static let other = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
    private static let ids: [NotificationID] = [Self.id, Self.other].compactMap { NotificationID($0) }

    private static func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }

    @Test("What clients say is understood")
    func decodes() throws {
        let ids = #"["\#(Self.id)","\#(Self.other.uppercased())"]"#
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
            (#"{"type":"unread","unknown":1}"#, .unread, nil),
        ]
        for (text, message, reference) in table {
            let decoded = try NativeDialect.decode(text)
            #expect(decoded.message == message, "\(text)")
            #expect(decoded.reference.map(Self.text) == reference, "\(text)")
        }
    }

    @Test("What is not understood is answered with a reason, and with the reference where there is one")
    func faults() {
        let many = Array(repeating: #""\#(Self.id)""#, count: 1_001).joined(separator: ",")
        let table: [(String, String, String?)] = [
            ("", "the message is not valid JSON at byte 0", nil),
            ("hello", "the message is not valid JSON at byte 0", nil),
            (#"{"type":"unread","type":"unread"}"#, "the message is JSON with a key that occurs twice at byte 17", nil),
            ("[]", "the message must be a JSON object", nil), (#""unread""#, "the message must be a JSON object", nil),
            ("{}", "type is missing", nil), (#"{"type":1,"ref":2}"#, "type is missing", "2"),
            (#"{"type":"Auth","ref":2}"#, "type is none of auth, resume, read, unread, ack, focus", "2"),
            (#"{"type":"auth","ref":3}"#, "token must be a string", "3"),
            (#"{"type":"auth","token":1}"#, "token must be a string", nil),
            (#"{"type":"resume"}"#, "version must be a whole number from 0", nil),
            (#"{"type":"resume","version":-1}"#, "version must be a whole number from 0", nil),
            (#"{"type":"resume","version":"1"}"#, "version must be a whole number from 0", nil),
            (#"{"type":"resume","version":1.5}"#, "version must be a whole number from 0", nil),
            (#"{"type":"read"}"#, "ids must be an array of at most 1000 notification ids", nil),
            (#"{"type":"read","ids":"x"}"#, "ids must be an array of at most 1000 notification ids", nil),
            (#"{"type":"ack","ids":[1]}"#, "ids must be an array of at most 1000 notification ids", nil),
            (#"{"type":"ack","ids":[\#(many)]}"#, "ids must be an array of at most 1000 notification ids", nil),
            (#"{"type":"ack","ids":["x"],"ref":"r"}"#, "ids must hold notification ids", #""r""#),
            (#"{"type":"focus","active":1}"#, "active must be true or false", nil),
        ]
        for (text, reason, reference) in table {
            let fault = #expect(throws: ClientFault.self) { try NativeDialect.decode(text) }
            #expect(fault?.reason == reason, "\(text)")
            #expect(fault?.reference.map(Self.text) == reference, "\(text)")
        }
    }

    @Test("What the server says does not change: clients in the field read it")
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
            Self.text(NativeDialect.goodbye(.serviceRestart, reason: "drain", reconnectAfter: 1_500))
                == #"{"type":"goodbye","code":1012,"reason":"drain","reconnect_after":1500}"#)
    }

    @Test("A sync holds what is there, and a cursor where there is more")
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

    @Test("A change is told by its kind")
    func nodeChange() {
        let table: [(NodeChange.Kind, String, String)] = [
            (.notification, "{}", #"{"type":"notification","version":2,"unread":1,"notification":{}}"#),
            (.read, "{}", #"{"type":"read","version":2,"unread":1,"change":{}}"#),
            (.deleted, "{}", #"{"type":"deleted","version":2,"unread":1,"change":{}}"#),
            (.event, "{}", #"{"type":"event","event":{}}"#),
        ]
        for (kind, body, json) in table {
            let change = NodeChange(
                kind: kind, user: "u", previous: 1, version: 2, unread: 1, id: Self.ids[0], awaitingLane: nil,
                body: .init(canonical: Array(body.utf8)))
            #expect(Self.text(NativeDialect.change(change)) == json)
            #expect(change.isNotification == (kind == .notification))
        }
    }
}
