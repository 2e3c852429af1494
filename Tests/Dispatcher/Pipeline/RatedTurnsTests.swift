// Carillon · RatedTurnsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Testing

@testable import Pipeline

/// Apps and dispatchers that share a rate.
@Suite(.timeLimit(.minutes(10)))
struct RatedTurnsTests {
    @Test("shares an account's rate among its apps in all dispatchers")
    func account() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let dispatchers = (0..<2).map { _ in
                RatedTurns(.fcm, turns: Live(redis, keys: keys).sendingTurns, now: { TestDispatcher.now })
            }
            let survey = Live(redis, keys: keys).survey
            let start = try await survey.time()
            // The bucket of one a second holds one token.
            #expect(await dispatchers[0].take("default", account: "one", perSecond: 1) == nil)
            let held = [
                await dispatchers[0].take("sister", account: "one", perSecond: 1),
                await dispatchers[1].take("sister", account: "one", perSecond: 1),
            ]
            // On a slow machine a token may have been added meanwhile.
            if try await survey.time() - start < .milliseconds(900) {
                #expect(held.allSatisfy { $0.map { $0 > TestDispatcher.now } == true })
            }
            #expect(await dispatchers[1].take("news", account: "two", perSecond: 1) == nil)
        }
    }
}
