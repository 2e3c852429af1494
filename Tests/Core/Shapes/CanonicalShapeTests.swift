// Carillon · CanonicalShapeTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@Suite("Canonical shape", .timeLimit(.minutes(10)))
struct CanonicalShapeTests {
    private static let id = NotificationID(high: 0x01A1_F866_0D7B_841C, low: 0xA9A6_5597_AA05_75F3)

    private static func notification() -> Notification {
        Notification(id: self.id, user: "u1", type: "greeting", createdAt: Timestamp(milliseconds: 1_795_168_800_123))
    }

    private static func text(_ notification: Notification) -> String {
        String(decoding: CanonicalShape.encode(notification), as: UTF8.self)
    }

    @Test("The least: absent values are null, absent data is an object")
    func least() {
        #expect(
            Self.text(Self.notification())
                == #"{"id":"01a1f866-0d7b-841c-a9a6-5597aa0575f3","type":"greeting","severity":"info","#
                + #""delivery":"in_app","title":"","body":"","data":{},"category":null,"entity_type":null,"#
                + #""entity_id":null,"url":null,"image":null,"collapse_key":null,"version":0,"#
                + #""created_at":"2026-11-20T10:00:00.123Z","read_at":null,"expires_at":null,"held_back":null}"#)
    }

    @Test("Everything: text is escaped, data goes through as it is")
    func everything() {
        var notification = Self.notification()
        notification.severity = .alert
        notification.delivery = .push
        notification.title = "Say \"hi\"\n"
        notification.body = "€ 40\\😀\u{1}"
        notification.data = Array(#"{ "a" : [1.50] }"#.utf8)
        notification.category = "payments"
        notification.entityType = "invoice"
        notification.entityID = "i9"
        notification.extras.url = "app://i9"
        notification.extras.image = "https://example.org/i.png"
        notification.collapseKey = "k"
        notification.version = 42
        notification.readAt = Timestamp(seconds: 0)
        notification.expiresAt = Timestamp(seconds: -1)
        #expect(
            Self.text(notification)
                == #"{"id":"01a1f866-0d7b-841c-a9a6-5597aa0575f3","type":"greeting","severity":"alert","#
                + #""delivery":"push","title":"Say \"hi\"\n","body":"€ 40\\😀\u0001","data":{ "a" : [1.50] },"#
                + #""category":"payments","entity_type":"invoice","entity_id":"i9","url":"app://i9","#
                + #""image":"https://example.org/i.png","collapse_key":"k","version":42,"#
                + #""created_at":"2026-11-20T10:00:00.123Z","read_at":"1970-01-01T00:00:00.000Z","#
                + #""expires_at":"1969-12-31T23:59:59.000Z","held_back":null}"#)
    }

    @Test("What is for the server alone stays out")
    func keepsPrivate() {
        var notification = Self.notification()
        notification.org = "secret-org"
        notification.jobID = "secret-job"
        notification.jobEntry = "secret-entry"
        notification.statusReason = "secret-reason"
        #expect(!Self.text(notification).contains("secret"))
        #expect(!Self.text(notification).contains("u1"))
    }

    @Test("It is JSON, and stands in other JSON as a value")
    func isJSON() throws {
        var writer = JSONWriter()
        writer.beginArray()
        CanonicalShape.write(Self.notification(), to: &writer)
        CanonicalShape.write(Self.notification(), to: &writer)
        writer.endArray()
        let elements = try #require(try JSONParser.parse(writer.bytes).array)
        #expect(elements.count == 2)
        #expect(elements[0]["id"]?.string == Self.id.description)
    }
}
