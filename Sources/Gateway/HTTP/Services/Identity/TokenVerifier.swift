// Carillon · TokenVerifier.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto

/// Checks JSON Web Tokens (RFC 7519): HS256 with secrets, RS256 and ES256 with a key set (RFC 7517).
///
/// The algorithm decides which keys are asked, so that a public key is never taken for a secret. With the key known and
/// the revocations in memory, nothing here waits for anything.
package struct TokenVerifier: Sendable {
    private let secrets: [SymmetricKey]
    private let keySet: KeySetCache?
    private let rules: TokenRules
    private let revocations: RevocationRegister?
    private let verified = VerifiedTokens()
    private let now: @Sendable () -> Timestamp

    /// - Parameters:
    ///   - secrets: for HS256; more than one while they are being replaced.
    ///   - keySet: for RS256 and ES256.
    ///   - revocations: nil where tokens are good until they end.
    package init(
        secrets: [String],
        keySet: KeySetCache?,
        rules: TokenRules,
        revocations: RevocationRegister? = nil,
        now: @escaping @Sendable () -> Timestamp
    ) {
        self.secrets = secrets.map { SymmetricKey(data: Array($0.utf8)) }
        self.keySet = keySet
        self.rules = rules
        self.revocations = revocations
        self.now = now
    }

    /// Who a token speaks for.
    ///
    /// - Parameter remembers: whether the token probably comes again soon, as those of requests do.
    /// - Throws: ``TokenFault`` with the reason.
    package func verify(_ token: String, remembers: Bool = false) async throws(TokenFault) -> Caller {
        do throws(TokenFault) {
            // Taken first: a set that is read while a signature is checked makes what was found old.
            let reading = self.keySet?.reading
            let digest = VerifiedTokens.digest(token)
            let caller: Caller
            if let known = self.verified.caller(digest, reading: reading, now: self.now()) {
                caller = known
            } else {
                let token = try SignedToken(token)
                try await self.checkSignature(token)
                caller = try self.rules.caller(token.claims, now: self.now())
                if remembers {
                    self.verified.keep(caller, digest, reading: token.algorithm == .hs256 ? nil : reading)
                }
            }
            try await self.revocations?.check(caller)
            return caller
        } catch {
            IdentityMetrics.count(error)
            throw error
        }
    }

    private func checkSignature(_ token: SignedToken) async throws(TokenFault) {
        var isValid = false
        switch token.algorithm {
        case .hs256:
            guard !self.secrets.isEmpty else { throw TokenFault("the token's algorithm is not accepted") }
            for secret in self.secrets where !isValid {
                // Compares in constant time.
                isValid = HMAC<SHA256>.isValidAuthenticationCode(
                    token.signature, authenticating: token.signed, using: secret)
            }
        case .keySet(let algorithm):
            guard let keySet else { throw TokenFault("the token's algorithm is not accepted") }
            let keys = try await keySet.candidates(algorithm, kid: token.kid)
            isValid = keys.contains { $0.isValid(token.signature, for: token.signed) }
        }
        guard isValid else { throw TokenFault("the token's signature is not valid") }
    }
}
