// Carillon · FCMServiceAccount.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import _CryptoExtras

/// A Google service account, which requests access tokens for a project (RFC 7523).
struct FCMServiceAccount: Sendable {
    /// Google's tokens last an hour; a longer lifetime is capped here.
    private static let longestLifetime: Int64 = 86_400

    let project: String
    let tokenURL: String
    private let email: String
    private let keyID: String
    private let key: _RSA.Signing.PrivateKey

    /// Parses the file from Google's console.
    ///
    /// - Throws: ``CredentialFault`` that names the member.
    init(json: [UInt8]) throws(CredentialFault) {
        guard let value = try? JSONParser.parse(json), value.object != nil else {
            throw CredentialFault("the service account file is not a JSON object")
        }
        func member(_ name: String) throws(CredentialFault) -> String {
            guard let text = value[name]?.string, !text.isEmpty else {
                throw CredentialFault("the service account file has no \(name)")
            }
            return text
        }
        self.project = try member("project_id")
        self.email = try member("client_email")
        self.keyID = try member("private_key_id")
        self.tokenURL = try member("token_uri")
        let pem = try member("private_key")
        guard let key = try? _RSA.Signing.PrivateKey(pemRepresentation: pem) else {
            throw CredentialFault("the service account's private_key is not an RSA key in PEM")
        }
        self.key = key
    }

    /// Creates the request for an access token.
    func tokenRequest(now: Timestamp) throws(CredentialFault) -> ProviderRequest {
        var claims = JSONWriter()
        claims.beginObject()
        claims.member("iss", self.email)
        claims.member("scope", "https://www.googleapis.com/auth/firebase.messaging")
        claims.member("aud", self.tokenURL)
        claims.member("iat", now.seconds)
        claims.member("exp", now.seconds + 3_600)
        claims.endObject()
        let signed: String
        do {
            signed = try JSONWebToken.signed(.rs256, keyID: self.keyID, claims: claims.bytes) { bytes in
                try self.key.signature(for: bytes, padding: .insecurePKCS1v1_5).rawRepresentation
            }
        } catch {
            throw CredentialFault("the service account's key cannot sign")
        }
        let form = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=\(signed)"
        return ProviderRequest(
            url: self.tokenURL,
            headers: [("content-type", "application/x-www-form-urlencoded")],
            body: Array(form.utf8)
        )
    }

    /// Whether the token endpoint's status means an outage or throttling, so that the account is
    /// not at fault.
    static func isOutage(_ status: Int) -> Bool { status >= 500 || status == 429 || status == 408 }

    /// Parses the token endpoint's answer.
    ///
    /// - Returns: the token and its lifetime.
    /// - Throws: ``CredentialFault`` with the endpoint's error code.
    static func token(
        status: Int,
        body: [UInt8]
    ) throws(CredentialFault) -> (token: String, lifetime: Duration) {
        let value = try? JSONParser.parse(body)
        guard status == 200, let token = value?["access_token"]?.string else {
            let code = value?["error"]?.string ?? "no error code"
            throw CredentialFault("the token endpoint answered \(status), \(String(code.unicodeScalars.prefix(64)))")
        }
        let seconds = value?["expires_in"]?.integer ?? 3_600
        return (token, .seconds(min(max(seconds, 1), Self.longestLifetime)))
    }
}
