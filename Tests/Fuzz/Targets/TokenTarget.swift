// Carillon · TokenTarget.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import Foundation
import HTTP
import Logging
import _CryptoExtras

/// Tokens and key sets.
///
/// An input is a token; with a line feed in it, the header and claims of a token to sign; after a
/// line feed at its beginning, a JWKS document.
struct TokenTarget: FuzzTarget {
    let dictionary = [
        ".", "eyJhbGciOiJIUzI1NiJ9", #""alg":"HS256""#, #""alg":"none""#, #""alg":"RS256""#, #""alg":"ES256""#,
        #""crit":["x"]"#, #""kid":"k""#, #""kid":"e""#, #""kid":"r""#, #""sub":"u""#, #""exp":1895000000"#,
        #""nbf":0"#, #""iat":1e400"#, #""scope":"admin""#, #""types":["*"]"#, #""audiences":["user"]"#, "{}", "\n",
        "null", "==", "-_", #""kty":"RSA""#, #""kty":"EC""#, #""crv":"P-256""#, #""use":"sig""#, #""n":"AQAB""#,
        #""e":"AQAB""#, #""x":""#, #""y":""#, #""keys":["#,
    ]
    private let keys: TokenKeys
    private let verifier: TokenVerifier

    init() {
        let keys = TokenKeys()
        self.keys = keys
        self.verifier = TokenVerifier(
            secrets: [TokenKeys.secret],
            keySet: keys.cache(),
            rules: TokenRules(),
            now: { Timestamp(seconds: 1_795_000_000) }
        )
    }

    func run(_ input: [UInt8]) async -> FuzzOutcome {
        let parts = input.split(separator: UInt8(ascii: "\n"), maxSplits: 1, omittingEmptySubsequences: false)
        if parts.count == 2, parts[0].isEmpty { return Self.read(keySet: Array(parts[1])) }
        let isSigned = parts.count == 2
        let token = isSigned ? self.keys.sign(parts[0], parts[1]) : String(decoding: input, as: UTF8.self)
        do throws(TokenFault) {
            let caller = try await self.verifier.verify(token, remembers: true)
            // The keys are random, so no token that was not signed here may be valid.
            guard isSigned else { return FuzzOutcome("forged", fault: "an unsigned token was accepted") }
            let isUser = (1...128).contains(caller.user.unicodeScalars.count)
            return FuzzOutcome("good \(caller.scopes.count)", fault: isUser ? nil : "the user is not a valid user id")
        } catch {
            return FuzzOutcome("\(isSigned) \(error.description)")
        }
    }

    private static func read(keySet document: [UInt8]) -> FuzzOutcome {
        do throws(KeySetFault) {
            let keys = try KeySet(document)
            return FuzzOutcome("keys \(keys.count)", fault: (1...64).contains(keys.count) ? nil : "too many keys")
        } catch {
            return FuzzOutcome("no keys: \(error.description.prefix(40))")
        }
    }
}

/// Random keys of an issuer that signs any input.
struct TokenKeys {
    static let secret = "a-secret-of-more-than-thirty-two-bytes"

    private let elliptic: P256.Signing.PrivateKey
    private let rsa: _RSA.Signing.PrivateKey

    init() {
        self.elliptic = P256.Signing.PrivateKey()
        do {
            self.rsa = try _RSA.Signing.PrivateKey(keySize: .bits2048)
        } catch {
            fatalError("cannot create an RSA key: \(error)")
        }
    }

    /// The public keys in a cache that never refreshes.
    func cache() -> KeySetCache {
        var timing = KeySetCache.Timing()
        timing.interval = .seconds(1_000_000)
        timing.gap = .seconds(1_000_000)
        let keys = try? KeySet(Array(self.document.utf8))
        return KeySetCache(initial: keys, timing: timing, logger: Logger(label: "fuzz")) {
            () async throws(KeySetFault) in throw KeySetFault("must not be fetched")
        }
    }

    /// The public keys as a JWKS document.
    private var document: String {
        let point = self.elliptic.publicKey.rawRepresentation
        let numbers = try? self.rsa.publicKey.getKeyPrimitives()
        let modulus = Self.encode(numbers?.modulus ?? Data()), exponent = Self.encode(numbers?.publicExponent ?? Data())
        return #"{"keys":[{"kty":"EC","crv":"P-256","kid":"e","x":"\#(Self.encode(point.prefix(32)))","#
            + #""y":"\#(Self.encode(point.suffix(32)))"},{"kty":"RSA","kid":"r","n":"\#(modulus)","e":"\#(exponent)"}]}"#
    }

    /// Returns a token signed with the algorithm of its header, or with the secret if that is
    /// unknown.
    func sign(_ header: ArraySlice<UInt8>, _ claims: ArraySlice<UInt8>) -> String {
        let signed = Self.encode(header) + "." + Self.encode(claims)
        let bytes = Data(signed.utf8)
        let name = String(decoding: header, as: UTF8.self)
        var signature = Data(
            HMAC<SHA256>.authenticationCode(for: bytes, using: SymmetricKey(data: Data(Self.secret.utf8))))
        if name.contains("ES256"), let made = try? self.elliptic.signature(for: bytes) {
            signature = made.rawRepresentation
        } else if name.contains("RS256"), let made = try? self.rsa.signature(for: bytes, padding: .insecurePKCS1v1_5) {
            signature = made.rawRepresentation
        }
        return signed + "." + Self.encode(signature)
    }

    private static func encode(_ bytes: some Sequence<UInt8>) -> String {
        Data(bytes).base64EncodedString().replacingOccurrences(of: "+", with: "-")
            .replacingOccurrences(of: "/", with: "_").replacingOccurrences(of: "=", with: "")
    }
}
