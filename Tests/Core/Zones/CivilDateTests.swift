// Carillon · CivilDateTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

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
    func refusesWhatIsNoDay(year: Int, month: Int, day: Int) {
        #expect(CivilDate(year: year, month: month, day: day) == nil)
    }

    @Test func addsAndCompares() throws {
        let date = try #require(CivilDate(year: 2024, month: 2, day: 28))
        #expect(date.adding(days: 2).description == "2024-03-01")
        #expect(date.adding(days: -59).description == "2023-12-31")
        #expect(date < date.adding(days: 1))
    }
}
