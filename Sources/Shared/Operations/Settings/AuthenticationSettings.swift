// Carillon · AuthenticationSettings.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The settings that check tokens.
package struct AuthenticationSettings: Sendable {
    /// HS256 secrets: the current one, then the previous one.
    package let secrets: [String]
    /// The key set for RS256 and ES256.
    package let keySet: KeySetLocation?
    /// A PEM file of authorities for the key set's URL.
    package let keySetCertificateAuthority: String?
    package let issuer: String?
    package let audience: String?
    package let userClaim: String
    /// The cookie that holds a token, on the paths of existing clients.
    package let cookie: String?
    /// The tolerated clock difference.
    package let skew: Duration

    /// Whether tokens that the issuer made for other apps are accepted.
    package var acceptsAnyAudience: Bool { self.keySet != nil && self.audience == nil }

    /// Reads the variables; records faults in `reader`.
    ///
    /// - Parameter signs: whether the program signs tokens, which needs a secret; a key set is not
    ///   enough.
    package init(_ reader: SettingsReader, signs: Bool = false) {
        let isSecretSet = reader.text("AUTH_JWT_SECRET") != nil
        let isPreviousSet = reader.text("AUTH_JWT_SECRET_PREVIOUS") != nil
        self.secrets = ["AUTH_JWT_SECRET", "AUTH_JWT_SECRET_PREVIOUS"].compactMap { reader.secret($0) }
        let isKeySetNamed = reader.text("AUTH_JWKS") != nil
        self.keySet = reader.value("AUTH_JWKS", default: nil) { try KeySetLocation($0) }
        self.keySetCertificateAuthority = reader.text("AUTH_JWKS_CA")
        self.issuer = reader.text("AUTH_ISSUER")
        self.audience = reader.text("AUTH_AUDIENCE")
        self.userClaim = reader.text("AUTH_USER_CLAIM") ?? "sub"
        self.skew = .seconds(reader.integer("AUTH_CLOCK_SKEW", default: 30, in: 0...300))
        self.cookie = reader.value("AUTH_COOKIE", default: nil) { text -> String? in
            // A token of RFC 9110 section 5.6.2, as RFC 6265 section 4.1.1 requires.
            let isName = text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && !"()<>@,;:\\\"/[]?={}".utf8.contains($0) }
            guard isName else { throw FieldFault("must be a cookie name") }
            return text
        }
        if !isSecretSet, signs {
            reader.fault("AUTH_JWT_SECRET", "is missing; it signs tokens")
        } else if !isSecretSet, !isKeySetNamed {
            reader.fault("AUTH_JWT_SECRET", "or AUTH_JWKS is required")
        }
        if !isSecretSet, isPreviousSet {
            reader.fault("AUTH_JWT_SECRET_PREVIOUS", "needs AUTH_JWT_SECRET, which is missing")
        }
    }
}

/// The location of a key set.
package enum KeySetLocation: Sendable, Equatable {
    case file(String)
    case url(String)

    /// Parses a path or an absolute URL: `https`, or `http` on this machine.
    init(_ text: String) throws(FieldFault) {
        guard let colon = text.firstIndex(of: ":"), text[colon...].hasPrefix("://") else {
            self = .file(text)
            return
        }
        let rest = text[text.index(colon, offsetBy: 3)...]
        let authority = rest.prefix { !"/?#".contains($0) }
        guard !authority.isEmpty, !authority.contains("@"), !authority.contains("\\"),
            text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F })
        else { throw FieldFault("must be a path or a URL with a host and without credentials") }
        switch text[..<colon].lowercased() {
        case "https": break
        case "http" where Self.isLoopback(authority): break
        case "http": throw FieldFault("must be https; http only for this machine")
        default: throw FieldFault("must be a path or an https URL")
        }
        self = .url(text)
    }

    /// Whether an authority (RFC 3986 section 3.2) names this machine.
    private static func isLoopback(_ authority: Substring) -> Bool {
        if authority.hasPrefix("[") { return authority.hasPrefix("[::1]") }
        let host = authority.prefix { $0 != ":" }.lowercased()
        if host == "localhost" { return true }
        let numbers = host.split(separator: ".", omittingEmptySubsequences: false)
        return numbers.count == 4 && numbers[0] == "127" && numbers.allSatisfy { UInt8($0) != nil }
    }
}
