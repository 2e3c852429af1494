// Carillon · TokenVerifierTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import Foundation
import Support
import Synchronization
import Testing
import _CryptoExtras

@testable import HTTP

@Suite("Tokens", .timeLimit(.minutes(10)))
struct TokenVerifierTests {
    @Test("reads user, scopes, start and expiry of a valid token")
    func good() async throws {
        let verifier = try Tokens.verifier()
        let claims = #"{"sub":"ada","iat":1794999000.5,"exp":1795000600,"scope":"service other"}"#
        let caller = try await verifier.verify(Tokens.secret(claims))
        #expect(caller.user == "ada")
        #expect(caller.scopes == [.service])
        #expect(caller.issuedAt == Timestamp(milliseconds: 1_794_999_000_500))
        #expect(caller.expiresAt == Timestamp(seconds: 1_795_000_630))
        let number = try await verifier.verify(Tokens.secret(#"{"sub":42,"exp":1795000600}"#))
        #expect(number.user == "42")
        #expect(number.isService == false)
        #expect(number.issuedAt == nil)
        var rules = TokenRules()
        rules.userClaim = "uid"
        let other = try await Tokens.verifier(rules: rules).verify(
            Tokens.secret(#"{"sub":"x","uid":"ada","iat":1795000000}"#))
        #expect(other.user == "ada")
    }

    @Test("accepts a token without expiry for 30 days after its issue")
    func withoutEnd() async throws {
        let caller = try await Tokens.verifier().verify(Tokens.secret(#"{"sub":"ada","iat":1792408000}"#))
        #expect(caller.expiresAt == Tokens.now + .seconds(30))
    }

    @Test(
        "names the fault of claims",
        arguments: [
            (#"{"sub":"ada","exp":1794999969}"#, "has expired"),
            (#"{"sub":"ada","nbf":1795000031}"#, "not valid yet"),
            (#"{"sub":"ada","iat":1795000031}"#, "issued in the future"),
            (#"{"sub":"ada","exp":"soon"}"#, "claim exp is not a time"),
            (#"{"sub":"ada","iat":1e300}"#, "claim iat is not a time"),
            (#"{"exp":1795000600}"#, "claim sub is not a user id"),
            (#"{"sub":"ada"}"#, "neither exp nor iat"),
            (#"{"sub":"ada","iat":1792407969}"#, "no exp and was issued over 30 days ago"),
            (#"{"sub":""}"#, "claim sub is not a user id"),
            (#"{"sub":["ada"]}"#, "claim sub is not a user id"),
            (#"{"sub":"ada","sub":"eve"}"#, "not a JSON Web Token"),
            ("[]", "not a JSON Web Token"),
            (#"{"sub":"backend","scope":"service","types":"a"}"#, "claim types is not an array"),
            (#"{"sub":"backend","scope":"service","types":[""]}"#, "claim types is not an array"),
            (#"{"sub":"backend","scope":"admin","audiences":["everyone"]}"#, "claim audiences is not an array"),
        ]
    )
    func claims(claims: String, reason: String) async throws {
        let verifier = try Tokens.verifier()
        let token = Tokens.secret(claims)
        let error = await #expect(throws: TokenFault.self) { try await verifier.verify(token) }
        #expect(error?.description.contains(reason) == true)
        #expect(error?.code == .refused)
    }

    @Test("ignores service limits in a user's token")
    func usersClaims() async throws {
        let caller = try await Tokens.verifier().verify(
            Tokens.secret(#"{"sub":"ada","iat":1795000000,"types":7,"audiences":"x"}"#))
        #expect(caller.user == "ada")
    }

    @Test(
        "refuses unsupported headers",
        arguments: [
            (#"{"alg":"none"}"#, "algorithm is not accepted"),
            (#"{"alg":"None"}"#, "algorithm is not accepted"),
            (#"{"alg":"hs256"}"#, "algorithm is not accepted"),
            (#"{"alg":"HS512"}"#, "algorithm is not accepted"),
            (#"{"alg":""}"#, "algorithm is not accepted"),
            (#"{"typ":"JWT"}"#, "algorithm is not accepted"),
            (#"{"alg":["HS256"]}"#, "algorithm is not accepted"),
            (#"{"alg":"RS256"}"#, "algorithm is not accepted"),
            (#"{"alg":"HS256","crit":["b64"],"b64":false}"#, "critical header"),
            (#"{"alg":"HS256","crit":[]}"#, "critical header"),
            (#"{"alg":"none","alg":"HS256"}"#, "not a JSON Web Token"),
            (#"{"alg":"HS256","kid":7}"#, "kid is not a string"),
        ]
    )
    func headers(header: String, reason: String) async throws {
        let verifier = try Tokens.verifier()
        let token = Tokens.secret(#"{"sub":"ada","iat":1795000000}"#, header: header)
        let error = await #expect(throws: TokenFault.self) { try await verifier.verify(token) }
        #expect(error?.description.contains(reason) == true)
    }

    @Test("refuses malformed tokens, whatever their signature")
    func form() async throws {
        let verifier = try Tokens.verifier()
        let good = Tokens.secret(#"{"sub":"ada","iat":1795000000}"#)
        let parts = good.split(separator: ".").map { String($0) }
        let cut = parts[0] + "." + parts[1]
        let none = Tokens.encode(Array(#"{"alg":"none"}"#.utf8)) + "." + parts[1] + "."
        let long = Tokens.secret(#"{"sub":"ada","pad":"\#(String(repeating: "x", count: 8_192))"}"#)
        let forms = [
            "", ".", "..", "...", "a.b.c", cut, cut + ".", good + ".", good + "=", good + "A", " " + good, good + "\n",
            parts[0] + "=." + parts[1] + "." + parts[2], none, long, String(repeating: ".", count: 1_000_000),
        ]
        for form in forms {
            let error = await #expect(throws: TokenFault.self) { try await verifier.verify(form) }
            #expect(error?.code == .refused)
        }
    }

    @Test("allows the configured clock skew")
    func skew() async throws {
        let claims = #"{"sub":"ada","exp":1794999971,"nbf":1795000029,"iat":1795000029}"#
        _ = try await Tokens.verifier().verify(Tokens.secret(claims))
        var rules = TokenRules()
        rules.skew = .zero
        let exact = try Tokens.verifier(rules: rules)
        _ = try await exact.verify(Tokens.secret(#"{"sub":"ada","exp":1795000001,"nbf":1795000000}"#))
        await #expect(throws: TokenFault.self) { try await exact.verify(Tokens.secret(claims)) }
    }

    @Test("checks issuer and audience if they are configured")
    func issuer() async throws {
        var rules = TokenRules()
        rules.issuer = "us"
        rules.audience = "app"
        let verifier = try Tokens.verifier(rules: rules)
        _ = try await verifier.verify(Tokens.secret(#"{"sub":"a","iat":1795000000,"iss":"us","aud":"app"}"#))
        _ = try await verifier.verify(Tokens.secret(#"{"sub":"a","iat":1795000000,"iss":"us","aud":["web","app"]}"#))
        for claims in [
            #"{"sub":"a","aud":"app"}"#, #"{"sub":"a","iss":"them","aud":"app"}"#, #"{"sub":"a","iss":"us"}"#,
            #"{"sub":"a","iss":"us","aud":["app",1]}"#, #"{"sub":"a","iss":["us"],"aud":"app"}"#,
        ] {
            await #expect(throws: TokenFault.self) { try await verifier.verify(Tokens.secret(claims)) }
        }
    }

    @Test("accepts two secrets during a rotation, and no third")
    func rotation() async throws {
        let old = "the-secret-that-is-being-replaced-here"
        let both = try Tokens.verifier(secrets: [Tokens.secret, old])
        for key in [Tokens.secret, old] {
            #expect(try await both.verify(Tokens.secret(#"{"sub":"ada","iat":1795000000}"#, key: key)).user == "ada")
        }
        let third = Tokens.secret(#"{"sub":"ada","iat":1795000000}"#, key: "a-third-secret-of-thirty-two-bytes-too")
        await #expect(throws: TokenFault.self) { try await both.verify(third) }
        let new = try Tokens.verifier()
        await #expect(throws: TokenFault.self) {
            try await new.verify(Tokens.secret(#"{"sub":"ada","iat":1795000000}"#, key: old))
        }
    }

    @Test("verifies RS256 and ES256 with the key of the kid and never uses a public key as a secret")
    func keySet() async throws {
        let elliptic = P256.Signing.PrivateKey()
        let rsa = try _RSA.Signing.PrivateKey(keySize: .bits2048)
        let set = Tokens.document(
            Tokens.webKey(elliptic.publicKey, kid: "k1"), try Tokens.webKey(rsa.publicKey, kid: "k2"))
        let verifier = try Tokens.verifier(keySet: set)
        let claims = #"{"sub":"ada","iat":1795000000}"#
        for token in [
            try Tokens.elliptic(claims, kid: "k1", key: elliptic), try Tokens.elliptic(claims, kid: nil, key: elliptic),
            try Tokens.rsa(claims, kid: "k2", key: rsa), try Tokens.rsa(claims, kid: nil, key: rsa),
        ] {
            #expect(try await verifier.verify(token).user == "ada")
        }
        let pem = rsa.publicKey.pemRepresentation
        for token in [
            try Tokens.elliptic(claims, kid: "k1", key: P256.Signing.PrivateKey()),
            try Tokens.elliptic(claims, kid: nil, key: P256.Signing.PrivateKey()),
            try Tokens.rsa(claims, kid: "k2", key: _RSA.Signing.PrivateKey(keySize: .bits2048)),
            // The other algorithm's key, and the public key as a secret.
            try Tokens.signed(#"{"alg":"RS256","kid":"k1"}"#, claims) {
                try elliptic.signature(for: $0).rawRepresentation
            },
            Tokens.secret(claims, key: set), Tokens.secret(claims, key: pem),
            Tokens.secret(claims, header: #"{"alg":"RS256","kid":"k2"}"#, key: pem),
            Tokens.secret(claims, header: #"{"alg":"ES256","kid":"k1"}"#),
        ] {
            await #expect(throws: TokenFault.self) { try await verifier.verify(token) }
        }
    }

    @Test("leaves the token out of its fault's description")
    func silence() async throws {
        let verifier = try Tokens.verifier(keySet: nil)
        let tokens = [
            Tokens.secret(#"{"sub":"ada","exp":1}"#), Tokens.secret(#"{"sub":"ada","iat":1795000000}"#, key: "another"),
            "hunter2",
            Tokens.secret(#"{"sub":"ada","iat":1795000000}"#, header: #"{"alg":"ES256","kid":"hunter2"}"#),
            "hunter2.hunter2.hunter2",
        ]
        for token in tokens {
            let error = await #expect(throws: TokenFault.self) { try await verifier.verify(token) }
            let said = "\(String(describing: error)) \(String(reflecting: error))"
            let parts = token.split(separator: ".").map { String($0) }
            for part in parts + ["hunter2"] { #expect(!said.contains(part)) }
        }
    }

    @Test("verifies the tokens of our own issuer")
    func issued() async throws {
        let token = TokenIssuer.issue(
            user: "ada",
            scope: .admin,
            lifetime: .seconds(60),
            secret: Tokens.secret,
            issuer: "us",
            audience: "app",
            types: ["news_*"],
            audiences: [.topic],
            now: Tokens.now
        )
        var rules = TokenRules()
        rules.issuer = "us"
        rules.audience = "app"
        let caller = try await Tokens.verifier(rules: rules).verify(token)
        #expect(caller.user == "ada")
        #expect(caller.scopes == [.admin])
        #expect(caller.issuedAt == Tokens.now)
        #expect(caller.allowance.faults(type: "news_today", fields: ["type", "topic"]).isEmpty)
        #expect(caller.allowance.faults(type: "other", fields: ["type", "all"]).map(\.field) == ["type", "all"])
    }

    @Test("puts the user of an issued token into the configured claim")
    func issuedClaim() async throws {
        var rules = TokenRules()
        rules.userClaim = #"https://example.com/"id""#
        let token = TokenIssuer.issue(
            user: "ada",
            userClaim: rules.userClaim,
            scope: .service,
            lifetime: .seconds(60),
            secret: Tokens.secret,
            issuer: nil,
            audience: nil,
            now: Tokens.now
        )
        let caller = try await Tokens.verifier(rules: rules).verify(token)
        #expect(caller.user == "ada")
        #expect(caller.scopes == [.service])
    }

    @Test("expires cached tokens on time and matches only their exact text")
    func remembered() async throws {
        let clock = Mutex(Tokens.now)
        let verifier = TokenVerifier(
            secrets: [Tokens.secret], keySet: nil, rules: TokenRules(), now: { clock.withLock(\.self) })
        let token = Tokens.secret(#"{"sub":"ada","exp":1795000600}"#)
        let first = try await verifier.verify(token, remembers: true)
        #expect(try await verifier.verify(token) == first)
        let end = try #require(token.utf8.lastIndex(of: UInt8(ascii: ".")))
        let forged = String(token[..<end]) + ".AAAA"
        await #expect(throws: TokenFault.self) { try await verifier.verify(forged, remembers: true) }
        clock.withLock { $0 = Timestamp(seconds: 1_795_000_629) }
        #expect(try await verifier.verify(token) == first)
        clock.withLock { $0 = Timestamp(seconds: 1_795_000_630) }
        let error = await #expect(throws: TokenFault.self) { try await verifier.verify(token) }
        #expect(error?.description.contains("has expired") == true)
    }

    @Test("limits the cache and evicts the tokens that were not used again first")
    func bound() {
        let verified = VerifiedTokens(bound: 4)
        func caller(_ name: String) -> Caller? {
            verified.caller(VerifiedTokens.digest(name), reading: nil, now: Tokens.now)
        }
        for name in ["a", "b", "c", "d", "e", "f"] {
            let caller = Caller(user: name, scopes: [], expiresAt: nil)
            verified.keep(caller, VerifiedTokens.digest(name), reading: nil)
        }
        #expect(caller("a")?.user == "a")
        for name in ["g", "h"] {
            verified.keep(Caller(user: name, scopes: [], expiresAt: nil), VerifiedTokens.digest(name), reading: nil)
        }
        #expect(caller("b") == nil)
        #expect(caller("a")?.user == "a")
    }
}

@Suite("Limits of service tokens", .timeLimit(.minutes(10)))
struct JobAllowanceTests {
    @Test(
        "limits types by name or prefix, and audiences by the field",
        arguments: [
            ("", "invoice", ["user"], []),
            (#","types":["invoice","news_*"]"#, "invoice", ["user"], []),
            (#","types":["invoice","news_*"]"#, "news_today", ["all"], []),
            (#","types":["invoice","news_*"]"#, "news_", ["all"], []),
            (#","types":["invoice","news_*"]"#, "news", ["user"], ["type"]),
            (#","types":["invoice","news_*"]"#, "invoices", ["user"], ["type"]),
            (#","types":["*"]"#, "anything", ["user"], []),
            (#","types":[]"#, "invoice", ["user"], ["type"]),
            (#","types":["invoice"]"#, nil, ["event", "user"], ["event"]),
            (#","types":["invoice"]"#, "invoice", ["event", "user"], ["event"]),
            (#","types":["e\u0301*"]"#, "\u{e9}a", ["user"], ["type"]),
            (#","audiences":["user","users"]"#, "invoice", ["type", "users", "title"], []),
            (#","audiences":["user","users"]"#, nil, ["event", "user"], []),
            (#","audiences":["user","users"]"#, "invoice", ["topic"], ["topic"]),
            (#","audiences":["topic"]"#, "invoice", ["all"], ["all"]),
            (#","audiences":[]"#, "invoice", ["user"], ["user"]),
            (#","types":["a"],"audiences":["user"]"#, "b", ["all"], ["type", "all"]),
        ] as [(String, String?, [String], [String])]
    )
    func faults(claims: String, type: String?, fields: [String], expected: [String]) async throws {
        let token = Tokens.secret(#"{"sub":"backend","iat":1795000000,"scope":"service"\#(claims)}"#)
        let caller = try await Tokens.verifier().verify(token)
        #expect(caller.allowance.faults(type: type, fields: fields).map(\.field) == expected)
        #expect(caller.allowance.isLimited == !claims.isEmpty)
    }
}

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

    /// A token signed by HS256 with `key`.
    static func secret(
        _ claims: String,
        header: String = #"{"alg":"HS256","typ":"JWT"}"#,
        key: String = Tokens.secret
    ) -> String {
        self.signed(header, claims) {
            Data(HMAC<SHA256>.authenticationCode(for: $0, using: SymmetricKey(data: Data(key.utf8))))
        }
    }

    /// A token signed by ES256.
    static func elliptic(_ claims: String, kid: String?, key: P256.Signing.PrivateKey) throws -> String {
        let name = kid.map { #","kid":"\#($0)""# } ?? ""
        return try self.signed(#"{"alg":"ES256"\#(name)}"#, claims) { try key.signature(for: $0).rawRepresentation }
    }

    /// A token signed by RS256.
    static func rsa(_ claims: String, kid: String?, key: _RSA.Signing.PrivateKey) throws -> String {
        let name = kid.map { #","kid":"\#($0)""# } ?? ""
        return try self.signed(#"{"alg":"RS256"\#(name)}"#, claims) {
            try key.signature(for: $0, padding: .insecurePKCS1v1_5).rawRepresentation
        }
    }

    /// The key as a member of a JWKS document; `more` are further members, each with a comma before
    /// it.
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

    /// A verifier with the secret and a key set that is never read again.
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
