// Carillon · Schedules.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Model
import Postgres

/// What tests of schedules ask.
enum Schedules {
    static func now() -> Timestamp {
        Timestamp(microseconds: Int64(Date.now.timeIntervalSince1970 * 1_000_000))
    }

    static func later(_ duration: Duration) -> String { (self.now() + duration).rfc3339 }

    /// The moment of all that waits has come.
    static func makeDue(_ stack: Stack) async throws {
        try await stack.query("UPDATE carillon.schedules SET due_at = now(), wake_at = now()")
    }

    static func count(_ stack: Stack) async throws -> Int64 {
        try await stack.query("SELECT count(*) FROM carillon.schedules").first?.int8(0) ?? -1
    }
}
