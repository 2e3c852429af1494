// Carillon · HybridShapeTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Core
@testable import HTTP
@testable import Storage

@Suite("The accounting app's JSON", .timeLimit(.minutes(10)))
struct HybridShapeTests {
    private static let created = Timestamp(milliseconds: 1_795_168_800_123)
    private static let id = NotificationID(high: 0x01A1_F866_0D7B_841C, low: 0xA9A6_5597_AA05_75F3)

    private static func text(_ write: (inout JSONWriter) -> Void) -> String {
        var writer = JSONWriter()
        write(&writer)
        return String(decoding: writer.bytes, as: UTF8.self)
    }

    @Test("encodes a notification as a row of its table")
    func notification() {
        var notification = Notification(id: Self.id, user: "u1", type: "payment_received", createdAt: Self.created)
        #expect(
            Self.text { HybridShape.write(notification, sentVia: nil, to: &$0) }
                == #"{"id":"01a1f866-0d7b-841c-a9a6-5597aa0575f3","user_id":"u1","org_id":null,"#
                + #""type":"payment_received","severity":"info","delivery":"in_app","title":"","body":"","data":{},"#
                + #""created_at":"2026-11-20T10:00:00.123Z","read_at":null,"sent_via":null}"#)
        notification.org = "o1"
        notification.severity = .alert
        notification.delivery = .push
        notification.title = "T"
        notification.body = "B"
        notification.data = Array(#"{"invoice":1}"#.utf8)
        notification.readAt = Self.created
        #expect(
            Self.text { HybridShape.write(notification, sentVia: "fcm", to: &$0) }
                == #"{"id":"01a1f866-0d7b-841c-a9a6-5597aa0575f3","user_id":"u1","org_id":"o1","#
                + #""type":"payment_received","severity":"alert","delivery":"push","title":"T","body":"B","#
                + #""data":{"invoice":1},"created_at":"2026-11-20T10:00:00.123Z","#
                + #""read_at":"2026-11-20T10:00:00.123Z","sent_via":"push"}"#)
    }

    @Test(
        "encodes the channel of delivery",
        arguments: [
            (nil, nil), ("inbox", nil), ("socket", "socket"), ("client", "socket"), ("fcm", "push"), ("apns", "push"),
            ("webpush", "push"), ("email", nil), ("summary", nil),
        ] as [(String?, String?)]
    )
    func sentVia(via: String?, expected: String?) {
        #expect(HybridShape.sentVia(via) == expected)
    }

    @Test(
        "reports whether there is more",
        arguments: [
            (0, 2, 5, true), (3, 2, 5, false), (4, 1, 5, false), (9, 0, 5, false), (0, 0, 0, false),
            // No page begins beyond 10,000.
            (9_980, 20, 20_000, true), (9_981, 20, 20_000, false), (10_000, 20, 20_000, false),
        ]
    )
    func pages(offset: Int, count: Int, total: Int32, hasMore: Bool) throws {
        var page = InboxStore.OffsetPage()
        page.matching = total
        page.unread = 3
        let notification = Notification(id: Self.id, user: "u1", type: "t", createdAt: Self.created)
        page.items = Array(repeating: .init(notification: notification, sentVia: nil), count: count)
        let query = PageQuery(offset: offset, limit: 20, unreadOnly: false)
        let value = try JSONParser.parse(
            Array(
                Self.text { writer in
                    writer.beginObject()
                    HybridShape.write(page, of: query, to: &writer)
                    writer.endObject()
                }.utf8))
        #expect(value["has_more"]?.bool == hasMore)
        #expect(value["total"]?.integer == Int64(total))
        #expect(value["unread_count"]?.integer == 3)
        #expect(value["offset"]?.integer == Int64(offset))
        #expect(value["notifications"]?.array?.count == count)
    }

    @Test("applies the user's choice before the type's default, and a required type before both")
    func preferences() throws {
        var type = NotificationType(name: "system_maintenance")
        type.isOnByDefault = false
        func value(_ preference: TypePreference, _ hours: QuietHours? = nil) throws -> JSONValue {
            var settings = UserSettings()
            settings.quietHours = hours
            return try JSONParser.parse(
                Array(
                    Self.text {
                        HybridShape.write(type, preferences: [type.name: preference], settings: settings, to: &$0)
                    }.utf8))
        }
        let unsaid = try value(TypePreference())
        #expect(unsaid["type"]?.string == "system_maintenance")
        #expect(unsaid["in_app_enabled"]?.bool == false)
        #expect(unsaid["push_enabled"]?.bool == false)
        #expect(unsaid["quiet_hours_start"] == .null)
        let said = try value(TypePreference(push: true), QuietHours(start: 1_320, end: 420))
        #expect(said["in_app_enabled"]?.bool == false)
        #expect(said["push_enabled"]?.bool == true)
        #expect(said["quiet_hours_start"]?.string == "22:00:00")
        #expect(said["quiet_hours_end"]?.string == "07:00:00")
        // The type's own hours come before the user's.
        let night = QuietHours(start: 1_320, end: 420)
        let own = try value(TypePreference(quietHours: .hours(QuietHours(start: 60, end: 120))), night)
        #expect(own["quiet_hours_start"]?.string == "01:00:00" && own["quiet_hours_end"]?.string == "02:00:00")
        #expect(try value(TypePreference(quietHours: QuietOverride.none), night)["quiet_hours_start"] == .null)
        #expect(try value(TypePreference(quietHours: .inherited), night)["quiet_hours_start"]?.string == "22:00:00")
        type.isRequired = true
        #expect(try value(TypePreference(push: false))["push_enabled"]?.bool == true)
        let required = try value(TypePreference(quietHours: QuietOverride.none), night)
        #expect(required["quiet_hours_start"]?.string == "22:00:00")
        // A channel that the type does not have is off.
        type.channels = [.inApp]
        #expect(try value(TypePreference(push: true))["push_enabled"]?.bool == false)
        #expect(try value(TypePreference())["in_app_enabled"]?.bool == true)
    }

    private static let weekend = QuietHours(start: 1_320, end: 420, weekdays: 0x60)

    @Test(
        "reads a type's quiet hours as set, removed or unchanged",
        arguments: [
            (#"{"quiet_hours_start":"23:00:00"}"#, .hours(QuietHours(start: 1_380, end: 420, weekdays: 0x60))),
            (#"{"quiet_hours_start":"22:00","quiet_hours_end":"07:00:00"}"#, nil),
            (#"{"quiet_hours_start":null,"quiet_hours_end":null}"#, QuietOverride.none),
            (#"{"quiet_hours_start":"09:00","quiet_hours_end":"09:00"}"#, QuietOverride.none),
        ] as [(String, QuietOverride?)]
    )
    func quietChanges(json: String, expected: QuietOverride?) throws {
        var fields = FieldReader(lenient: try JSONParser.parse(Array(json.utf8)))
        #expect(HybridShape.quietChange(&fields, shown: Self.weekend) == expected)
        #expect(fields.faults.isEmpty)
    }

    @Test("needs both times for new quiet hours of a type and ignores null")
    func firstQuietHours() throws {
        func change(_ json: String) throws -> (QuietOverride?, [String]) {
            var fields = FieldReader(lenient: try JSONParser.parse(Array(json.utf8)))
            let change = HybridShape.quietChange(&fields, shown: nil)
            return (change, fields.faults.map(\.field))
        }
        let both = try change(#"{"quiet_hours_start":"22:00","quiet_hours_end":"07:00"}"#)
        #expect(both.0 == .hours(QuietHours(start: 1_320, end: 420)))
        let none = try change(#"{"quiet_hours_start":null,"quiet_hours_end":null}"#)
        #expect(none.0 == nil && none.1.isEmpty)
        #expect(try change(#"{"quiet_hours_start":"22:00"}"#).1 == ["quiet_hours_end"])
        #expect(try change(#"{"quiet_hours_end":"25:00"}"#).1 == ["quiet_hours_end"])
    }
}
