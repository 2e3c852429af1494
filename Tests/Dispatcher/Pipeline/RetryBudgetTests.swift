// Carillon · RetryBudgetTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Pipeline

struct RetryBudgetTests {
    private static let start = Timestamp(seconds: 1_000)

    @Test("retries everything due while a provider works")
    func unbounded() {
        var budget = RetryBudget()
        budget.note(sent: 1_000, failed: 90, now: Self.start)
        budget.note(sent: 0, failed: 0, now: Self.start + .seconds(10))
        #expect(budget.allowance(now: Self.start + .seconds(10)) == .max)
    }

    @Test("limits retries to a tenth of the traffic while a provider fails")
    func bounded() {
        var budget = RetryBudget()
        budget.note(sent: 0, failed: 0, now: Self.start)
        budget.note(sent: 10_000, failed: 9_000, now: Self.start + .seconds(10))
        #expect(budget.allowance(now: Self.start + .seconds(10)) == 0)
        #expect(budget.allowance(now: Self.start + .seconds(11)) == 100)
        budget.spend(100)
        #expect(budget.allowance(now: Self.start + .seconds(11)) == 0)
        #expect(budget.allowance(now: Self.start + .milliseconds(11_500)) == 50)
        #expect(budget.allowance(now: Self.start + .seconds(60)) == 100)
    }

    /// A budget after 20 calls in 10 s that all failed.
    private static func failing() -> RetryBudget {
        var budget = RetryBudget()
        budget.note(sent: 0, failed: 0, now: Self.start)
        budget.note(sent: 20, failed: 20, now: Self.start + .seconds(10))
        _ = budget.allowance(now: Self.start + .seconds(10))
        return budget
    }

    /// The allowance at each second when all of it is used.
    private static func allowances(_ budget: inout RetryBudget, _ seconds: ClosedRange<Int>) -> [Int] {
        seconds.map { second in
            let count = budget.allowance(now: Self.start + .seconds(second))
            budget.spend(count)
            return count
        }
    }

    @Test("always allows a few retries and doubles them every 5 s once the provider works")
    func recovers() {
        var budget = Self.failing()
        #expect(Self.allowances(&budget, 11...19) == Array(repeating: 20, count: 9))
        budget.noteEmpty(now: Self.start + .seconds(19))
        budget.note(sent: 200, failed: 0, now: Self.start + .seconds(20))
        // The backlog comes due over some time.
        budget.noteEmpty(now: Self.start + .seconds(20))
        #expect(
            Self.allowances(&budget, 20...35)
                == Array(repeating: 20, count: 5) + Array(repeating: 40, count: 5) + Array(repeating: 80, count: 5)
                + [160])
        budget.noteEmpty(now: Self.start + .seconds(35))
        #expect(budget.allowance(now: Self.start + .seconds(36)) == .max)
    }

    @Test("starts over when a provider fails while it recovers")
    func failsAgain() {
        var budget = Self.failing()
        budget.note(sent: 200, failed: 0, now: Self.start + .seconds(20))
        #expect(Self.allowances(&budget, 20...25).last == 40)
        budget.note(sent: 300, failed: 60, now: Self.start + .seconds(26))
        #expect(budget.allowance(now: Self.start + .seconds(26)) == 20)
    }

    @Test("releases the backlog of an outage in steps, starting with a tenth of its former traffic")
    func outage() {
        var budget = RetryBudget()
        budget.note(sent: 0, failed: 0, now: Self.start)
        budget.note(sent: 3_000, failed: 20, now: Self.start + .seconds(10))
        #expect(budget.allowance(now: Self.start + .seconds(10)) == .max)
        budget.noteOutage(now: Self.start + .seconds(11))
        budget.noteOutage(now: Self.start + .seconds(30))
        #expect(Self.allowances(&budget, 31...36) == Array(repeating: 30, count: 4) + [60, 60])
        budget.noteOutage(now: Self.start + .seconds(37))
        #expect(Self.allowances(&budget, 38...38) == [30])
    }
}
