// Carillon · KeySetTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Crypto
import Foundation
import Support
import Synchronization
import Testing
import _CryptoExtras

@testable import HTTP

@Suite("Key sets", .timeLimit(.minutes(10)))
struct KeySetTests {
    private static let good = Tokens.webKey(P256.Signing.PrivateKey().publicKey, kid: "good")

    @Test(
        "skips keys that are not for these signatures and uses the others",
        arguments: [
            (#"{"kty":"oct","k":"c2VjcmV0","alg":"HS256"}"#, "neither for RS256 nor for ES256"),
            (#"{"kty":"OKP","crv":"Ed25519","x":"AA"}"#, "neither for RS256 nor for ES256"),
            (#"{"kty":"EC","crv":"P-384","x":"AA","y":"AA"}"#, "not on the curve P-256"),
            (#"{"kty":"EC","crv":"P-256","alg":"ES384","x":"AA","y":"AA"}"#, "neither for RS256 nor for ES256"),
            (#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#, "not a point"),
            (#"{"kty":"RSA","alg":"RS512","n":"AQAB","e":"AQAB"}"#, "neither for RS256 nor for ES256"),
            (#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#, "RSA key of 2048"),
            (#"{"kty":"RSA","n":"A+AB","e":"AQAB"}"#, "no usable modulus"),
            (#"{"kty":"RSA","e":"AQAB"}"#, "no usable modulus"),
            (#"{"kty":"RSA","use":"enc","n":"AQAB","e":"AQAB"}"#, "not for signatures"),
            (#"{"kty":"RSA","key_ops":["sign"],"n":"AQAB","e":"AQAB"}"#, "not for checking"),
            (#"{"kty":"RSA","n":"AQAB","e":"AQAB","d":"AQAB"}"#, "private key"),
            (#"{"kty":"RSA","kid":7,"n":"AQAB","e":"AQAB"}"#, "kid that is not a string"),
            ("7", "not an object"),
        ]
    )
    func skipped(key: String, reason: String) throws {
        let set = try KeySet(Array(Tokens.document(key, Self.good).utf8))
        #expect(set.count == 1)
        #expect(set.skipped.count == 1)
        #expect(set.skipped.first?.contains(reason) == true)
        let fault = #expect(throws: KeySetFault.self) { try KeySet(Array(Tokens.document(key).utf8)) }
        #expect(fault?.description.contains(reason) == true)
    }

    @Test("refuses an RSA key of 1024 bits for any algorithm")
    func weak() throws {
        let key = try _RSA.Signing.PublicKey(
            unsafePEMRepresentation: """
                -----BEGIN PUBLIC KEY-----
                MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC5S3qggM4apXtbK4ONCS6as35t
                S5HnNiVJI1cLmvVDg8m7kjoxpagXJDG5OhuN3aoDiZwdw9cEz0iisXbhdPaoqf7b
                YbhTTnugg68mWzes6BzayDSHMfnYVMKay7/xswyT5jNqAy12jyFmwOEmhqTk9ZDF
                8+jFHXIM4JSxLmHchwIDAQAB
                -----END PUBLIC KEY-----
                """)
        let document = Tokens.document(try Tokens.webKey(key, kid: "weak"))
        let fault = #expect(throws: KeySetFault.self) { try KeySet(Array(document.utf8)) }
        #expect(fault?.description.contains("RSA key of 2048") == true)
    }

    @Test(
        "refuses a document that is not a key set",
        arguments: [
            "", "[]", "{", #"{"keys":{}}"#, #"{"keys":[]}"#, #"{"keys":[],"keys":[]}"#, #"{"Keys":[]}"#, "null",
        ]
    )
    func documents(document: String) {
        #expect(throws: KeySetFault.self) { try KeySet(Array(document.utf8)) }
    }

    @Test("skips repeated key names, and uses the first 64 usable keys")
    func bounds() throws {
        let twice = try KeySet(Array(Tokens.document(Self.good, Self.good).utf8))
        #expect(twice.count == 1 && twice.skipped == ["key 1 has the kid of another key"])
        // A key of another type may have the same name.
        let key = try _RSA.Signing.PrivateKey(keySize: .bits2048).publicKey
        let both = try KeySet(Array(Tokens.document(Self.good, try Tokens.webKey(key, kid: "good")).utf8))
        #expect(both.count == 2 && both.skipped.isEmpty)
        let candidates = both.candidates(.rs256, kid: "good")
        #expect(candidates.map(\.algorithm) == [.rs256])
        func several(_ key: String) -> String { Array(repeating: key, count: 65).joined(separator: ",") }
        let others = several(#"{"kty":"RSA","use":"enc","n":"AQAB","e":"AQAB"}"#)
        let last = try KeySet(Array(Tokens.document(others, Self.good).utf8))
        #expect(last.count == 1 && last.skipped.count == 64)
        let usable = Tokens.webKey(P256.Signing.PrivateKey().publicKey, kid: nil)
        let full = try KeySet(Array(Tokens.document(several(usable)).utf8))
        #expect(full.count == 64 && full.skipped == ["key 64 comes after 64 usable keys"])
    }
}

@Suite("Sources of key sets", .timeLimit(.minutes(10)))
struct KeySetReaderTests {
    @Test("accepts only a complete answer with 200")
    func url() async throws {
        var configuration = TransferConfiguration()
        configuration.allowPlainHTTP = true
        let client = try TransferClient(configuration: configuration, logger: TestLog.logger)
        try await HTTPStub.with(.init(body: "a document")) { server in
            let url = server.url + "/keys"
            let document = try await KeySetReader.url(url, client: client)
            #expect(document == Array("a document".utf8))
            for answer in [
                HTTPStub.Answer(status: 302, body: ""), HTTPStub.Answer(status: 404, body: "{}"),
                HTTPStub.Answer(status: 500, body: "{}"),
                HTTPStub.Answer(body: String(repeating: "x", count: 256 * 1024 + 1)),
            ] {
                server.answer(answer)
                await #expect(throws: KeySetFault.self) { try await KeySetReader.url(url, client: client) }
            }
        }
        let port = try FreePort.next()
        await #expect(throws: KeySetFault.self) {
            try await KeySetReader.url("http://127.0.0.1:\(port)/keys", client: client)
        }
        await client.shutdown()
    }

    @Test("refuses a missing or oversized file")
    func file() throws {
        let directory = try TemporaryDirectory("keys")
        #expect(throws: KeySetFault.self) { try KeySetReader.file(directory.file("none.json")) }
        try String(repeating: "x", count: 300_000).write(
            toFile: directory.file("long.json"), atomically: false, encoding: .utf8)
        #expect(throws: KeySetFault.self) { try KeySetReader.file(directory.file("long.json")) }
    }
}

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

        /// Nil takes the server down.
        func publish(_ keys: [String: P256.Signing.PrivateKey]?) {
            let members = keys?.map { Tokens.webKey($1.publicKey, kid: $0) }.joined(separator: ",")
            self.state.withLock { $0.document = members.map { Tokens.document($0) } }
        }

        func advance(_ duration: Duration) {
            self.state.withLock { $0.now += duration }
        }

        /// Counts a read that has begun.
        func note() { self.state.withLock { $0.readings += 1 } }

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
        // Backoff by the real clock never ends here; the test sets the clock of the limits.
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

    @Test("finds a new key at once and reads at most once in ten seconds for unknown ones")
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

    @Test("refuses a cached token once its key has left the set")
    func withdrawal() async throws {
        let issuer = Issuer()
        let (first, second) = (P256.Signing.PrivateKey(), P256.Signing.PrivateKey())
        issuer.publish(["one": first])
        try await self.with(issuer) { verifier in
            let token = try Tokens.elliptic(Self.claims, kid: "one", key: first)
            for _ in 0..<2 { _ = try await verifier.verify(token, remembers: true) }
            issuer.publish(["two": second])
            issuer.advance(.seconds(11))
            // An unknown key triggers a read of the set.
            _ = try await verifier.verify(try Tokens.elliptic(Self.claims, kid: "two", key: second), remembers: true)
            let error = await #expect(throws: TokenFault.self) { try await verifier.verify(token, remembers: true) }
            #expect(error?.code == .refused)
        }
    }

    @Test("answers 503 until the key set was read, then accepts tokens")
    func downAtStart() async throws {
        let issuer = Issuer()
        let key = P256.Signing.PrivateKey()
        let token = try Tokens.elliptic(Self.claims, kid: "one", key: key)
        try await self.with(issuer) { verifier in
            let error = await #expect(throws: TokenFault.self) { try await verifier.verify(token) }
            #expect(error?.code == .unavailable)
            #expect(error?.status == 503)
            #expect(error?.description.contains("cannot be read now") == true)
            // Answered without a read each.
            for _ in 0..<20 { await #expect(throws: TokenFault.self) { try await verifier.verify(token) } }
            #expect(issuer.readings <= 2)
            issuer.publish(["one": key])
            issuer.advance(.seconds(3_601))
            try await eventually("the token is accepted") {
                (try? await verifier.verify(token))?.user == "ada"
            }
        }
    }

    @Test("answers 503 without waiting for the next read while the source keeps failing")
    func failing() async throws {
        let gate = Gate()
        let issuer = Issuer()
        var timing = KeySetCache.Timing()
        timing.backoff = Backoff(base: .milliseconds(1), limit: .milliseconds(1))
        let cache = KeySetCache(initial: nil, timing: timing, logger: TestLog.logger) {
            () async throws(KeySetFault) in
            if issuer.readings > 0 {
                issuer.note()
                await gate.wait()
            }
            return try issuer.read()
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await cache.run() }
            try await eventually("the second read waits for the source") { issuer.readings == 2 }
            let answers = Notes<TokenFault.Code>()
            group.addTask {
                do throws(TokenFault) {
                    _ = try await cache.candidates(.es256, kid: "new")
                } catch {
                    answers.note([error.code])
                }
            }
            try await withCleanUp({ await gate.open() }) {
                try await eventually("the call is answered") { answers.all == [.unavailable] }
            }
            group.cancelAll()
        }
    }

    @Test("keeps keys while their source is down and answers 503 for unknown ones")
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

    @Test("refuses a withdrawn key after the next reading")
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

    @Test("reads the set again after its interval, even without requests")
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
