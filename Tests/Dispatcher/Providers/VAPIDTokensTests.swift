// Carillon · VAPIDTokensTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import Providers
import Testing

@Suite("Tokens for push services", .timeLimit(.minutes(10)))
struct VAPIDTokensTests {
    private static func tokens(capacity: Int = 256) throws -> VAPIDTokens {
        let key = try VAPIDKey(file: Array(P256.Signing.PrivateKey().pemRepresentation.utf8))
        return VAPIDTokens(key: key, subject: "mailto:push@example.com", capacity: capacity)
    }

    @Test("One for each origin, made anew after half of its time")
    func renewal() throws {
        let tokens = try Self.tokens()
        let first = try tokens.authorization(origin: "https://a.example", now: Messages.now)
        #expect(try tokens.authorization(origin: "https://b.example", now: Messages.now) != first)
        let later = Messages.now + .seconds(6 * 3_600)
        #expect(try tokens.authorization(origin: "https://a.example", now: later + .microseconds(-1)) == first)
        let second = try tokens.authorization(origin: "https://a.example", now: later)
        #expect(second != first)
        let claims = try SignedToken(second.dropFirst("vapid t=".count).prefix { $0 != "," }).claims
        #expect(claims["exp"]?.integer == later.seconds + 43_200)
    }

    @Test("No more are remembered than there is room for, whatever endpoints say")
    func bound() throws {
        let tokens = try Self.tokens(capacity: 4)
        for number in 0..<20 {
            _ = try tokens.authorization(origin: "https://\(number).example", now: Messages.now)
            #expect(tokens.count <= 4)
        }
    }
}
