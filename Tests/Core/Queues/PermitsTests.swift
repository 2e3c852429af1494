// Carillon · PermitsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Synchronization
import Testing

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

    @Test("No more than the number are taken; a permit given back goes to who waited longest")
    func bounds() async {
        let permits = Permits(2)
        await permits.acquire()
        await permits.acquire()
        #expect(permits.inUse == 2)
        let first = Waiter { await permits.acquire() }
        #expect(await first.staysWaiting())
        let second = Waiter { await permits.acquire() }
        #expect(await second.staysWaiting())
        permits.release()
        await first.finish()
        #expect(await second.staysWaiting())
        #expect(permits.inUse == 2)
        permits.release()
        await second.finish()
        permits.release()
        permits.release()
        #expect(permits.inUse == 0)
    }

    @Test("Under load there are never more holders than permits")
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
        #expect(permits.inUse == 0)
    }
}
