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
    /// The cookie that holds a token, on paths of existing clients.
    package let cookie: String?
    /// How far clocks may differ.
    package let skew: Duration

    /// Whether tokens that the key set's issuer made for other apps are accepted.
    package var acceptsAnyAudience: Bool { self.keySet != nil && self.audience == nil }

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
        self.cookie = reader.value("AUTH_COOKIE", default: nil) { text -> String? in
            // A token of RFC 9110 section 5.6.2, as RFC 6265 section 4.1.1 wants it.
            let isName = text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && !"()<>@,;:\\\"/[]?={}".utf8.contains($0) }
            guard isName else { throw Complaint("must be a cookie's name") }
            return text
        }
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
