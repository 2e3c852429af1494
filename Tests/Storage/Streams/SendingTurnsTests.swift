// Carillon · SendingTurnsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Testing

/// A provider's rate that all dispatchers share.
@Suite(.timeLimit(.minutes(10)))
struct SendingTurnsTests {
    private static let rate = 40
    /// The capacity of a full bucket.
    private static let burst = 10

    @Test("shares a rate between two dispatchers")
    func shared() async throws {
        try await TestRedis.with { first, prefix in
            try await TestRedis.with(try await TestRedis.configuration(clientName: "second")) { second in
                let keys = Keyspace(prefix: prefix)
                let dispatchers = [first, second].map { Live($0, keys: keys).sendingTurns }
                // The bucket uses Redis's clock.
                let survey = Live(first, keys: keys).survey
                let start = try await survey.time()
                var taken = [0, 0]
                while taken.reduce(0, +) < 60 {
                    var waits: [Int64] = []
                    // The dispatcher that has fewer asks first.
                    for index in taken[0] <= taken[1] ? [0, 1] : [1, 0] {
                        let (count, wait) = try await dispatchers[index].take(
                            2, provider: .fcm, account: "default", perSecond: Self.rate)
                        taken[index] += count
                        if count == 0 { waits.append(wait) }
                    }
                    // Waits as dispatchers do: the bucket returns the delay, on Redis's clock.
                    if waits.count == 2, let wait = waits.min() { try await Task.sleep(for: .milliseconds(wait)) }
                }
                let seconds = (try await survey.time() - start) / .seconds(1)
                #expect(Double(taken.reduce(0, +)) <= Double(Self.burst) + Double(Self.rate) * seconds + 1)
                #expect(taken.allSatisfy { $0 >= 5 }, "\(taken)")
            }
        }
    }

    @Test("keeps a rate for each account and provider")
    func bucket() async throws {
        try await TestRedis.with { first, prefix in
            try await TestRedis.with(try await TestRedis.configuration(clientName: "second")) { second in
                let keys = Keyspace(prefix: prefix)
                let mine = Live(first, keys: keys).sendingTurns
                let theirs = Live(second, keys: keys).sendingTurns
                let survey = Live(first, keys: keys).survey
                func take(_ turns: SendingTurns, _ provider: Provider, _ account: String) async throws -> Int {
                    try await turns.take(100, provider: provider, account: account, perSecond: 1).taken
                }
                let start = try await survey.time()
                let taken = [try await take(mine, .fcm, "default"), try await take(theirs, .fcm, "default")]
                let seconds = (try await survey.time() - start) / .seconds(1)
                #expect(taken[0] == 1)
                // On a slow machine a token may have been added meanwhile.
                #expect(Double(taken[1]) <= seconds)
                #expect(try await take(theirs, .fcm, "news") == 1)
                #expect(try await take(theirs, .apns, "default") == 1)
            }
        }
    }
}
