// Carillon · TokenVerifierTests.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto
import Foundation
import JWTKit
import Model
import Services
import Testing

@Suite(.timeLimit(.minutes(1)))
struct TokenVerifierTests {
    private static let secret = "a-secret-of-more-than-thirty-two-bytes"
    private static let now = Timestamp(seconds: 1_795_000_000)

    private static func encode(_ bytes: some DataProtocol) -> String {
        Data(bytes).base64EncodedString().replacingOccurrences(of: "+", with: "-")
            .replacingOccurrences(of: "/", with: "_").replacingOccurrences(of: "=", with: "")
    }

    /// A token with exactly these texts as header and claims, signed by HS256 with `key`.
    private static func token(
        _ claims: String,
        header: String = #"{"alg":"HS256","typ":"JWT"}"#,
        key: String = TokenVerifierTests.secret
    ) -> String {
        let signed = self.encode(Data(header.utf8)) + "." + self.encode(Data(claims.utf8))
        let code = HMAC<SHA256>.authenticationCode(
            for: Data(signed.utf8),
            using: SymmetricKey(data: Data(key.utf8))
        )
        return signed + "." + self.encode(Data(code))
    }

    private static func verifier(
        keySet: String? = nil,
        issuer: String? = nil,
        audience: String? = nil,
        userClaim: String = "sub"
    ) async throws -> TokenVerifier {
        try await TokenVerifier(
            secret: self.secret,
            keySet: keySet,
            issuer: issuer,
            audience: audience,
            userClaim: userClaim,
            now: { self.now }
        )
    }

    @Test("a good token names its user, scopes and end")
    func good() async throws {
        let verifier = try await Self.verifier()
        let caller = try await verifier.verify(Self.token(#"{"sub":"ada","exp":1795000600,"scope":"service other"}"#))
        #expect(caller.user == "ada")
        #expect(caller.scopes == [.service])
        #expect(caller.expiresAt == Timestamp(seconds: 1_795_000_630))
        let number = try await verifier.verify(Self.token(#"{"sub":42}"#))
        #expect(number.user == "42")
        #expect(number.isService == false)
        let other = try await Self.verifier(userClaim: "uid").verify(Self.token(#"{"sub":"x","uid":"ada"}"#))
        #expect(other.user == "ada")
    }

    @Test(
        "what is wrong is said",
        arguments: [
            (#"{"sub":"ada","exp":1794999969}"#, "has expired"),
            (#"{"sub":"ada","nbf":1795000031}"#, "not valid yet"),
            (#"{"sub":"ada","exp":"soon"}"#, "claim exp is no time"),
            (#"{"exp":1795000600}"#, "claim sub is no user id"),
            (#"{"sub":""}"#, "claim sub is no user id"),
            (#"{"sub":"ada","sub":"eve"}"#, "not a JSON Web Token"),
            ("[]", "not a JSON Web Token"),
        ]
    )
    func faults(claims: String, reason: String) async throws {
        let verifier = try await Self.verifier()
        let error = await #expect(throws: TokenFault.self) { try await verifier.verify(Self.token(claims)) }
        #expect(error?.description.contains(reason) == true)
    }

    @Test("a little difference between clocks is forgiven")
    func leeway() async throws {
        let verifier = try await Self.verifier()
        _ = try await verifier.verify(Self.token(#"{"sub":"ada","exp":1794999971,"nbf":1795000029}"#))
    }

    @Test("issuer and audience are checked where they are configured")
    func issuer() async throws {
        let verifier = try await Self.verifier(issuer: "us", audience: "app")
        _ = try await verifier.verify(Self.token(#"{"sub":"a","iss":"us","aud":"app"}"#))
        _ = try await verifier.verify(Self.token(#"{"sub":"a","iss":"us","aud":["web","app"]}"#))
        for claims in [
            #"{"sub":"a","aud":"app"}"#, #"{"sub":"a","iss":"them","aud":"app"}"#, #"{"sub":"a","iss":"us"}"#,
        ] {
            await #expect(throws: TokenFault.self) { try await verifier.verify(Self.token(claims)) }
        }
    }

    @Test("keys of a set verify RS256 and ES256 by their kid; a public key is never taken for a secret")
    func keySet() async throws {
        struct Claims: JWTPayload {
            let sub: String

            func verify(using algorithm: some JWTAlgorithm) async throws {}
        }
        let signing = ES256PrivateKey()
        let point = try #require(signing.parameters)
        func plain(_ text: String) -> String {
            text.replacingOccurrences(of: "+", with: "-").replacingOccurrences(of: "/", with: "_")
                .replacingOccurrences(of: "=", with: "")
        }
        let set = """
            {"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","kid":"k1",\
            "x":"\(plain(point.x))","y":"\(plain(point.y))"}]}
            """
        let verifier = try await Self.verifier(keySet: set)
        let keys = JWTKeyCollection()
        await keys.add(ecdsa: signing, kid: "k1")
        let good = try await keys.sign(Claims(sub: "ada"), kid: "k1")
        #expect(try await verifier.verify(good).user == "ada")

        let stranger = JWTKeyCollection()
        await stranger.add(ecdsa: ES256PrivateKey(), kid: "k1")
        let forged = try await stranger.sign(Claims(sub: "ada"), kid: "k1")
        await #expect(throws: TokenFault.self) { try await verifier.verify(forged) }
        await #expect(throws: TokenFault.self) {
            try await verifier.verify(Self.token(#"{"sub":"ada"}"#, key: set))
        }
        await #expect(throws: TokenFault.self) {
            try await verifier.verify(Self.token(#"{"sub":"ada"}"#, header: #"{"alg":"ES256","kid":"k1"}"#))
        }
        for algorithm in ["none", "HS512", "hs256", ""] {
            await #expect(throws: TokenFault.self) {
                try await verifier.verify(Self.token(#"{"sub":"ada"}"#, header: #"{"alg":"\#(algorithm)"}"#))
            }
        }
    }

    @Test("what the issuer makes, the verifier takes")
    func issued() async throws {
        let token = try await TokenIssuer.issue(
            user: "ada",
            scope: .admin,
            lifetime: .seconds(60),
            secret: Self.secret,
            issuer: "us",
            audience: "app",
            now: Self.now
        )
        let caller = try await Self.verifier(issuer: "us", audience: "app").verify(token)
        #expect(caller.user == "ada")
        #expect(caller.scopes == [.admin])
    }
}
