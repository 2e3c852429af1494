// Carillon · Schedules.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation

/// Times and queries for tests of schedules.
enum Schedules {
    static func now() -> Timestamp {
        Timestamp(microseconds: Int64(Date.now.timeIntervalSince1970 * 1_000_000))
    }

    static func later(_ duration: Duration) -> String { (self.now() + duration).rfc3339 }

    /// Makes everything that waits due.
    static func makeDue(_ stack: Stack) async throws {
        try await stack.query("UPDATE carillon.schedules SET due_at = now(), wake_at = now()")
    }

    /// The start of the previous minute.
    static func lastMinute() -> Timestamp {
        Timestamp(seconds: (self.now().seconds / 60 - 1) * 60)
    }

    /// The body that creates a daily schedule at the UTC time of `moment`.
    static func daily(at moment: Timestamp, zone: String = "UTC", job: String) -> String {
        let minute = moment.seconds / 60 % 1_440
        return #"{"cron":"\#(minute % 60) \#(minute / 60) * * *","zone":"\#(zone)","job":\#(job)}"#
    }

    /// Makes everything that waits due; recurring schedules become due at `daily`.
    static func makeDue(_ stack: Stack, daily: Timestamp) async throws {
        try await stack.query(
            """
            UPDATE carillon.schedules SET due_at = CASE WHEN cron IS NULL THEN now() ELSE $1 END, wake_at = now()
            """,
            .timestamptz(daily.microseconds)
        )
    }

    static func count(_ stack: Stack) async throws -> Int64 {
        try await stack.query("SELECT count(*) FROM carillon.schedules").first?.int8(0) ?? -1
    }
}
