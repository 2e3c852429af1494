// Carillon · RetryBudgetTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Pipeline

struct RetryBudgetTests {
    private static let start = Timestamp(seconds: 1_000)

    @Test("while a provider works all that is due goes out")
    func unbounded() {
        var budget = RetryBudget()
        budget.note(sent: 1_000, failed: 90, now: Self.start)
        budget.note(sent: 0, failed: 0, now: Self.start + .seconds(10))
        #expect(budget.allowance(now: Self.start + .seconds(10)) == .max)
    }

    @Test("while it fails a tenth of its traffic does, and what is spent comes back with time")
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

    /// One that fails: 20 are sent in 10 s, all of them in vain.
    private static func failing() -> RetryBudget {
        var budget = RetryBudget()
        budget.note(sent: 0, failed: 0, now: Self.start)
        budget.note(sent: 20, failed: 20, now: Self.start + .seconds(10))
        _ = budget.allowance(now: Self.start + .seconds(10))
        return budget
    }

    /// What may be moved at each of these seconds, if all of it is.
    private static func allowances(_ budget: inout RetryBudget, _ seconds: ClosedRange<Int>) -> [Int] {
        seconds.map { second in
            let count = budget.allowance(now: Self.start + .seconds(second))
            budget.spend(count)
            return count
        }
    }

    @Test("a few go out in any case; once it works, twice as many every 5 s, and all once nothing is due any more")
    func recovers() {
        var budget = Self.failing()
        #expect(Self.allowances(&budget, 11...19) == Array(repeating: 20, count: 9))
        budget.noteEmpty(now: Self.start + .seconds(19))
        budget.note(sent: 200, failed: 0, now: Self.start + .seconds(20))
        // What was held back comes due over a while.
        budget.noteEmpty(now: Self.start + .seconds(20))
        #expect(
            Self.allowances(&budget, 20...35)
                == Array(repeating: 20, count: 5) + Array(repeating: 40, count: 5) + Array(repeating: 80, count: 5)
                + [160])
        budget.noteEmpty(now: Self.start + .seconds(35))
        #expect(budget.allowance(now: Self.start + .seconds(36)) == .max)
    }

    @Test("one that fails again while it recovers begins anew")
    func failsAgain() {
        var budget = Self.failing()
        budget.note(sent: 200, failed: 0, now: Self.start + .seconds(20))
        #expect(Self.allowances(&budget, 20...25).last == 40)
        budget.note(sent: 300, failed: 60, now: Self.start + .seconds(26))
        #expect(budget.allowance(now: Self.start + .seconds(26)) == 20)
    }

    @Test("what gathers while a provider is out of use comes back by steps too, the first a tenth of what it had")
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
