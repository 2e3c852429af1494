// Carillon · AllowanceRequestTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import HTTP

@Suite("What the family-finance app's clients send", .timeLimit(.minutes(10)))
struct AllowanceRequestTests {
    private static let types = CodedTypes([
        AllowanceShapeTests.type("BalanceAlert", code: 1),
        AllowanceShapeTests.type("GoalProgress", code: 20),
        AllowanceShapeTests.type("Security", code: 5) { $0.isRequired = true },
    ])

    private static func fields(_ json: String) throws -> RequestFields {
        RequestFields(try JSONParser.parse(Array(json.utf8)))
    }

    @Test("Preferences: nothing is said of what is left out; a required type may come as it is")
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
        "Faults name the entry",
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
        "Quiet hours",
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
        "Faults of quiet hours",
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
