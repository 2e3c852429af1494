// Carillon · DoorbellTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Testing

@Suite("Doorbells", .timeLimit(.minutes(10)))
struct DoorbellTests {
    @Test("A ring that nobody waits for is remembered, once; without one a wait ends with its time")
    func remembered() async throws {
        let bell = try #require(Doorbell())
        let waits = await withCheckedContinuation { continuation in
            // Off the cooperative pool, as a wait blocks.
            let isStarted = DetachedThread.run(name: "bell") {
                bell.ring()
                bell.ring()
                continuation.resume(returning: [1_000, 1].map { bell.wait(milliseconds: $0) })
            }
            if !isStarted { continuation.resume(returning: []) }
        }
        #expect(waits == [true, false])
    }

    @Test("A ring ends a wait")
    func rings() async throws {
        let bell = try #require(Doorbell())
        async let hasRung = withCheckedContinuation { continuation in
            let isStarted = DetachedThread.run(name: "bell") {
                continuation.resume(returning: bell.wait(milliseconds: 60_000))
            }
            if !isStarted { continuation.resume(returning: false) }
        }
        bell.ring()
        #expect(await hasRung)
    }
}
