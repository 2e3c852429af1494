// Carillon · CronTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Testing

@testable import Core

@Suite(.timeLimit(.minutes(10)))
struct CronTests {
    private static let zones = SystemZones()

    private static func moment(_ text: String) throws -> Timestamp { try #require(Timestamp(rfc3339: text)) }

    /// Expression, zone, moment, next firing time.
    @Test(
        "finds the next moment",
        arguments: [
            ("0 9 * * *", "UTC", "2026-11-20T08:59:59Z", "2026-11-20T09:00:00Z"),
            ("0 9 * * *", "UTC", "2026-11-20T09:00:00Z", "2026-11-21T09:00:00Z"),
            ("0 9 * * MON-FRI", "UTC", "2026-11-20T09:00:00Z", "2026-11-23T09:00:00Z"),
            ("0 9 * * 1-5", "Europe/Berlin", "2026-11-20T08:00:00Z", "2026-11-23T08:00:00Z"),
            ("*/15 * * * *", "UTC", "2026-11-20T09:01:00Z", "2026-11-20T09:15:00Z"),
            ("* * * * *", "UTC", "2026-11-20T09:01:30.5Z", "2026-11-20T09:02:00Z"),
            ("5-59/20 * * * *", "UTC", "2026-11-20T09:26:00Z", "2026-11-20T09:45:00Z"),
            ("30 6,18 * * *", "UTC", "2026-11-20T07:00:00Z", "2026-11-20T18:30:00Z"),
            ("0 0 1 jan *", "UTC", "2026-11-20T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("0 0 31 * *", "UTC", "2026-11-20T00:00:00Z", "2026-12-31T00:00:00Z"),
            ("0 0 29 2 *", "UTC", "2097-01-01T00:00:00Z", "2104-02-29T00:00:00Z"),
            ("0 12 * * 0", "UTC", "2026-11-20T00:00:00Z", "2026-11-22T12:00:00Z"),
            ("0 12 * * 7", "UTC", "2026-11-20T00:00:00Z", "2026-11-22T12:00:00Z"),
            ("0 12 * * 5-7", "UTC", "2026-11-20T13:00:00Z", "2026-11-21T12:00:00Z"),
            // Both day fields are restricted: either may match.
            ("0 0 13 * FRI", "UTC", "2026-11-20T00:00:00Z", "2026-11-27T00:00:00Z"),
            ("0 0 13 * FRI", "UTC", "2026-12-11T00:00:00Z", "2026-12-13T00:00:00Z"),
            // A star in one of them, even with a step: both must match.
            ("0 0 */2 * MON", "UTC", "2026-11-20T00:00:00Z", "2026-11-23T00:00:00Z"),
            ("0 0 */2 * MON", "UTC", "2026-11-23T00:00:00Z", "2026-12-07T00:00:00Z"),
            ("@daily", "Asia/Kathmandu", "2026-11-20T00:00:00Z", "2026-11-20T18:15:00Z"),
            ("@hourly", "UTC", "2026-11-20T09:59:00Z", "2026-11-20T10:00:00Z"),
            ("@weekly", "UTC", "2026-11-20T00:00:00Z", "2026-11-22T00:00:00Z"),
            ("@monthly", "UTC", "2026-11-20T00:00:00Z", "2026-12-01T00:00:00Z"),
            ("@yearly", "UTC", "2026-11-20T00:00:00Z", "2027-01-01T00:00:00Z"),
            // A time in a gap fires once, after it.
            ("30 2 * * *", "Europe/Berlin", "2026-03-28T02:00:00Z", "2026-03-29T01:00:00Z"),
            ("30 2 * * *", "Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"),
            ("15,45 2 * * *", "Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-30T00:15:00Z"),
            // A time in an overlap fires at the earlier of the two.
            ("30 2 * * *", "Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25T00:30:00Z"),
            ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
            // A rate skips a gap and fires in both halves of an overlap.
            ("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z"),
            ("30 * * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
            ("*/15 2 * * *", "Europe/Berlin", "2026-03-28T03:00:00Z", "2026-03-30T00:00:00Z"),
            ("*/30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z"),
            ("*/10 * * * *", "Australia/Lord_Howe", "2026-04-04T14:50:00Z", "2026-04-04T15:00:00Z"),
            // Midnight in a gap, and a whole day in a gap.
            ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", "2018-11-04T03:00:00Z"),
            ("0 12 30 12 *", "Pacific/Apia", "2011-12-29T00:00:00Z", "2011-12-30T10:00:00Z"),
            ("0 9 * * *", "America/New_York", "2126-07-01T13:00:00Z", "2126-07-02T13:00:00Z"),
        ])
    func next(cron: String, zone: String, after: String, expected: String) throws {
        let rules = try #require(Self.zones.rules(zone))
        let next = try CronExpression(cron).next(after: try Self.moment(after), in: rules)
        #expect(next?.rfc3339 == (try Self.moment(expected)).rfc3339)
    }

    @Test(
        "faults name the field",
        arguments: [
            ("60 * * * *", "minute"), ("* 24 * * *", "hour"), ("* * 0 * *", "day of month"),
            ("* * 32 * *", "day of month"),
            ("* * * 13 *", "month"), ("* * * FOO *", "month"), ("* * * * 8", "day of week"),
            ("* * * * MOO", "day of week"),
            ("*/0 * * * *", "minute"), ("*/60 * * * *", "minute"), ("5/15 * * * *", "minute"),
            ("1-2-3 * * * *", "minute"),
            ("5-1 * * * *", "minute"), ("1,,2 * * * *", "minute"), (", * * * *", "minute"), ("*/2/3 * * * *", "minute"),
            ("-1 * * * *", "minute"), ("+1 * * * *", "minute"), ("* * * * FRI-MON", "day of week"),
            ("* * ? * *", "day of month"), ("0 0 L * *", "day of month"), ("0 0 * * 5#2", "day of week"),
            ("0 0 30 2 *", "day of month"), ("0 0 31 4,6,9,11 *", "day of month"), ("0 0 30,31 feb *", "day of month"),
            ("", "cron"), ("* * * *", "cron"), ("* * * * * *", "cron"), ("@reboot", "cron"), ("@", "cron"),
            (String(repeating: "1,", count: 200) + "1 * * * *", "cron"), ("٣ * * * *", "minute"),
        ])
    func faults(cron: String, field: String) {
        let fault = #expect(throws: CronFault.self) { try CronExpression(cron) }
        #expect(fault?.field == field)
        #expect(fault?.reason.isEmpty == false)
    }

    @Test("if either day field may match, an impossible date is no fault")
    func eitherDay() throws {
        let next = try CronExpression("0 0 30 2 MON").next(after: try Self.moment("2026-01-01T00:00:00Z"), in: .utc)
        #expect(next?.rfc3339 == "2026-02-02T00:00:00.000Z")
    }

    @Test("finds the rarest date, and every search ends")
    func rarest() throws {
        let cron = try CronExpression("0 0 29 2 */6")
        let next = try #require(cron.next(after: try Self.moment("2026-01-01T00:00:00Z"), in: .utc))
        #expect([0, 6].contains((CivilDate(daysSinceEpoch: Int(next.seconds / 86_400)).weekday + 1) % 7))
        #expect(next.rfc3339.hasPrefix("20") && next.rfc3339.contains("-02-29"))
    }

    /// Each firing time is later than the one before, matches the expression (or ends a gap), and
    /// none is skipped.
    @Test(
        "firing times ascend and match the expression", arguments: ["Europe/Berlin", "America/New_York", "Asia/Gaza"])
    func ascend(zone: String) throws {
        let rules = try #require(Self.zones.rules(zone))
        for text in ["30 2 * * *", "*/7 1-3 * * *", "0 0 1,15 * 3", "15 */5 * 3,10 *"] {
            let cron = try CronExpression(text)
            var moment = try Self.moment("2026-01-01T00:00:00Z")
            for _ in 0..<1_500 {
                let next = try #require(cron.next(after: moment, in: rules))
                #expect(next > moment)
                #expect(cron.next(after: Timestamp(microseconds: next.microseconds - 1), in: rules) == next)
                moment = next
            }
        }
    }
}
