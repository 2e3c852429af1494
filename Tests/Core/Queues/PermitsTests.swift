// Carillon · PermitsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Synchronization
import Testing

@testable import Core

@Suite("Permits", .timeLimit(.minutes(10)))
struct PermitsTests {
    private final class Holders: Sendable {
        private let counts = Mutex((now: 0, most: 0))

        var most: Int { self.counts.withLock { $0.most } }

        func enter() {
            self.counts.withLock {
                $0.now += 1
                $0.most = max($0.most, $0.now)
            }
        }

        func leave() { self.counts.withLock { $0.now -= 1 } }
    }

    @Test("the number of permits is a limit; a returned one goes to the caller that waited longest")
    func bounds() async {
        let permits = Permits(2)
        await permits.acquire()
        await permits.acquire()
        #expect(!permits.isAwaited)
        let first = Waiter { await permits.acquire() }
        #expect(await first.staysWaiting())
        let second = Waiter { await permits.acquire() }
        #expect(await second.staysWaiting())
        permits.release()
        await first.finish()
        #expect(await second.staysWaiting())
        #expect(permits.isAwaited)
        permits.release()
        await second.finish()
        #expect(!permits.isAwaited)
        permits.release()
        permits.release()
        // Both are free again.
        await permits.acquire()
        await permits.acquire()
    }

    @Test("under load there are never more holders than permits")
    func load() async {
        let permits = Permits(3)
        let holders = Holders()
        await withTaskGroup { group in
            for _ in 0..<50 {
                group.addTask {
                    for _ in 0..<20 {
                        await permits.acquire()
                        holders.enter()
                        await Task.yield()
                        holders.leave()
                        permits.release()
                    }
                }
            }
        }
        #expect(holders.most <= 3)
        // All are free again.
        for _ in 0..<3 { await permits.acquire() }
    }
}

@Suite("Lane permits", .timeLimit(.minutes(10)))
struct LanePermitsTests {
    private final class Holders: Sendable {
        private let now = Mutex<[Lane: Int]>([:])
        private let record = Mutex<[Lane: Int]>([:])

        func most(_ lane: Lane) -> Int { self.record.withLock { $0[lane, default: 0] } }

        func enter(_ lane: Lane) {
            let count = self.now.withLock { now in
                now[lane, default: 0] += 1
                return now[lane, default: 0]
            }
            self.record.withLock { $0[lane] = max($0[lane, default: 0], count) }
        }

        func leave(_ lane: Lane) { self.now.withLock { $0[lane, default: 0] -= 1 } }
    }

    @Test(
        "a lane alone gets everything that is not reserved",
        arguments: [(Lane.bulk, 28), (.normal, 30), (.critical, 32)]
    )
    func alone(lane: Lane, share: Int) async {
        let permits = LanePermits(32)
        for _ in 0..<share { await permits.acquire(lane) }
        let next = Waiter { await permits.acquire(lane) }
        #expect(await next.staysWaiting())
        permits.release(lane)
        await next.finish()
    }

    @Test("an urgent lane finds a permit while the others have all of theirs")
    func urgent() async {
        let permits = LanePermits(8)
        for _ in 0..<6 { await permits.acquire(.bulk) }
        let bulk = Waiter { await permits.acquire(.bulk) }
        #expect(await bulk.staysWaiting())
        await permits.acquire(.normal)
        let normal = Waiter { await permits.acquire(.normal) }
        #expect(await normal.staysWaiting())
        await permits.acquire(.critical)
        let critical = Waiter { await permits.acquire(.critical) }
        #expect(await critical.staysWaiting())
        // Both lanes may take a bulk permit; the more urgent one gets it.
        permits.release(.bulk)
        await critical.finish()
        #expect(await bulk.staysWaiting())
        #expect(await normal.staysWaiting())
    }

    @Test("under load no lane exceeds its share, and every caller is served")
    func load() async {
        let permits = LanePermits(8)
        let holders = Holders()
        await withTaskGroup { group in
            for number in 0..<150 {
                let lane = Lane.allCases[number % 3]
                group.addTask {
                    for _ in 0..<20 {
                        await permits.acquire(lane)
                        holders.enter(lane)
                        await Task.yield()
                        holders.leave(lane)
                        permits.release(lane)
                    }
                }
            }
        }
        #expect(holders.most(.bulk) <= 6)
        #expect(holders.most(.normal) <= 7)
        #expect(holders.most(.critical) <= 8)
        // All are free again.
        for _ in 0..<8 { await permits.acquire(.critical) }
    }
}
