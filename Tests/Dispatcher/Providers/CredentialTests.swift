// Carillon · CredentialTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import Foundation
import Testing
import _CryptoExtras

@testable import Providers

@Suite("Provider credentials", .timeLimit(.minutes(10)))
struct CredentialTests {
    private static let tokenURL = "https://oauth.example/token"

    private static func account(_ pem: String, without left: String? = nil) -> [UInt8] {
        let members = [
            ("type", "service_account"), ("project_id", "p1"), ("client_email", "app@p1.example"),
            ("private_key_id", "k1"), ("token_uri", Self.tokenURL), ("private_key", pem),
        ]
        let kept = members.filter { $0.0 != left }.map { JSONMember($0.0, .string($0.1)) }
        return JSONWriter.bytes(of: .object(kept))
    }

    private static func fault(_ body: () async throws(CredentialFault) -> Void) async -> String? {
        do throws(CredentialFault) {
            try await body()
            return nil
        } catch {
            return error.description
        }
    }

    @Test("the assertion is signed with the account's key and has Google's claims (RFC 7523)")
    func assertion() async throws {
        let key = try _RSA.Signing.PrivateKey(keySize: .bits2048)
        let account = try FCMServiceAccount(json: Self.account(key.pkcs8PEMRepresentation))
        #expect(account.project == "p1")
        #expect(account.tokenURL == Self.tokenURL)

        let request = try account.tokenRequest(now: Messages.now)
        #expect(request.url == Self.tokenURL)
        #expect(Messages.headers(request) == ["content-type: application/x-www-form-urlencoded"])
        let grant = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion="
        let form = Messages.text(request)
        #expect(form.hasPrefix(grant))
        let token = try SignedToken(form.dropFirst(grant.count))
        #expect(token.header["alg"]?.string == "RS256")
        #expect(token.header["kid"]?.string == "k1")
        #expect(token.claims["iss"]?.string == "app@p1.example")
        #expect(token.claims["aud"]?.string == Self.tokenURL)
        #expect(token.claims["scope"]?.string == "https://www.googleapis.com/auth/firebase.messaging")
        #expect(token.claims["iat"]?.integer == 1_795_168_800)
        #expect(token.claims["exp"]?.integer == 1_795_172_400)
        let signature = _RSA.Signing.RSASignature(rawRepresentation: token.signature)
        #expect(
            key.publicKey.isValidSignature(signature, for: SHA256.hash(data: token.signed), padding: .insecurePKCS1v1_5)
        )
    }

    @Test(
        "the fault names a member missing from the account's file",
        arguments: ["project_id", "client_email", "private_key_id", "token_uri", "private_key"]
    )
    func incompleteAccount(member: String) async {
        let fault = await Self.fault { () async throws(CredentialFault) in
            _ = try FCMServiceAccount(json: Self.account("hunter2", without: member))
        }
        #expect(fault == "the service account file has no \(member)")
    }

    @Test("an invalid account file is refused without quoting it")
    func brokenAccount() async {
        for json in [[], Array("[]".utf8), Array("hunter2".utf8)] {
            let fault = await Self.fault { () async throws(CredentialFault) in
                _ = try FCMServiceAccount(json: json)
            }
            #expect(fault == "the service account file is not a JSON object")
        }
        let pem = "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n"
        let fault = await Self.fault { () async throws(CredentialFault) in
            _ = try FCMServiceAccount(json: Self.account(pem))
        }
        #expect(fault == "the service account's private_key is not an RSA key in PEM")
    }

    @Test("the fault names the token endpoint's error code, never its body")
    func tokenAnswer() async throws {
        let body = Array(#"{"access_token":"ya29","expires_in":3599,"token_type":"Bearer"}"#.utf8)
        let (token, lifetime) = try FCMServiceAccount.token(status: 200, body: body)
        #expect(token == "ya29")
        #expect(lifetime == .seconds(3_599))
        // An invalid lifetime never traps, also not in values computed from it.
        for (stated, seconds) in [
            ("9223372036854775807", 86_400), ("-9223372036854775808", 1), ("0", 1), ("1.5", 3_600),
        ] {
            let body = Array(#"{"access_token":"ya29","expires_in":\#(stated)}"#.utf8)
            #expect(try FCMServiceAccount.token(status: 200, body: body).lifetime == .seconds(seconds))
        }
        let table: [(Int, String, String)] = [
            (400, #"{"error":"invalid_grant","error_description":"hunter2"}"#, "400, invalid_grant"),
            (500, "hunter2", "500, no error code"), (200, "{}", "200, no error code"),
            (401, #"{"access_token":"hunter2"}"#, "401, no error code"),
        ]
        for (status, body, expected) in table {
            let fault = await Self.fault { () async throws(CredentialFault) in
                _ = try FCMServiceAccount.token(status: status, body: Array(body.utf8))
            }
            #expect(fault == "the token endpoint answered \(expected)")
        }
    }

    @Test("Apple's token is signed with the key and names team and time")
    func providerToken() async throws {
        let key = P256.Signing.PrivateKey()
        let signer = try APNSKey(pem: key.pemRepresentation, keyID: "KEY1234567", teamID: "TEAM123456")
        let token = try SignedToken(try signer.token(now: Messages.now))
        #expect(token.header["alg"]?.string == "ES256")
        #expect(token.header["kid"]?.string == "KEY1234567")
        #expect(token.claims["iss"]?.string == "TEAM123456")
        #expect(token.claims["iat"]?.integer == 1_795_168_800)
        #expect(token.claims["exp"] == nil)
        #expect(token.signature.count == 64)
        let signature = try P256.Signing.ECDSASignature(rawRepresentation: token.signature)
        #expect(key.publicKey.isValidSignature(signature, for: token.signed))
        #expect(!P256.Signing.PrivateKey().publicKey.isValidSignature(signature, for: token.signed))
    }

    @Test("an invalid key is refused without quoting it")
    func brokenKey() async {
        let fault = await Self.fault { () async throws(CredentialFault) in
            _ = try APNSKey(pem: "hunter2", keyID: "k", teamID: "t")
        }
        #expect(fault == "the APNs key is not a P-256 key in PEM")
    }
}

/// A JSON Web Token (RFC 7515 section 3.1), parsed without the library that made it.
struct SignedToken {
    let header: JSONValue
    let claims: JSONValue
    /// The signed bytes.
    let signed: Data
    let signature: Data

    init(_ text: some StringProtocol) throws {
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        try #require(parts.count == 3)
        self.header = try JSONParser.parse(Array(try Self.bytes(parts[0])))
        self.claims = try JSONParser.parse(Array(try Self.bytes(parts[1])))
        self.signed = Data("\(parts[0]).\(parts[1])".utf8)
        self.signature = try Self.bytes(parts[2])
    }

    private static func bytes(_ text: some StringProtocol) throws -> Data {
        let plain = String(text.map { $0 == "-" ? "+" : $0 == "_" ? "/" : $0 })
        let padding = String(repeating: "=", count: (4 - plain.count % 4) % 4)
        return try #require(Data(base64Encoded: plain + padding))
    }
}
