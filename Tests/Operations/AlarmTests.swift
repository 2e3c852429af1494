// Carillon · AlarmTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Operations
import Support
import Testing

/// The waits of services that sleep until something is due.
@Suite(.timeLimit(.minutes(10)))
struct AlarmTests {
    private static let now = Timestamp(seconds: 1_795_000_000)
    private static let never: Duration = .seconds(3_600)

    /// Waits as a service does, by a clock that stands still.
    private static func wait(_ alarm: Alarm, atLeast: Duration = .zero, atMost: Duration = Self.never) async {
        await alarm.wait(atLeast: atLeast, atMost: atMost, now: { Self.now })
    }

    @Test("scheduling a due moment ends a running wait")
    func noted() async {
        let alarm = Alarm()
        let waiter = Waiter { await Self.wait(alarm) }
        #expect(await waiter.staysWaiting())
        alarm.schedule(at: Self.now + .seconds(60))
        #expect(await waiter.staysWaiting())
        alarm.schedule(at: Self.now)
        await waiter.finish()
    }

    @Test("a ring ends a running wait, and without one the next")
    func rung() async {
        let alarm = Alarm()
        let waiter = Waiter { await alarm.wait(atMost: Self.never) }
        #expect(await waiter.staysWaiting())
        alarm.ring()
        await waiter.finish()
        alarm.ring()
        await alarm.wait(atMost: Self.never)
    }

    @Test("scheduling a due moment ends the next wait")
    func between() async {
        let alarm = Alarm()
        alarm.schedule(at: Self.now)
        await Self.wait(alarm)
        alarm.schedule(at: Self.now + .milliseconds(10))
        alarm.schedule(at: Self.now + .seconds(60))
        await Self.wait(alarm)
    }

    @Test("waits between its minimum and maximum")
    func limits() async {
        let alarm = Alarm()
        await Self.wait(alarm, atMost: .milliseconds(10))
        alarm.schedule(at: Self.now)
        let start = ContinuousClock.now
        await Self.wait(alarm, atLeast: .milliseconds(50))
        #expect(ContinuousClock.now - start >= .milliseconds(50))
    }

    @Test("a cancellation ends a wait")
    func cancellation() async {
        let alarm = Alarm()
        let (looks, look) = AsyncStream.makeStream(of: Void.self)
        let wait = Task {
            await alarm.wait(atLeast: .zero, atMost: Self.never) {
                look.yield()
                return Self.now
            }
        }
        // It looks at the clock before it sleeps.
        for await _ in looks { break }
        wait.cancel()
        await wait.value
    }
}
