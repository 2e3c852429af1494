// Carillon · Tokens.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import Foundation
import HTTP
import Support
import _CryptoExtras

/// Makes tokens byte by byte, and the keys that sign them.
enum Tokens {
    static let secret = "a-secret-of-more-than-thirty-two-bytes"
    static let now = Timestamp(seconds: 1_795_000_000)

    static func encode(_ bytes: some DataProtocol) -> String {
        Data(bytes).base64EncodedString().replacingOccurrences(of: "+", with: "-")
            .replacingOccurrences(of: "/", with: "_").replacingOccurrences(of: "=", with: "")
    }

    /// A token with exactly these texts as header and claims.
    static func signed(_ header: String, _ claims: String, _ sign: (Data) throws -> Data) rethrows -> String {
        let signed = self.encode(Data(header.utf8)) + "." + self.encode(Data(claims.utf8))
        return signed + "." + self.encode(try sign(Data(signed.utf8)))
    }

    /// One signed by HS256 with `key`.
    static func secret(
        _ claims: String,
        header: String = #"{"alg":"HS256","typ":"JWT"}"#,
        key: String = Tokens.secret
    ) -> String {
        self.signed(header, claims) {
            Data(HMAC<SHA256>.authenticationCode(for: $0, using: SymmetricKey(data: Data(key.utf8))))
        }
    }

    /// One signed by ES256.
    static func elliptic(_ claims: String, kid: String?, key: P256.Signing.PrivateKey) throws -> String {
        let name = kid.map { #","kid":"\#($0)""# } ?? ""
        return try self.signed(#"{"alg":"ES256"\#(name)}"#, claims) { try key.signature(for: $0).rawRepresentation }
    }

    /// One signed by RS256.
    static func rsa(_ claims: String, kid: String?, key: _RSA.Signing.PrivateKey) throws -> String {
        let name = kid.map { #","kid":"\#($0)""# } ?? ""
        return try self.signed(#"{"alg":"RS256"\#(name)}"#, claims) {
            try key.signature(for: $0, padding: .insecurePKCS1v1_5).rawRepresentation
        }
    }

    /// The key as a member of a JWKS document; `more` are further members, each with a comma before it.
    static func webKey(_ key: P256.Signing.PublicKey, kid: String?, more: String = "") -> String {
        let point = key.rawRepresentation
        let name = kid.map { #","kid":"\#($0)""# } ?? ""
        return #"{"kty":"EC","crv":"P-256","x":"\#(self.encode(point.prefix(32)))","#
            + #""y":"\#(self.encode(point.suffix(32)))"\#(name)\#(more)}"#
    }

    static func webKey(_ key: _RSA.Signing.PublicKey, kid: String?, more: String = "") throws -> String {
        let numbers = try key.getKeyPrimitives()
        let name = kid.map { #","kid":"\#($0)""# } ?? ""
        return #"{"kty":"RSA","n":"\#(self.encode(numbers.modulus))","e":"\#(self.encode(numbers.publicExponent))""#
            + "\(name)\(more)}"
    }

    static func document(_ keys: String...) -> String {
        #"{"keys":[\#(keys.joined(separator: ","))]}"#
    }

    /// A verifier with the secret, and with a key set that is never read again.
    static func verifier(
        secrets: [String] = [Tokens.secret],
        keySet: String? = nil,
        rules: TokenRules = TokenRules()
    ) throws -> TokenVerifier {
        var timing = KeySetCache.Timing()
        timing.interval = .seconds(3_600)
        let cache = try keySet.map { document in
            let keys = try KeySet(Array(document.utf8))
            return KeySetCache(initial: keys, timing: timing, logger: TestLog.logger) { () async throws(KeySetFault) in
                throw KeySetFault("is not read here")
            }
        }
        return TokenVerifier(secrets: secrets, keySet: cache, rules: rules, now: { self.now })
    }
}
