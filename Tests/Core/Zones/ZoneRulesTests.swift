// Carillon · ZoneRulesTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Testing

@testable import Core

@Suite struct CivilDateTests {
    @Test(arguments: [
        (1970, 1, 1, 0, 3), (2026, 11, 21, 20_778, 5), (2000, 2, 29, 11_016, 1), (1969, 12, 31, -1, 2),
        (1900, 3, 1, -25_508, 3), (2400, 2, 29, 157_113, 1),
    ])
    func daysAndWeekdays(year: Int, month: Int, day: Int, days: Int, weekday: Int) throws {
        let date = try #require(CivilDate(year: year, month: month, day: day))
        #expect(date.daysSinceEpoch == days)
        #expect(CivilDate(daysSinceEpoch: days) == date)
        #expect(date.weekday == weekday)
    }

    @Test(arguments: [(2026, 2, 29), (1900, 2, 29), (2026, 4, 31), (2026, 13, 1), (2026, 0, 1), (2026, 1, 0)])
    func refusesInvalidDays(year: Int, month: Int, day: Int) {
        #expect(CivilDate(year: year, month: month, day: day) == nil)
    }

    @Test func addsAndCompares() throws {
        let date = try #require(CivilDate(year: 2024, month: 2, day: 28))
        #expect(date.adding(days: 2).description == "2024-03-01")
        #expect(date.adding(days: -59).description == "2023-12-31")
        #expect(date < date.adding(days: 1))
    }
}

@Suite struct ZoneRulesTests {
    static let database = SystemZones()

    /// Moments and local times according to the IANA database.
    @Test(arguments: [
        ("Europe/Berlin", "2026-03-29T00:59:59Z", "2026-03-29 01:59:59", 3_600),
        ("Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-29 03:00:00", 7_200),
        ("Europe/Berlin", "2026-10-25T00:59:59Z", "2026-10-25 02:59:59", 7_200),
        ("Europe/Berlin", "2026-10-25T01:00:00Z", "2026-10-25 02:00:00", 3_600),
        ("Europe/Berlin", "2945-07-01T12:00:00Z", "2945-07-01 14:00:00", 7_200),
        ("Europe/Berlin", "2945-12-01T12:00:00Z", "2945-12-01 13:00:00", 3_600),
        ("Europe/Berlin", "1800-01-01T00:00:00Z", "1800-01-01 00:53:28", 3_208),
        ("America/New_York", "2026-03-08T06:59:59Z", "2026-03-08 01:59:59", -18_000),
        ("America/New_York", "2026-03-08T07:00:00Z", "2026-03-08 03:00:00", -14_400),
        ("America/New_York", "2026-11-01T06:00:00Z", "2026-11-01 01:00:00", -18_000),
        ("America/New_York", "2100-07-01T00:00:00Z", "2100-06-30 20:00:00", -14_400),
        ("Australia/Lord_Howe", "2026-04-04T14:59:59Z", "2026-04-05 01:59:59", 39_600),
        ("Australia/Lord_Howe", "2026-04-04T15:00:00Z", "2026-04-05 01:30:00", 37_800),
        ("Australia/Lord_Howe", "2026-10-03T15:30:00Z", "2026-10-04 02:30:00", 39_600),
        ("Australia/Lord_Howe", "2150-01-15T00:00:00Z", "2150-01-15 11:00:00", 39_600),
        ("Asia/Kathmandu", "2026-01-01T00:00:00Z", "2026-01-01 05:45:00", 20_700),
        ("Asia/Kathmandu", "2300-01-01T00:00:00Z", "2300-01-01 05:45:00", 20_700),
        ("Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29 23:59:59", -36_000),
        ("Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-31 00:00:00", 50_400),
        ("Africa/Casablanca", "2024-03-10T02:00:00Z", "2024-03-10 02:00:00", 0),
        ("Africa/Casablanca", "2024-04-14T02:00:00Z", "2024-04-14 03:00:00", 3_600),
        ("Europe/Dublin", "2026-01-15T12:00:00Z", "2026-01-15 12:00:00", 0),
        ("Europe/Dublin", "2026-07-15T12:00:00Z", "2026-07-15 13:00:00", 3_600),
        ("Europe/Dublin", "2126-01-15T12:00:00Z", "2126-01-15 12:00:00", 0),
        ("Europe/Dublin", "2126-07-15T12:00:00Z", "2126-07-15 13:00:00", 3_600),
        ("America/Sao_Paulo", "2018-11-04T03:00:00Z", "2018-11-04 01:00:00", -7_200),
        ("America/Sao_Paulo", "2026-01-01T00:00:00Z", "2025-12-31 21:00:00", -10_800),
        ("America/Sao_Paulo", "2400-01-01T00:00:00Z", "2399-12-31 21:00:00", -10_800),
        ("Etc/UTC", "2026-01-01T00:00:00Z", "2026-01-01 00:00:00", 0),
    ])
    func showsLocalTime(zone: String, moment: String, clock: String, offset: Int) throws {
        let rules = try #require(Self.database.rules(zone))
        let moment = try #require(Timestamp(rfc3339: moment))
        #expect(rules.offset(at: moment) == offset)
        let local = rules.local(at: moment)
        #expect("\(local.date) \(Self.clock(local.seconds))" == clock)
    }

    /// Local times and moments: plain, in a gap, in an overlap, on a skipped day.
    @Test(arguments: [
        ("Europe/Berlin", "2026-06-01", 540, "2026-06-01T07:00:00Z"),
        ("Europe/Berlin", "2026-03-29", 119, "2026-03-29T00:59:00Z"),
        ("Europe/Berlin", "2026-03-29", 120, "2026-03-29T01:00:00Z"),
        ("Europe/Berlin", "2026-03-29", 150, "2026-03-29T01:00:00Z"),
        ("Europe/Berlin", "2026-03-29", 180, "2026-03-29T01:00:00Z"),
        ("Europe/Berlin", "2026-03-29", 181, "2026-03-29T01:01:00Z"),
        ("Europe/Berlin", "2026-10-25", 119, "2026-10-24T23:59:00Z"),
        ("Europe/Berlin", "2026-10-25", 120, "2026-10-25T00:00:00Z"),
        ("Europe/Berlin", "2026-10-25", 150, "2026-10-25T00:30:00Z"),
        ("Europe/Berlin", "2026-10-25", 180, "2026-10-25T02:00:00Z"),
        ("Europe/Berlin", "2745-03-25", 150, "2745-03-25T01:00:00Z"),
        ("America/New_York", "2026-03-08", 150, "2026-03-08T07:00:00Z"),
        ("America/New_York", "2026-11-01", 90, "2026-11-01T05:30:00Z"),
        ("Australia/Lord_Howe", "2026-10-04", 135, "2026-10-03T15:30:00Z"),
        ("Australia/Lord_Howe", "2026-04-05", 105, "2026-04-04T14:45:00Z"),
        ("Pacific/Apia", "2011-12-30", 720, "2011-12-30T10:00:00Z"),
        ("Pacific/Apia", "2011-12-31", 0, "2011-12-30T10:00:00Z"),
        ("America/Sao_Paulo", "2018-11-04", 0, "2018-11-04T03:00:00Z"),
        ("Asia/Kathmandu", "2026-01-01", 0, "2025-12-31T18:15:00Z"),
        ("Europe/Berlin", "2026-06-01", 1_440, "2026-06-01T22:00:00Z"),
        ("Europe/Berlin", "2026-06-01", -1, "2026-05-31T21:59:00Z"),
    ])
    func findsTheMomentOfAWallClock(zone: String, day: String, minutes: Int, moment: String) throws {
        let rules = try #require(Self.database.rules(zone))
        #expect(rules.instant(try Self.date(day), minutes: minutes).rfc3339 == Timestamp(rfc3339: moment)?.rfc3339)
    }

    /// For many zones and moments: the moment of a wall time shows that time or ends its gap, and
    /// no earlier moment shows it.
    @Test("wall times and moments agree") func agreement() throws {
        var random = SeededGenerator(seed: 7)
        let zones = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Europe/Dublin"]
        for zone in zones + ["Pacific/Apia", "Asia/Kathmandu", "America/Sao_Paulo", "Antarctica/Troll", "Asia/Gaza"] {
            let rules = try #require(Self.database.rules(zone))
            for _ in 0..<2_000 {
                let date = CivilDate(daysSinceEpoch: Int.random(in: -40_000...90_000, using: &random))
                let minutes = Int.random(in: 0..<1_440, using: &random)
                let moment = rules.instant(date, minutes: minutes)
                let local = rules.local(at: moment)
                let wanted = date.daysSinceEpoch * 86_400 + minutes * 60
                let shown = local.date.daysSinceEpoch * 86_400 + local.seconds
                #expect(shown >= wanted)
                let before = rules.local(at: Timestamp(microseconds: moment.microseconds - 1_000_000))
                #expect(before.date.daysSinceEpoch * 86_400 + before.seconds < wanted)
                if let change = rules.change(after: moment) {
                    #expect(change > moment)
                }
            }
        }
    }

    @Test("the ends of time do not crash") func extremes() throws {
        let rules = try #require(Self.database.rules("Europe/Berlin"))
        for moment in [Timestamp(microseconds: .min), Timestamp(microseconds: .max)] {
            _ = rules.local(at: moment)
            _ = rules.change(after: moment)
        }
        let last = try #require(CivilDate(year: 999_999, month: 12, day: 31))
        #expect(rules.instant(last, minutes: .max) > rules.instant(last, minutes: .min))
        _ = ZoneRules.utc.instant(CivilDate(daysSinceEpoch: -1_000_000_000), minutes: .min)
    }

    private static func date(_ text: String) throws -> CivilDate {
        let parts = text.split(separator: "-").compactMap { Int($0) }
        return try #require(CivilDate(year: parts[0], month: parts[1], day: parts[2]))
    }

    private static func clock(_ seconds: Int) -> String {
        [seconds / 3_600, seconds / 60 % 60, seconds % 60].map { $0 < 10 ? "0\($0)" : "\($0)" }.joined(separator: ":")
    }
}
