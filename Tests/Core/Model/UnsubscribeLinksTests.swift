// Carillon · UnsubscribeLinksTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@Suite("Unsubscribe links", .timeLimit(.minutes(10)))
struct UnsubscribeLinksTests {
    private static let links = UnsubscribeLinks(secret: "a-secret-of-thirty-two-characters")

    @Test(
        "a token names user and type and is URL-safe",
        arguments: [("u1", nil), ("u1", "news"), ("é/ü ?&", "a b"), (String(repeating: "𝄞", count: 128), "x")]
            as [(String, String?)]
    )
    func roundTrip(user: String, type: String?) {
        let target = UnsubscribeLinks.Target(user: user, type: type)
        let token = Self.links.token(for: target)
        #expect(Self.links.target(of: token) == target)
        #expect(token.utf8.count <= UnsubscribeLinks.longestToken)
        #expect(token.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || $0 == "-" || $0 == "_") })
        let another = "another-secret-of-32-characters!"
        #expect(UnsubscribeLinks(secret: another).target(of: token) == nil)
        let rotated = UnsubscribeLinks(secret: another, previousSecret: "a-secret-of-thirty-two-characters")
        #expect(rotated.target(of: token) == Self.links.target(of: token))
    }

    @Test("a token with a changed byte is invalid")
    func forgery() {
        let token = Self.links.token(for: .init(user: "ada", type: "news"))
        for index in token.indices {
            var forged = token
            forged.replaceSubrange(index...index, with: token[index] == "A" ? "B" : "A")
            // The unused bits of the last character may differ without changing a byte.
            guard forged != token, token.index(after: index) != token.endIndex else { continue }
            #expect(Self.links.target(of: forged) == nil)
        }
        for text in ["", "x", "====", String(repeating: "A", count: 2_000), "AQAA"] {
            #expect(Self.links.target(of: text) == nil)
        }
        // The boundary between user and type is signed too.
        #expect(
            Self.links.token(for: .init(user: "ab", type: "c")) != Self.links.token(for: .init(user: "a", type: "bc")))
    }
}
