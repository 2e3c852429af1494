// Carillon · ShapeTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Core

@Suite("Camel case shape", .timeLimit(.minutes(10)))
struct CamelCaseShapeTests {
    private static let created = Timestamp(milliseconds: 1_795_168_800_123)

    private static func notification() -> Notification {
        let id = NotificationID(high: 0x01A1_F866_0D7B_841C, low: 0xA9A6_5597_AA05_75F3)
        return Notification(id: id, user: "u1", type: "AllowanceDeposit", createdAt: self.created)
    }

    private static func text(_ notification: Notification, code: Int?) -> String {
        String(decoding: CamelCaseShape.encode(notification, code: code, now: self.created), as: UTF8.self)
    }

    @Test("absent values are null, a type without a code is 0")
    func least() {
        #expect(
            Self.text(Self.notification(), code: nil)
                == #"{"id":"01a1f866-0d7b-841c-a9a6-5597aa0575f3","type":0,"typeName":"Allowance Deposit","title":"","#
                + #""body":"","data":null,"isRead":false,"readAt":null,"createdAt":"2026-11-20T10:00:00.123Z","#
                + #""relatedEntityType":null,"relatedEntityId":null,"timeAgo":"just now"}"#)
    }

    @Test("data is a string of JSON")
    func everything() {
        var notification = Self.notification()
        notification.title = "Allowance Received!"
        notification.body = "Your \"weekly\" allowance"
        notification.data = Array(#"{"amount":10.50}"#.utf8)
        notification.readAt = Self.created + .seconds(60)
        notification.entityType = "Transaction"
        notification.entityID = "3F2504E0-4F89-11D3-9A0C-0305E82C3301"
        #expect(
            Self.text(notification, code: 10)
                == #"{"id":"01a1f866-0d7b-841c-a9a6-5597aa0575f3","type":10,"typeName":"Allowance Deposit","#
                + #""title":"Allowance Received!","body":"Your \"weekly\" allowance","#
                + #""data":"{\"amount\":10.50}","isRead":true,"readAt":"2026-11-20T10:01:00.123Z","#
                + #""createdAt":"2026-11-20T10:00:00.123Z","relatedEntityType":"Transaction","#
                + #""relatedEntityId":"3F2504E0-4F89-11D3-9A0C-0305E82C3301","timeAgo":"just now"}"#)
    }

    @Test("an entity id that is not a UUID is null, because it would fail a client's whole list")
    func entity() throws {
        var notification = Self.notification()
        notification.entityID = "t-17"
        let value = try JSONParser.parse(Array(Self.text(notification, code: 1).utf8))
        #expect(value["relatedEntityId"] == .null)
    }

    @Test(
        "ages are short texts",
        arguments: [
            (-5, "just now"), (0, "just now"), (59, "just now"), (60, "1m ago"), (3_599, "59m ago"), (3_600, "1h ago"),
            (86_399, "23h ago"), (86_400, "1d ago"), (604_799, "6d ago"), (604_800, "1w ago"), (2_591_999, "4w ago"),
            (2_592_000, "1mo ago"), (31_535_999, "12mo ago"), (31_536_000, "1y ago"), (63_072_000, "2y ago"),
        ] as [(Int64, String)]
    )
    func timeAgo(seconds: Int64, text: String) {
        #expect(TimeAgo.text(Self.created, now: Self.created + .seconds(seconds)) == text)
    }

    @Test(
        "splits a type's name into words",
        arguments: [
            ("AllowanceDeposit", "Allowance Deposit"), ("LowBalanceWarning", "Low Balance Warning"),
            ("payment_received", "Payment Received"), ("payment-received.now", "Payment Received Now"),
            ("FCMTokenLost", "FCM Token Lost"), ("taskURL", "Task URL"), ("Task2Done", "Task2 Done"), ("x", "X"),
            ("Überweisung", "Überweisung"), ("__", ""),
        ]
    )
    func titles(name: String, title: String) {
        #expect(TypeTitle.text(name) == title)
    }
}

@Suite("Canonical shape", .timeLimit(.minutes(10)))
struct CanonicalShapeTests {
    private static let id = NotificationID(high: 0x01A1_F866_0D7B_841C, low: 0xA9A6_5597_AA05_75F3)

    private static func notification() -> Notification {
        Notification(id: self.id, user: "u1", type: "greeting", createdAt: Timestamp(milliseconds: 1_795_168_800_123))
    }

    private static func text(_ notification: Notification) -> String {
        String(decoding: CanonicalShape.encode(notification), as: UTF8.self)
    }

    @Test("absent values are null, absent data is an object")
    func least() {
        #expect(
            Self.text(Self.notification())
                == #"{"id":"01a1f866-0d7b-841c-a9a6-5597aa0575f3","type":"greeting","severity":"info","#
                + #""delivery":"in_app","title":"","body":"","data":{},"category":null,"org":null,"entity_type":null,"#
                + #""entity_id":null,"url":null,"image":null,"collapse_key":null,"version":0,"#
                + #""created_at":"2026-11-20T10:00:00.123Z","read_at":null,"expires_at":null,"held_back":null}"#)
    }

    @Test("text is escaped, data is copied")
    func everything() {
        var notification = Self.notification()
        notification.severity = .alert
        notification.delivery = .push
        notification.title = "Say \"hi\"\n"
        notification.body = "€ 40\\😀\u{1}"
        notification.data = Array(#"{ "a" : [1.50] }"#.utf8)
        notification.category = "payments"
        notification.org = "acme"
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
                + #""category":"payments","org":"acme","entity_type":"invoice","entity_id":"i9","url":"app://i9","#
                + #""image":"https://example.org/i.png","collapse_key":"k","version":42,"#
                + #""created_at":"2026-11-20T10:00:00.123Z","read_at":"1970-01-01T00:00:00.000Z","#
                + #""expires_at":"1969-12-31T23:59:59.000Z","held_back":null}"#)
    }

    @Test("server-only fields are left out")
    func keepsPrivate() {
        var notification = Self.notification()
        notification.jobID = "secret-job"
        notification.jobEntry = "secret-entry"
        notification.statusReason = "secret-reason"
        #expect(!Self.text(notification).contains("secret"))
        #expect(!Self.text(notification).contains("u1"))
    }

    @Test("it is valid JSON and a value in other JSON")
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

@Suite("Shape", .timeLimit(.minutes(10)))
struct ShapeTests {
    private typealias Order = (id: String, paidAt: Timestamp?, note: String?, items: [(name: String, count: Int)])

    private static let order: Shape<Order> = [
        "id": .value(.text(64), "Chosen by the shop.") { $0.id },
        "paid_at": .value(.time) { $0.paidAt },
        "note": .optional(.string) { $0.note },
        "items": .list(
            of: ["name": .value(.string) { $0.name }, "count": .value(.count) { $0.count }], max: 9
        ) { $0.items },
    ]

    private static func json<Value>(_ value: Value, _ shape: Shape<Value>) -> String {
        var writer = JSONWriter()
        shape.write(value, to: &writer)
        return String(decoding: writer.bytes, as: UTF8.self)
    }

    @Test("writes null for a missing value, and leaves out a missing optional member")
    func missing() {
        let empty = Self.json(("o1", nil, nil, []), Self.order)
        #expect(empty == #"{"id":"o1","paid_at":null,"items":[]}"#)
        let paidAt = Timestamp(milliseconds: 1_795_168_800_123)
        let full = Self.json(("o1", paidAt, "a \"b\"", [("tea", 2)]), Self.order)
        #expect(
            full == #"{"id":"o1","paid_at":"2026-11-20T10:00:00.123Z","note":"a \"b\"","#
                + #""items":[{"name":"tea","count":2}]}"#)
    }

    @Test("describes the members that it writes, with null and absence as the values have them")
    func schema() {
        let schema = Self.order.schema.json
        #expect(schema["properties"]?.object?.map(\.key) == ["id", "paid_at", "note", "items"])
        #expect(schema["required"]?.strings == ["id", "paid_at", "items"])
        #expect(schema["properties"]?["id"]?["description"] == .string("Chosen by the shop."))
        #expect(schema["properties"]?["paid_at"]?["type"]?.strings == ["string", "null"])
        #expect(schema["properties"]?["note"]?["type"] == .string("string"))
        #expect(schema["properties"]?["items"]?["items"]?["required"]?.strings == ["name", "count"])
    }

    @Test("a larger object takes over members, and a named one is a component")
    func parts() {
        let delivery = Shape<(order: Order, town: String)>(
            "Delivery", Self.order.of { $0.order } + ["town": .value(.string) { $0.town }])
        #expect(
            Self.json((("o1", nil, nil, []), "Bern"), delivery)
                == #"{"id":"o1","paid_at":null,"items":[],"town":"Bern"}"#)
        #expect(delivery.schema.json["$ref"] == .string("#/components/schemas/Delivery"))
        #expect(delivery.schema.names == ["id", "paid_at", "note", "items", "town"])
        let nested: Shape<Order?> = ["order": .object(Self.order) { $0 }]
        #expect(Self.json(nil, nested) == #"{"order":null}"#)
        #expect(nested.schema.json["properties"]?["order"]?["type"]?.strings == ["object", "null"])
    }
}
