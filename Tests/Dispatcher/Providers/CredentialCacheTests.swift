// Carillon · CredentialCacheTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import Support
import Synchronization
import Testing

@testable import Providers

@Suite(.timeLimit(.minutes(10)))
struct CredentialCacheTests {
    private struct Refusal: Error {}

    /// A manual clock and a counting credential source; a token renews after 300 s and expires
    /// after 600 s.
    private final class Mint: Sendable {
        let now = Mutex(Timestamp(seconds: 0))
        let asked = Mutex(0)
        let made = Mutex(0)
        let fault = Mutex<(any Error)?>(nil)
        let isHanging = Mutex(false)
        let lines = LogRecorder { event in
            "\(event.level) \(event.message)" + (event.metadata?["error"].map { " \($0)" } ?? "")
        }

        func cache(leastAge: Duration = .zero) -> CredentialCache {
            CredentialCache(
                leastAge: leastAge, now: { self.now.withLock { $0 } }, logger: self.lines.logger
            ) { moment in
                self.asked.withLock { $0 += 1 }
                // Acts as a hanging server until the test releases it.
                while self.isHanging.withLock({ $0 }) { try await Task.sleep(for: .milliseconds(1)) }
                if let fault = self.fault.withLock({ $0 }) { throw fault }
                let number = self.made.withLock { made in
                    made += 1
                    return made
                }
                return CredentialCache.Credential(
                    text: "token \(number)",
                    renewAt: moment + .seconds(300),
                    expiresAt: moment + .seconds(600)
                )
            }
        }

        func pass(_ seconds: Int64) {
            self.now.withLock { $0 = Timestamp(seconds: seconds) }
        }

        func fail(_ error: (any Error)?) {
            self.fault.withLock { $0 = error }
        }

        func hang(_ isHanging: Bool) {
            self.isHanging.withLock { $0 = isHanging }
        }

        var asks: Int { self.asked.withLock { $0 } }
        var log: [String] { self.lines.all }
    }

    @Test("concurrent callers share one credential, which is renewed before it expires")
    func renewal() async throws {
        let mint = Mint()
        let cache = mint.cache()
        let all = try await withThrowingTaskGroup(of: String.self) { group in
            for _ in 0..<50 { group.addTask { try await cache.get() } }
            return try await group.reduce(into: Set<String>()) { $0.insert($1) }
        }
        #expect(all == ["token 1"])
        mint.pass(299)
        #expect(try await cache.get() == "token 1")
        #expect(mint.asks == 1)
        mint.pass(300)
        #expect(try await cache.get() == "token 1", "no caller waits while it is valid")
        try await eventually("the new credential is available") { try await cache.get() == "token 2" }
        #expect(mint.asks == 2)
        #expect(mint.log.isEmpty)
    }

    @Test("a hanging renewal blocks no caller while the old credential is valid, and runs once")
    func hangs() async throws {
        let mint = Mint()
        let cache = mint.cache()
        _ = try await cache.get()
        mint.hang(true)
        for second in Int64(300)..<400 {
            mint.pass(second)
            #expect(try await cache.get() == "token 1")
        }
        try await eventually("the renewal has started") { mint.asks == 2 }
        mint.hang(false)
        try await eventually("the new credential is available") { try await cache.get() == "token 2" }
        #expect(mint.asks == 2)
    }

    @Test("while renewals fail, the old credential serves until it expires, with growing pauses")
    func outage() async throws {
        let mint = Mint()
        let cache = mint.cache()
        _ = try await cache.get()
        mint.fail(CredentialOutage("503"))
        var failures = 0
        for (second, isAsked) in [
            (299, false), (300, true), (301, false), (329, false), (330, true), (389, false), (390, true),
            (509, false), (510, true), (599, false),
        ] {
            mint.pass(Int64(second))
            #expect(try await cache.get() == "token 1")
            if isAsked { failures += 1 }
            try await eventually("it has failed \(failures) times at \(second)") { mint.log.count == failures }
        }
        #expect(mint.asks == 5)
        #expect(
            mint.log == Array(repeating: "warning could not obtain a credential; retrying token_endpoint_503", count: 4)
        )
        mint.pass(600)
        await #expect(throws: CredentialOutage("503")) { try await cache.get() }
        mint.fail(nil)
        mint.pass(616)
        #expect(try await cache.get() == "token 2")
        #expect(mint.log.last == "notice credential renewed")
    }

    @Test(
        "without a valid credential, an outage is retried after 1 s, 2 s, 4 s up to 30 s and fails at once in between")
    func noneLeft() async throws {
        let mint = Mint()
        let cache = mint.cache()
        mint.fail(CredentialOutage("timeout"))
        var moments: [Int64] = []
        for second in Int64(0)..<100 {
            mint.pass(second)
            let asks = mint.asks
            await #expect(throws: CredentialOutage("timeout")) { try await cache.get() }
            if mint.asks > asks { moments.append(second) }
        }
        #expect(moments == [0, 1, 3, 7, 15, 31, 61, 91])
    }

    @Test("without a valid credential, a refusal is retried every 30 s")
    func refusal() async throws {
        let mint = Mint()
        let cache = mint.cache()
        mint.fail(Refusal())
        var moments: [Int64] = []
        for second in Int64(0)..<100 {
            mint.pass(second)
            let asks = mint.asks
            await #expect(throws: Refusal.self) { try await cache.get() }
            if mint.asks > asks { moments.append(second) }
        }
        #expect(moments == [0, 30, 60, 90])
    }

    @Test("a rejected credential is replaced only if it is still the current one")
    func invalidation() async throws {
        let mint = Mint()
        let cache = mint.cache()
        let first = try await cache.get()
        #expect(await cache.invalidate(first))
        #expect(try await cache.get() == "token 2")
        #expect(await cache.invalidate(first))
        #expect(try await cache.get() == "token 2")
    }

    @Test("a credential rejected during a pause is renewed at once")
    func invalidationInPause() async throws {
        let mint = Mint()
        let cache = mint.cache()
        let first = try await cache.get()
        mint.fail(CredentialOutage("503"))
        mint.pass(300)
        _ = try await cache.get()
        try await eventually("it failed") { mint.log.count == 1 }
        mint.fail(nil)
        mint.pass(301)
        #expect(try await cache.get() == "token 1")
        #expect(await cache.invalidate(first))
        #expect(try await cache.get() == "token 2")
    }

    @Test("a rejected credential is kept until it is old enough to be replaced")
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

    @Test("a credential made before the clock stepped back is replaced, even during a pause")
    func clockStepsBack() async throws {
        let mint = Mint()
        let cache = mint.cache(leastAge: .seconds(20))
        mint.pass(10_000)
        _ = try await cache.get()
        mint.pass(9_999)
        #expect(try await cache.get() == "token 1", "the clock was corrected a little")
        mint.pass(10_300)
        mint.fail(CredentialOutage("503"))
        _ = try await cache.get()
        try await eventually("the renewal failed") { mint.log.count == 1 }
        mint.fail(nil)
        mint.pass(5_000)
        #expect(try await cache.get() == "token 2")
        #expect(try await cache.get() == "token 2")
    }

    @Test("a credential rejected after the clock stepped back is old enough to be replaced")
    func rejectedAfterStep() async throws {
        let mint = Mint()
        let cache = mint.cache(leastAge: .seconds(20))
        mint.pass(10_000)
        let first = try await cache.get()
        mint.pass(5_000)
        #expect(await cache.invalidate(first))
        #expect(try await cache.get() == "token 2")
    }
}
