// Carillon · AuthenticationSettings.swift
// SPDX-License-Identifier: Apache-2.0

/// How tokens are checked.
package struct AuthenticationSettings: Sendable {
    private static let shortestSecret = 32

    /// HS256 secrets: the one that tokens are made with, then the one that it replaced.
    package let secrets: [String]
    /// Where the keys for RS256 and ES256 lie.
    package let keySet: KeySetLocation?
    /// A PEM file of authorities for the key set's URL.
    package let keySetCertificateAuthority: String?
    package let issuer: String?
    package let audience: String?
    package let userClaim: String
    /// How far clocks may differ.
    package let skew: Duration

    /// Reads it; faults stay with the reader.
    package init(_ reader: SettingsReader) {
        let secret = reader.text("AUTH_JWT_SECRET")
        let previous = reader.text("AUTH_JWT_SECRET_PREVIOUS")
        // One that is too short is a fault, and never used.
        self.secrets = [secret, previous].compactMap { $0 }.filter { $0.utf8.count >= Self.shortestSecret }
        let isKeySetNamed = reader.text("AUTH_JWKS") != nil
        self.keySet = reader.value("AUTH_JWKS", default: nil) { try KeySetLocation($0) }
        self.keySetCertificateAuthority = reader.text("AUTH_JWKS_CA")
        self.issuer = reader.text("AUTH_ISSUER")
        self.audience = reader.text("AUTH_AUDIENCE")
        self.userClaim = reader.text("AUTH_USER_CLAIM") ?? "sub"
        self.skew = .seconds(reader.integer("AUTH_CLOCK_SKEW", default: 30, in: 0...300))
        if secret == nil, !isKeySetNamed {
            reader.fault("AUTH_JWT_SECRET", "or AUTH_JWKS is required")
        }
        if secret == nil, previous != nil {
            reader.fault("AUTH_JWT_SECRET_PREVIOUS", "goes with AUTH_JWT_SECRET, which is missing")
        }
        for (name, text) in [("AUTH_JWT_SECRET", secret), ("AUTH_JWT_SECRET_PREVIOUS", previous)] {
            guard let text, text.utf8.count < Self.shortestSecret else { continue }
            reader.fault(name, "must have at least \(Self.shortestSecret) bytes (RFC 7518 section 3.2)")
        }
    }
}
