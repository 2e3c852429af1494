// Carillon · TokenTarget.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto
import Foundation
import Model
import Services

/// Tokens: an input is a token's text, or, with a line end in it, the header and the claims of one that is then signed.
struct TokenTarget: FuzzTarget {
    private static let secret = "a-secret-of-more-than-thirty-two-bytes"

    let dictionary = [
        ".", "eyJhbGciOiJIUzI1NiJ9", #""alg":"HS256""#, #""alg":"none""#, #""alg":"RS256""#, #""crit":["x"]"#,
        #""kid":"k""#,
        #""sub":"u""#, #""exp":1895000000"#, #""nbf":0"#, #""iat":1e400"#, #""scope":"admin""#, #""types":["*"]"#,
        #""audiences":["user"]"#, "{}", "\n", "null", "==", "-_",
    ]
    private let verifier = TokenVerifier(
        secrets: [TokenTarget.secret],
        keySet: nil,
        rules: TokenRules(),
        now: { Timestamp(seconds: 1_795_000_000) }
    )

    func run(_ input: [UInt8]) async -> FuzzOutcome {
        let parts = input.split(separator: UInt8(ascii: "\n"), maxSplits: 1, omittingEmptySubsequences: false)
        let isSigned = parts.count == 2
        let token = isSigned ? Self.sign(parts[0], parts[1]) : String(decoding: input, as: UTF8.self)
        do throws(TokenFault) {
            let caller = try await self.verifier.verify(token)
            // Nobody knows the secret, so that what was not signed here cannot be good.
            guard isSigned else { return FuzzOutcome("forged", fault: "an unsigned token was taken") }
            let isUser = (1...128).contains(caller.user.unicodeScalars.count)
            return FuzzOutcome("good \(caller.scopes.count)", fault: isUser ? nil : "the user is no user id")
        } catch {
            return FuzzOutcome("\(isSigned) \(error.description)")
        }
    }

    private static func sign(_ header: ArraySlice<UInt8>, _ claims: ArraySlice<UInt8>) -> String {
        let signed = self.encode(header) + "." + self.encode(claims)
        let code = HMAC<SHA256>.authenticationCode(
            for: Array(signed.utf8),
            using: SymmetricKey(data: Array(self.secret.utf8))
        )
        return signed + "." + self.encode(Array(code))
    }

    private static func encode(_ bytes: some Sequence<UInt8>) -> String {
        Data(bytes).base64EncodedString().replacingOccurrences(of: "+", with: "-")
            .replacingOccurrences(of: "/", with: "_").replacingOccurrences(of: "=", with: "")
    }
}
