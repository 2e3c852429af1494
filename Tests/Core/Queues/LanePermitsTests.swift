// Carillon · LanePermitsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Synchronization
import Testing

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
        "A lane alone gets what is not kept for the more urgent",
        arguments: [(Lane.bulk, 28), (.normal, 30), (.critical, 32)]
    )
    func alone(lane: Lane, share: Int) async {
        let permits = LanePermits(32)
        for _ in 0..<share { await permits.acquire(lane) }
        let next = Waiter { await permits.acquire(lane) }
        #expect(await next.staysWaiting())
        #expect(permits.inUse == share)
        permits.release(lane)
        await next.finish()
        #expect(permits.inUse == share)
    }

    @Test("The urgent finds a permit while all that others may have is taken")
    func urgent() async {
        let permits = LanePermits(8)
        for _ in 0..<6 { await permits.acquire(.bulk) }
        let bulk = Waiter { await permits.acquire(.bulk) }
        #expect(await bulk.staysWaiting())
        await permits.acquire(.normal)
        let normal = Waiter { await permits.acquire(.normal) }
        #expect(await normal.staysWaiting())
        await permits.acquire(.critical)
        #expect(permits.inUse == 8)
        let critical = Waiter { await permits.acquire(.critical) }
        #expect(await critical.staysWaiting())
        // A permit of bulk can go to either, and goes to the urgent first.
        permits.release(.bulk)
        await critical.finish()
        #expect(await bulk.staysWaiting())
        #expect(await normal.staysWaiting())
    }

    @Test("Under load no lane holds more than its share, and everyone is served")
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
        #expect(permits.inUse == 0)
    }
}
