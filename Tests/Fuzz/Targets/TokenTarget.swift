// Carillon · TokenTarget.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTP

/// Tokens and key sets: an input is a token's text; or, with a line end in it, the header and the claims of one that is
/// then signed; or, behind a line end at its beginning, a JWKS document.
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
            // Nobody knows the keys, so that what was not signed here cannot be good.
            guard isSigned else { return FuzzOutcome("forged", fault: "an unsigned token was taken") }
            let isUser = (1...128).contains(caller.user.unicodeScalars.count)
            return FuzzOutcome("good \(caller.scopes.count)", fault: isUser ? nil : "the user is no user id")
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
