// Carillon · KeySetTests.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto
import HTTP
import Testing
import _CryptoExtras

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

    @Test("an RSA key of 1024 bits is too weak, whatever it signs")
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
        "what is no key set is a fault",
        arguments: [
            "", "[]", "{", #"{"keys":{}}"#, #"{"keys":[]}"#, #"{"keys":[],"keys":[]}"#, #"{"Keys":[]}"#, "null",
        ]
    )
    func documents(document: String) {
        #expect(throws: KeySetFault.self) { try KeySet(Array(document.utf8)) }
    }

    @Test("a name is one key's, and a document has 64 keys at most")
    func bounds() throws {
        let twice = try KeySet(Array(Tokens.document(Self.good, Self.good).utf8))
        #expect(twice.count == 1 && twice.skipped == ["key 1 has the kid of another key"])
        let many = (0..<65).map { _ in "7" }.joined(separator: ",")
        #expect(throws: KeySetFault.self) { try KeySet(Array(Tokens.document(Self.good, many).utf8)) }
    }
}
