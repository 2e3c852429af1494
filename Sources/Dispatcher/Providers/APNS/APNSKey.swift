// Carillon · APNSKey.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import JWTKit

/// Apple's .p8 signing key and the team it belongs to; makes provider tokens.
package struct APNSKey: Sendable {
    /// Tells the key from others; holds nothing of it but a hash.
    package let identity: String
    private let keyID: String
    private let teamID: String
    private let keys: JWTKeyCollection

    private struct Claims: JWTPayload {
        let iss: String
        let iat: Int64

        func verify(using algorithm: some JWTAlgorithm) async throws {}
    }

    /// - Throws: ``CredentialFault`` if the PEM holds no P-256 key.
    package init(pem: String, keyID: String, teamID: String) async throws(CredentialFault) {
        self.keyID = keyID
        self.teamID = teamID
        let hash = SHA256.hash(data: pem.utf8.filter { $0 > 0x20 })
        self.identity = "\(teamID) \(keyID) " + Base64URL.encode(hash.prefix(16))
        self.keys = JWTKeyCollection()
        do {
            await self.keys.add(ecdsa: try ES256PrivateKey(pem: pem), kid: JWKIdentifier(string: keyID))
        } catch {
            throw CredentialFault("the APNs key is not a P-256 key in PEM")
        }
    }

    /// A provider token, which Apple takes for an hour from `now` on.
    package func token(now: Timestamp) async throws(CredentialFault) -> String {
        do {
            return try await self.keys.sign(
                Claims(iss: self.teamID, iat: now.seconds),
                kid: JWKIdentifier(string: self.keyID)
            )
        } catch {
            throw CredentialFault("the APNs key cannot sign")
        }
    }
}
