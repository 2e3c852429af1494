// Carillon · RecurrenceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@Suite struct RecurrenceTests {
    private static func moment(_ text: String) throws -> Timestamp { try #require(Timestamp(rfc3339: text)) }

    /// Expression, due occurrence, now, firing occurrence, next occurrence.
    @Test(
        "missed occurrences fire once, as the last one, if it is within the hour",
        arguments: [
            ("0 9 * * *", "2026-11-20T09:00:00Z", "2026-11-20T09:00:00Z", "2026-11-20T09:00", "2026-11-21T09:00"),
            ("0 9 * * *", "2026-11-20T09:00:00Z", "2026-11-20T09:59:59Z", "2026-11-20T09:00", "2026-11-21T09:00"),
            ("0 9 * * *", "2026-11-20T09:00:00Z", "2026-11-20T10:00:01Z", nil, "2026-11-21T09:00"),
            ("0 9 * * *", "2026-11-18T09:00:00Z", "2026-11-20T09:30:00Z", "2026-11-20T09:00", "2026-11-21T09:00"),
            ("*/10 * * * *", "2026-11-18T09:00:00Z", "2026-11-20T09:35:00Z", "2026-11-20T09:30", "2026-11-20T09:40"),
            ("* * * * *", "2020-01-01T00:00:00Z", "2026-11-20T09:35:00Z", "2026-11-20T09:35", "2026-11-20T09:36"),
            ("0 9 * * *", "2026-11-20T09:00:00Z", "2026-11-20T08:00:00Z", nil, "2026-11-20T09:00"),
        ])
    func missed(cron: String, due: String, now: String, fires: String?, next: String) throws {
        let recurrence = try Recurrence(try CronExpression(cron), in: .utc)
        let result = recurrence.resume(from: try Self.moment(due), now: try Self.moment(now))
        #expect(result.fires.map { String($0.at.rfc3339.prefix(16)) } == fires)
        #expect(result.next.map { String($0.at.rfc3339.prefix(16)) } == next)
    }

    /// Expression, offset in hours under the old and the new rules, due occurrence, now, new due
    /// time.
    @Test(
        "new zone rules move a pending occurrence to the same time of the same day, even if past",
        arguments: [
            // Today's was pending, and its time is now half an hour ago.
            ("0 9 * * *", 1, 2, "2026-11-20T08:00:00Z", "2026-11-20T07:30:00Z", "2026-11-20T07:00"),
            // Today's has fired, although its time comes again.
            ("0 9 * * *", 2, 1, "2026-11-21T07:00:00Z", "2026-11-20T07:30:00Z", "2026-11-21T08:00"),
            ("0 9,10 * * *", 2, 1, "2026-11-20T08:00:00Z", "2026-11-20T07:30:00Z", "2026-11-20T09:00"),
            // A rate has nothing to miss.
            ("0 */2 * * *", 1, 2, "2026-11-20T09:00:00Z", "2026-11-20T07:30:00Z", "2026-11-20T08:00"),
        ])
    func newLaw(cron: String, before: Int, after: Int, due: String, now: String, moved: String) throws {
        func recurrence(_ hours: Int) throws -> Recurrence {
            // The sign in these names counts westwards.
            try Recurrence(
                try CronExpression(cron), in: SystemZones().rules("Etc/GMT-\(hours)"))
        }
        let was = try recurrence(before)
        let due = Recurrence.Occurrence(at: try Self.moment(due))
        let now = try Self.moment(now)
        #expect(was.next(after: Timestamp(microseconds: due.at.microseconds - 1)) == due)
        let result = try recurrence(after).moved(was.wall(of: due), now: now)
        #expect(result.map { String($0.rfc3339.prefix(16)) } == moved)
    }

    @Test("start and end bound the schedule")
    func bounds() throws {
        let recurrence = try Recurrence(
            try CronExpression("0 9 * * *"),
            in: .utc,
            startsAt: try Self.moment("2026-12-01T09:00:00Z"),
            endsAt: try Self.moment("2026-12-02T09:00:00Z")
        )
        let first = try #require(recurrence.next(after: try Self.moment("2026-11-20T00:00:00Z")))
        #expect(first.at.rfc3339.hasPrefix("2026-12-01T09:00"))
        let second = try #require(recurrence.next(after: first.at))
        #expect(second.at.rfc3339.hasPrefix("2026-12-02T09:00"))
        #expect(recurrence.next(after: second.at) == nil)
        #expect(recurrence.resume(from: second.at, now: second.at).next == nil)
    }

    @Test("a schedule in the recipients' zones is split before any clock shows the time")
    func recipients() throws {
        let recurrence = try Recurrence(try CronExpression("0 9 * * *"), in: nil)
        let first = try #require(recurrence.next(after: try Self.moment("2026-11-19T20:00:00Z")))
        #expect(first.wall?.description == "2026-11-21T09:00")
        #expect(first.at.rfc3339.hasPrefix("2026-11-20T18:00"))
        // Three hours late, few clocks have shown the time: it is split, and the next one is
        // tomorrow's.
        let late = recurrence.resume(from: first.at, now: first.at + .seconds(3 * 3_600))
        #expect(late.fires == first)
        #expect(late.next?.wall?.description == "2026-11-22T09:00")
        // Two days late, occurrences that are past everywhere are skipped.
        let later = recurrence.resume(from: first.at, now: first.at + .seconds(48 * 3_600))
        #expect(later.fires?.wall?.description == "2026-11-22T09:00")
    }

    @Test("a rate needs a zone", arguments: ["*/5 * * * *", "0 * * * *", "* 9 * * *"])
    func pace(cron: String) {
        #expect(throws: CronFault.self) { try Recurrence(try CronExpression(cron), in: nil) }
    }
}
