// Carillon · CredentialCacheTests.swift
// SPDX-License-Identifier: Apache-2.0

import Model
import Synchronization
import Testing

@testable import Providers

struct CredentialCacheTests {
    private struct Refusal: Error {}

    /// A clock that is set by hand, and a mint that counts.
    private final class Mint: Sendable {
        let now = Mutex(Timestamp(seconds: 0))
        let made = Mutex(0)
        let isRefusing = Mutex(false)

        func cache(leastAge: Duration = .zero) -> CredentialCache {
            CredentialCache(leastAge: leastAge, now: { self.now.withLock { $0 } }) { moment in
                if self.isRefusing.withLock({ $0 }) { throw Refusal() }
                let number = self.made.withLock { made in
                    made += 1
                    return made
                }
                return CredentialCache.Credential(
                    text: "token \(number)",
                    renewAt: moment + .seconds(50),
                    expiresAt: moment + .seconds(60)
                )
            }
        }

        func pass(_ seconds: Int64) {
            self.now.withLock { $0 = Timestamp(seconds: seconds) }
        }
    }

    @Test("however many ask, one is made, and made anew ahead of its end")
    func renewal() async throws {
        let mint = Mint()
        let cache = mint.cache()
        let all = try await withThrowingTaskGroup(of: String.self) { group in
            for _ in 0..<50 { group.addTask { try await cache.get() } }
            return try await group.reduce(into: Set<String>()) { $0.insert($1) }
        }
        #expect(all == ["token 1"])
        mint.pass(49)
        #expect(try await cache.get() == "token 1")
        mint.pass(50)
        #expect(try await cache.get() == "token 2")
    }

    @Test("while none can be had, the old one serves until it ends")
    func outage() async throws {
        let mint = Mint()
        let cache = mint.cache()
        _ = try await cache.get()
        mint.isRefusing.withLock { $0 = true }
        mint.pass(55)
        #expect(try await cache.get() == "token 1")
        mint.pass(60)
        await #expect(throws: Refusal.self) { try await cache.get() }
        mint.isRefusing.withLock { $0 = false }
        #expect(try await cache.get() == "token 2")
    }

    @Test("a credential that was refused is replaced, but only if it is still the current one")
    func invalidation() async throws {
        let mint = Mint()
        let cache = mint.cache()
        let first = try await cache.get()
        #expect(await cache.invalidate(first))
        #expect(try await cache.get() == "token 2")
        #expect(await cache.invalidate(first))
        #expect(try await cache.get() == "token 2")
    }

    @Test("a credential that was refused is kept until it is old enough to be replaced")
    func leastAge() async throws {
        let mint = Mint()
        let cache = mint.cache(leastAge: .seconds(20))
        let first = try await cache.get()
        mint.pass(19)
        #expect(await !cache.invalidate(first))
        #expect(try await cache.get() == "token 1")
        mint.pass(20)
        #expect(await cache.invalidate(first))
        #expect(try await cache.get() == "token 2")
    }
}
