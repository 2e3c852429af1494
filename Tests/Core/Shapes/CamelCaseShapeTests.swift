// Carillon · CamelCaseShapeTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

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

    @Test("The least: absent values are null, a type without a code is 0")
    func least() {
        #expect(
            Self.text(Self.notification(), code: nil)
                == #"{"id":"01a1f866-0d7b-841c-a9a6-5597aa0575f3","type":0,"typeName":"Allowance Deposit","title":"","#
                + #""body":"","data":null,"isRead":false,"readAt":null,"createdAt":"2026-11-20T10:00:00.123Z","#
                + #""relatedEntityType":null,"relatedEntityId":null,"timeAgo":"just now"}"#)
    }

    @Test("Everything: data is a string that holds JSON")
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

    @Test("An entity's id that is no UUID would fail a client's whole list, so it is null")
    func entity() throws {
        var notification = Self.notification()
        notification.entityID = "t-17"
        let value = try JSONParser.parse(Array(Self.text(notification, code: 1).utf8))
        #expect(value["relatedEntityId"] == .null)
    }

    @Test(
        "How long ago",
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
        "A type's name in words",
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
