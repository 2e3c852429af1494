// Carillon · RetryBudgetTests.swift
// SPDX-License-Identifier: Apache-2.0

import Model
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

    @Test("a few go out in any case, and all again once it works")
    func recovers() {
        var budget = RetryBudget()
        budget.note(sent: 0, failed: 0, now: Self.start)
        budget.note(sent: 20, failed: 20, now: Self.start + .seconds(10))
        _ = budget.allowance(now: Self.start + .seconds(10))
        #expect(budget.allowance(now: Self.start + .seconds(11)) == 20)
        budget.note(sent: 200, failed: 0, now: Self.start + .seconds(20))
        #expect(budget.allowance(now: Self.start + .seconds(20)) == .max)
    }
}
