// Carillon · SharedReadingTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Synchronization
import Testing

@testable import HTTP

@Suite("Shared readings", .timeLimit(.minutes(10)))
struct SharedReadingTests {
    /// A clock that a test moves.
    private final class Clock: Sendable {
        private let time = Mutex(ContinuousClock.now)

        var now: ContinuousClock.Instant { self.time.withLock { $0 } }

        func pass(_ duration: Duration) { self.time.withLock { $0 += duration } }
    }

    /// The keys that were read.
    private final class Order: Sendable {
        private let read = Mutex<[Int]>([])

        var keys: [Int] { self.read.withLock { $0 } }

        func add(_ key: Int) { self.read.withLock { $0.append(key) } }
    }

    @Test(
        "a value stays for 20 times as long as its reading took, but for 5 to 200 seconds",
        arguments: [
            (.zero, .seconds(5)), (.seconds(1), .seconds(20)), (.seconds(60), .seconds(200)),
        ] as [(Duration, Duration)]
    )
    func lifetime(reading: Duration, lifetime: Duration) async throws {
        let clock = Clock()
        let shared = SharedReading<String, ContinuousClock.Instant>(
            { _ in
                clock.pass(reading)
                return clock.now
            }, instant: { clock.now })
        let first = try await shared.value("all")
        clock.pass(lifetime - .milliseconds(1))
        let kept = try await shared.value("all")
        #expect(kept == first)
        clock.pass(.milliseconds(1))
        let next = try await shared.value("all")
        #expect(next > first)
    }

    @Test("a value does not stay longer if its reading has waited for another")
    func waiting() async throws {
        let clock = Clock()
        let gate = Gate()
        let order = Order()
        let shared = SharedReading<Int, Int>(
            { key in
                order.add(key)
                await gate.wait()
                return key
            }, instant: { clock.now })
        await withTaskGroup(of: Bool.self) { group in
            for key in 0..<9 {
                group.addTask {
                    do {
                        return try await shared.value(key) == key
                    } catch {
                        return false
                    }
                }
            }
            // Only one too many can end, so the others are there, and wait for the first.
            let isTaken = await group.next()
            #expect(isTaken == false)
            clock.pass(.seconds(60))
            await gate.open()
            await group.waitForAll()
        }
        let read = order.keys
        let last = try #require(read.last)
        clock.pass(.seconds(5))
        _ = try await shared.value(last)
        #expect(order.keys == read + [last])
    }
}
