// Carillon · QuietCalendarTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Testing

@testable import Core

@Suite("Decision: quiet hours", .timeLimit(.minutes(10)))
struct QuietCalendarTests {
    private static let zones = SystemZones()

    private static func moment(_ text: String) throws -> Timestamp { try #require(Timestamp(rfc3339: text)) }

    private static func hours(_ start: String, _ end: String, weekdays: UInt8 = 0x7F) throws -> QuietHours {
        QuietHours(
            start: try #require(LocalTime(start)).minutes, end: try #require(LocalTime(end)).minutes,
            weekdays: weekdays)
    }

    @Test(
        "finds the end of the window around a moment",
        arguments: [
            // Berlin is an hour east in winter; the window crosses midnight.
            ("Europe/Berlin", "22:00", "07:00", "2026-11-20T20:59:59Z", nil),
            ("Europe/Berlin", "22:00", "07:00", "2026-11-20T21:00:00Z", "2026-11-21T06:00:00Z"),
            ("Europe/Berlin", "22:00", "07:00", "2026-11-21T03:00:00Z", "2026-11-21T06:00:00Z"),
            ("Europe/Berlin", "22:00", "07:00", "2026-11-21T05:59:59Z", "2026-11-21T06:00:00Z"),
            ("Europe/Berlin", "22:00", "07:00", "2026-11-21T06:00:00Z", nil),
            // Within a day.
            ("Europe/Berlin", "13:00", "15:00", "2026-11-21T12:30:00Z", "2026-11-21T14:00:00Z"),
            ("Europe/Berlin", "13:00", "15:00", "2026-11-21T14:30:00Z", nil),
            // Equal start and end mean no window.
            ("Europe/Berlin", "08:00", "08:00", "2026-11-21T07:00:00Z", nil),
            // Clocks go forward at 2:00 on 2026-03-29: an end in the gap is the first moment after
            // it.
            ("Europe/Berlin", "22:00", "02:30", "2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z"),
            // A start in the gap is that moment too.
            ("Europe/Berlin", "02:30", "04:00", "2026-03-29T00:59:59Z", nil),
            ("Europe/Berlin", "02:30", "04:00", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"),
            // Clocks go back at 3:00 on 2026-10-25: of a time that occurs twice, the first counts.
            ("Europe/Berlin", "22:00", "02:30", "2026-10-25T00:29:59Z", "2026-10-25T00:30:00Z"),
            ("Europe/Berlin", "22:00", "02:30", "2026-10-25T00:30:00Z", nil),
            // Daylight saving of half an hour.
            ("Australia/Lord_Howe", "23:00", "06:00", "2026-10-03T18:00:00Z", "2026-10-03T19:00:00Z"),
            ("Asia/Kathmandu", "22:00", "06:00", "2026-11-20T16:15:00Z", "2026-11-21T00:15:00Z"),
        ] as [(String, String, String, String, String?)]
    )
    func ends(zone: String, start: String, end: String, at: String, expected: String?) throws {
        let rules = try #require(Self.zones.rules(zone))
        let calendar = QuietCalendar(try Self.hours(start, end), zone: rules)
        let moment = try Self.moment(at)
        let found = calendar.end(at: moment)
        if let expected, expected != at {
            #expect(found == (try Self.moment(expected)))
        } else {
            #expect(found == nil)
        }
    }

    @Test("a weekday is the day on which the window starts")
    func weekdays() throws {
        // Only Friday, 2026-11-20.
        let calendar = QuietCalendar(try Self.hours("22:00", "07:00", weekdays: 1 << 4), zone: .utc)
        #expect(calendar.end(at: try Self.moment("2026-11-20T23:00:00Z")) != nil)
        #expect(calendar.end(at: try Self.moment("2026-11-21T06:00:00Z")) != nil)
        #expect(calendar.end(at: try Self.moment("2026-11-21T23:00:00Z")) == nil)
        #expect(calendar.end(at: try Self.moment("2026-11-20T06:00:00Z")) == nil)
    }

    @Test("the end is after the moment and outside every window, for any zone, times and moment")
    func property() throws {
        let names = [
            "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia",
            "Africa/Casablanca", "America/St_Johns", "Asia/Tehran", "Europe/Dublin", "Antarctica/Troll",
        ]
        var generator = SeededGenerator(seed: 20_261_120)
        for _ in 0..<4_000 {
            let rules = try #require(Self.zones.rules(names.randomElement(using: &generator) ?? ""))
            let hours = QuietHours(
                start: .random(in: 0..<1_440, using: &generator),
                end: .random(in: 0..<1_440, using: &generator),
                weekdays: .random(in: 0...0x7F, using: &generator)
            )
            let calendar = QuietCalendar(hours, zone: rules)
            // From 2000 to 2060, also near clock changes.
            let now = Timestamp(seconds: .random(in: 946_684_800...2_840_140_800, using: &generator))
            guard let end = calendar.end(at: now) else { continue }
            #expect(end > now)
            #expect(calendar.end(at: end) == nil)
            #expect(calendar.end(at: now) == end)
        }
    }
}
