// Carillon · KeySetCacheTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import HTTP
import Support
import Synchronization
import Testing

@Suite("The key set's cache", .timeLimit(.minutes(10)))
struct KeySetCacheTests {
    /// An issuer whose keys change and whose server may be down.
    private final class Issuer: Sendable {
        private struct State {
            var document: String?
            var readings = 0
            var now = ContinuousClock.now
        }

        private let state = Mutex(State())

        var readings: Int { self.state.withLock { $0.readings } }
        var now: ContinuousClock.Instant { self.state.withLock { $0.now } }

        /// Nil for a server that is down.
        func publish(_ keys: [String: P256.Signing.PrivateKey]?) {
            let members = keys?.map { Tokens.webKey($1.publicKey, kid: $0) }.joined(separator: ",")
            self.state.withLock { $0.document = members.map { Tokens.document($0) } }
        }

        func advance(_ duration: Duration) {
            self.state.withLock { $0.now += duration }
        }

        func read() throws(KeySetFault) -> [UInt8] {
            let document = self.state.withLock { state in
                state.readings += 1
                return state.document
            }
            guard let document else { throw KeySetFault("the server is down") }
            return Array(document.utf8)
        }
    }

    private static let claims = #"{"sub":"ada","iat":1795000000}"#

    /// Runs `body` with a verifier over a cache that reads from `issuer`.
    private func with(_ issuer: Issuer, _ body: (TokenVerifier) async throws -> Void) async throws {
        var timing = KeySetCache.Timing()
        timing.interval = .seconds(3_600)
        // What waits by the clock waits for ever here; the clock of the bounds is the test's.
        timing.backoff = Backoff(base: .seconds(3_600), limit: .seconds(3_600))
        let cache = KeySetCache(
            initial: nil, timing: timing, logger: TestLog.logger, uptime: { issuer.now }
        ) { () async throws(KeySetFault) in try issuer.read() }
        let verifier = TokenVerifier(secrets: [], keySet: cache, rules: TokenRules(), now: { Tokens.now })
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await cache.run() }
            try await eventually("the first reading ended") { issuer.readings > 0 }
            try await body(verifier)
            group.cancelAll()
        }
    }

    @Test("a new key is found at once, and unknown ones cause no more than one reading in ten seconds")
    func rotation() async throws {
        let issuer = Issuer()
        let (first, second) = (P256.Signing.PrivateKey(), P256.Signing.PrivateKey())
        issuer.publish(["one": first])
        try await self.with(issuer) { verifier in
            let old = try Tokens.elliptic(Self.claims, kid: "one", key: first)
            let new = try Tokens.elliptic(Self.claims, kid: "two", key: second)
            _ = try await verifier.verify(old)
            issuer.publish(["one": first, "two": second])
            issuer.advance(.seconds(11))
            _ = try await verifier.verify(new)
            #expect(issuer.readings == 2)
            for _ in 0..<50 {
                let error = await #expect(throws: TokenFault.self) {
                    try await verifier.verify(Tokens.elliptic(Self.claims, kid: "three", key: second))
                }
                #expect(error?.code == .refused)
            }
            _ = try await verifier.verify(new)
            #expect(issuer.readings == 2)
            issuer.advance(.seconds(11))
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<50 {
                    group.addTask {
                        await #expect(throws: TokenFault.self) {
                            try await verifier.verify(Tokens.elliptic(Self.claims, kid: "three", key: second))
                        }
                    }
                }
            }
            #expect(issuer.readings == 3)
        }
    }

    @Test("a token that is remembered is refused once its key has left the set")
    func withdrawal() async throws {
        let issuer = Issuer()
        let (first, second) = (P256.Signing.PrivateKey(), P256.Signing.PrivateKey())
        issuer.publish(["one": first])
        try await self.with(issuer) { verifier in
            let token = try Tokens.elliptic(Self.claims, kid: "one", key: first)
            for _ in 0..<2 { _ = try await verifier.verify(token, remembers: true) }
            issuer.publish(["two": second])
            issuer.advance(.seconds(11))
            // An unknown key has the set read again.
            _ = try await verifier.verify(try Tokens.elliptic(Self.claims, kid: "two", key: second), remembers: true)
            let error = await #expect(throws: TokenFault.self) { try await verifier.verify(token, remembers: true) }
            #expect(error?.code == .refused)
        }
    }

    @Test("while nothing was read yet tokens are answered with 503, and taken when it was")
    func downAtStart() async throws {
        let issuer = Issuer()
        let key = P256.Signing.PrivateKey()
        let token = try Tokens.elliptic(Self.claims, kid: "one", key: key)
        try await self.with(issuer) { verifier in
            let error = await #expect(throws: TokenFault.self) { try await verifier.verify(token) }
            #expect(error?.code == .unavailable)
            #expect(error?.status == 503)
            #expect(error?.description.contains("out of reach") == true)
            // Answered without a reading each.
            for _ in 0..<20 { await #expect(throws: TokenFault.self) { try await verifier.verify(token) } }
            #expect(issuer.readings <= 2)
            issuer.publish(["one": key])
            issuer.advance(.seconds(3_601))
            let caller = try await verifier.verify(token)
            #expect(caller.user == "ada")
        }
    }

    @Test("keys stay good while their source is down; what is unknown meanwhile is 503")
    func downLater() async throws {
        let issuer = Issuer()
        let (known, other) = (P256.Signing.PrivateKey(), P256.Signing.PrivateKey())
        issuer.publish(["one": known])
        try await self.with(issuer) { verifier in
            let token = try Tokens.elliptic(Self.claims, kid: "one", key: known)
            _ = try await verifier.verify(token)
            issuer.publish(nil)
            issuer.advance(.seconds(11))
            let error = await #expect(throws: TokenFault.self) {
                try await verifier.verify(Tokens.elliptic(Self.claims, kid: "two", key: other))
            }
            #expect(error?.code == .unavailable)
            #expect(issuer.readings == 2)
            let caller = try await verifier.verify(token)
            #expect(caller.user == "ada")
        }
    }

    @Test("a key that its issuer has taken back is refused after the next reading")
    func withdrawn() async throws {
        let issuer = Issuer()
        let (stolen, fresh) = (P256.Signing.PrivateKey(), P256.Signing.PrivateKey())
        issuer.publish(["stolen": stolen])
        try await self.with(issuer) { verifier in
            let token = try Tokens.elliptic(Self.claims, kid: "stolen", key: stolen)
            _ = try await verifier.verify(token)
            issuer.publish(["fresh": fresh])
            issuer.advance(.seconds(11))
            _ = try await verifier.verify(Tokens.elliptic(Self.claims, kid: "fresh", key: fresh))
            await #expect(throws: TokenFault.self) { try await verifier.verify(token) }
        }
    }

    @Test("it is read again after its interval, asked or not")
    func interval() async throws {
        let issuer = Issuer()
        issuer.publish(["one": P256.Signing.PrivateKey()])
        var timing = KeySetCache.Timing()
        timing.interval = .milliseconds(5)
        let cache = KeySetCache(initial: nil, timing: timing, logger: TestLog.logger) {
            () async throws(KeySetFault) in try issuer.read()
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await cache.run() }
            try await eventually("it was read three times") { issuer.readings >= 3 }
            group.cancelAll()
        }
    }
}
