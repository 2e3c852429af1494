// Carillon · AllowanceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Core
@testable import HTTP
@testable import Storage

@Suite("The family-finance app's JSON", .timeLimit(.minutes(10)))
struct AllowanceShapeTests {
    private static let now = Timestamp(milliseconds: 1_795_168_800_123)
    private static let id = NotificationID(high: 0x01A1_F866_0D7B_841C, low: 0xA9A6_5597_AA05_75F3)

    static func type(_ name: String, code: Int?, change: (inout NotificationType) -> Void = { _ in })
        -> NotificationType
    {
        var type = NotificationType(name: name)
        type.code = code
        change(&type)
        return type
    }

    private static func value(_ write: (inout JSONWriter) -> Void) throws -> JSONValue {
        var writer = JSONWriter()
        writer.beginObject()
        write(&writer)
        writer.endObject()
        return try JSONParser.parse(writer.bytes)
    }

    @Test("encodes a page with integer codes, counts and relative times")
    func page() throws {
        var page = InboxStore.OffsetPage()
        page.matching = 3
        page.unread = 2
        for name in ["GoalProgress", "unknown"] {
            let notification = Notification(id: Self.id, user: "u", type: name, createdAt: Self.now)
            page.items.append(.init(notification: notification, sentVia: nil))
        }
        let query = PageQuery(offset: 0, limit: 2, unreadOnly: false)
        let goal = Self.type("GoalProgress", code: 20)
        let value = try Self.value { writer in
            AllowanceShape.write(
                page,
                of: query,
                types: { $0 == goal.name ? goal : nil },
                now: Self.now + .seconds(7_200),
                to: &writer
            )
        }
        #expect(value["unreadCount"]?.integer == 2)
        #expect(value["totalCount"]?.integer == 3)
        #expect(value["hasMore"]?.bool == true)
        let items = value["notifications"]?.array
        #expect(items?.compactMap { $0["type"]?.integer } == [20, 0])
        #expect(items?.compactMap { $0["timeAgo"]?.string } == ["2h ago", "2h ago"])
    }

    @Test(
        "reports whether there is more",
        arguments: [
            (0, 20, 20, false), (0, 20, 21, true), (20, 20, 40, false), (40, 20, 40, false), (0, 20, 0, false),
            // No page begins beyond 10,000.
            (9_980, 20, 20_000, true), (9_990, 30, 20_000, false), (10_000, 20, 20_000, false),
        ]
    )
    func hasMore(offset: Int, limit: Int, total: Int32, expected: Bool) throws {
        var page = InboxStore.OffsetPage()
        page.matching = total
        let query = PageQuery(offset: offset, limit: limit, unreadOnly: false)
        let value = try Self.value { writer in
            AllowanceShape.write(page, of: query, types: { _ in nil }, now: Self.now, to: &writer)
        }
        #expect(value["hasMore"]?.bool == expected)
    }

    @Test(
        "encodes platforms as numbers and also reads names and numbers as text",
        arguments: [
            (.number("1"), .ios), (.number("2"), .android), (.number("3"), .web), (.string("iOS"), .ios),
            (.string("1"), .ios), (.string("2"), .android), (.string("3"), .web),
            (.number("4"), nil), (.string("4"), nil), (.string("palm"), nil), (.null, nil),
        ] as [(JSONValue, Platform?)]
    )
    func platforms(value: JSONValue, platform: Platform?) {
        #expect(AllowanceShape.platform(value) == platform)
        if let platform {
            #expect(AllowanceShape.platform(.number("\(AllowanceShape.code(of: platform))")) == platform)
        }
    }

    @Test("encodes a device without its token")
    func device() throws {
        var device = Device(
            id: Self.id,
            user: "u",
            platform: .android,
            provider: .fcm,
            app: "default",
            environment: .production,
            token: "secret-token",
            registeredAt: Self.now
        )
        device.name = "Pixel"
        device.registeredAt = Self.now + .seconds(60)
        var writer = JSONWriter()
        AllowanceShape.write(device, to: &writer)
        #expect(
            String(decoding: writer.bytes, as: UTF8.self)
                == #"{"id":"01a1f866-0d7b-841c-a9a6-5597aa0575f3","platform":2,"deviceName":"Pixel","isActive":true,"#
                + #""createdAt":"2026-11-20T10:00:00.123Z","lastUsedAt":"2026-11-20T10:00:00.123Z"}"#)
    }

    @Test(
        "lists what holds for types with a code, by code; in-app and push default to on, e-mail to off")
    func preferences() throws {
        let types = CodedTypes([
            Self.type("WeeklySummary", code: 70),
            Self.type("BalanceAlert", code: 1) {
                $0.category = "Balance & Transactions"
                $0.channels = .all
            },
            Self.type("uncoded", code: nil),
            Self.type("Security", code: 5) {
                $0.isRequired = true
                $0.channels = .all
            },
            Self.type("Statement", code: 80) { $0.channels = [.email] },
        ])
        var settings = UserSettings()
        settings.quietHours = QuietHours(start: 1_320, end: 450)
        let value = try Self.value { writer in
            AllowanceShape.write(
                types,
                preferences: [
                    "BalanceAlert": TypePreference(push: false, email: true),
                    "Security": TypePreference(push: false, email: false),
                    "Statement": TypePreference(inApp: true, push: true),
                    "WeeklySummary": TypePreference(email: true),
                ],
                settings: settings,
                to: &writer
            )
        }
        let items = try #require(value["preferences"]?.array)
        #expect(items.compactMap { $0["notificationType"]?.integer } == [1, 5, 70, 80])
        #expect(
            items.compactMap { $0["typeName"]?.string } == ["Balance Alert", "Security", "Weekly Summary", "Statement"])
        #expect(items.compactMap { $0["category"]?.string } == ["Balance & Transactions", "Other", "Other", "Other"])
        #expect(items.compactMap { $0["inAppEnabled"]?.bool } == [true, true, true, false])
        #expect(items.compactMap { $0["pushEnabled"]?.bool } == [false, true, true, false])
        #expect(items.compactMap { $0["emailEnabled"]?.bool } == [true, true, false, true])
        #expect(value["quietHoursEnabled"]?.bool == true)
        #expect(value["quietHoursStart"]?.string == "22:00:00")
        #expect(value["quietHoursEnd"]?.string == "07:30:00")
        settings.pausedQuietHours = settings.quietHours
        settings.quietHours = nil
        let paused = try Self.value { AllowanceShape.write(types, preferences: [:], settings: settings, to: &$0) }
        #expect(paused["quietHoursEnabled"]?.bool == false)
        #expect(paused["quietHoursStart"]?.string == "22:00:00")
        #expect(paused["quietHoursEnd"]?.string == "07:30:00")
    }

    @Test("applies a category's preference to its types, per channel, unless a type has its own")
    func categories() throws {
        func category(_ type: inout NotificationType) {
            type.category = "c"
            type.channels = .all
        }
        let types = CodedTypes([
            Self.type("a", code: 1, change: category), Self.type("b", code: 2, change: category),
            Self.type("d", code: 3) { $0.category = "other" }, Self.type("e", code: 4),
        ])
        let preferences = [
            PreferenceKey.category("c"): TypePreference(inApp: false, push: false, email: true),
            "b": TypePreference(push: true),
        ]
        let value = try Self.value {
            AllowanceShape.write(types, preferences: preferences, settings: UserSettings(), to: &$0)
        }
        let items = try #require(value["preferences"]?.array)
        #expect(items.compactMap { $0["inAppEnabled"]?.bool } == [false, false, true, true])
        #expect(items.compactMap { $0["pushEnabled"]?.bool } == [false, true, true, true])
        #expect(items.compactMap { $0["emailEnabled"]?.bool } == [true, true, false, false])
    }

    @Test("finds a type by its number, and by its name in any case")
    func codes() {
        let types = CodedTypes([Self.type("BalanceAlert", code: 1), Self.type("uncoded", code: nil)])
        #expect(types.find("1")?.name == "BalanceAlert")
        #expect(types.find("balancealert")?.name == "BalanceAlert")
        #expect(types.find("2") == nil)
        #expect(types.find("uncoded") == nil)
        #expect(types[1]?.name == "BalanceAlert")
    }
}

@Suite("Requests of the family-finance app", .timeLimit(.minutes(10)))
struct AllowanceRequestTests {
    private static let types = CodedTypes([
        AllowanceShapeTests.type("BalanceAlert", code: 1),
        AllowanceShapeTests.type("GoalProgress", code: 20),
        AllowanceShapeTests.type("Security", code: 5) { $0.isRequired = true },
    ])

    private static func fields(_ json: String) throws -> FieldReader {
        FieldReader(lenient: try JSONParser.parse(Array(json.utf8)))
    }

    @Test("leaves omitted preferences unchanged and accepts a required type that is not changed")
    func preferences() throws {
        var fields = try Self.fields(
            #"{"preferences":[{"notificationType":1,"inAppEnabled":true,"pushEnabled":false,"emailEnabled":true},"#
                + #"{"notificationType":20,"emailEnabled":true},"#
                + #"{"notificationType":5,"inAppEnabled":true,"pushEnabled":true,"emailEnabled":false}]}"#
        )
        let changed = AllowanceRequests.preferences(&fields, types: Self.types)
        #expect(fields.faults.isEmpty)
        #expect(
            changed == [
                "BalanceAlert": TypePreference(inApp: true, push: false, email: true),
                "GoalProgress": TypePreference(email: true),
                "Security": TypePreference(email: false),
            ])
    }

    @Test(
        "names the faulty entry",
        arguments: [
            (#"{}"#, ["preferences"]), (#"{"preferences":{}}"#, ["preferences"]),
            (#"{"preferences":[{"pushEnabled":true}]}"#, ["preferences[0].notificationType"]),
            (
                #"{"preferences":[{"notificationType":1},{"notificationType":77,"pushEnabled":"maybe"}]}"#,
                ["preferences[1].pushEnabled", "preferences[1].notificationType"]
            ),
            (#"{"preferences":[{"notificationType":5,"pushEnabled":false}]}"#, ["preferences[0].notificationType"]),
        ]
    )
    func faults(json: String, places: [String]) throws {
        var fields = try Self.fields(json)
        _ = AllowanceRequests.preferences(&fields, types: Self.types)
        #expect(fields.faults.map(\.field) == places)
    }

    @Test(
        "reads quiet hours as times, or as a switch alone",
        arguments: [
            (
                #"{"enabled":true,"startTime":"22:00","endTime":"07:00:00"}"#,
                .times(QuietHours(start: 1_320, end: 420), isOn: true)
            ),
            (
                #"{"enabled":false,"startTime":"22:00:00","endTime":"07:00:00"}"#,
                .times(QuietHours(start: 1_320, end: 420), isOn: false)
            ),
            (#"{"enabled":false,"startTime":null,"endTime":null}"#, .switched(on: false)),
            (#"{"enabled":true}"#, .switched(on: true)),
            (#"{"enabled":true,"startTime":"22:00","endTime":"22:00"}"#, .times(nil, isOn: true)),
        ] as [(String, AllowanceRequests.QuietChange)]
    )
    func quietHours(json: String, expected: AllowanceRequests.QuietChange) throws {
        var fields = try Self.fields(json)
        #expect(AllowanceRequests.quietHours(&fields) == expected)
        #expect(fields.faults.isEmpty)
    }

    @Test(
        "names the fault of quiet hours",
        arguments: [
            (#"{}"#, ["enabled"]), (#"{"enabled":"maybe"}"#, ["enabled"]),
            (#"{"enabled":true,"startTime":null,"endTime":"07:00"}"#, ["startTime"]),
            (#"{"enabled":false,"startTime":"22:00"}"#, ["endTime"]),
            (#"{"enabled":true,"startTime":"25:00","endTime":"x"}"#, ["startTime", "endTime"]),
        ]
    )
    func quietFaults(json: String, places: [String]) throws {
        var fields = try Self.fields(json)
        #expect(AllowanceRequests.quietHours(&fields) == nil)
        #expect(fields.faults.map(\.field) == places)
    }
}
