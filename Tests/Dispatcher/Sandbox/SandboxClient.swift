// Carillon · SandboxClient.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import Foundation
import Sandbox
import _CryptoExtras

/// A client that sends valid requests unless a test asks for others.
struct SandboxClient: Sendable {
    struct ServiceAccount: Decodable {
        let client_email: String
        let private_key: String
        let private_key_id: String
        let token_uri: String
    }

    static let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"

    let sandbox: ProviderSandbox
    private let accessToken: String

    /// Fetches an access token first.
    init(_ sandbox: ProviderSandbox) async throws {
        self.sandbox = sandbox
        let reply = try await Self.token(sandbox)
        self.accessToken = reply.value("access_token") as? String ?? ""
    }

    /// A new device token that is not in APNs' fault table.
    static func device(_ marker: String = "") -> String {
        let random = (0..<4).map { _ in String(UInt64.random(in: .min ... .max) | 1 << 63, radix: 16) }.joined()
        return marker.isEmpty ? "0" + random.dropFirst() : marker + random.dropFirst(marker.count)
    }

    /// - Parameter path: the service account's file; nil for the first project's.
    static func token(
        _ sandbox: ProviderSandbox, account path: String? = nil, changing changes: [String: Any] = [:],
        keyID: String? = nil
    ) async throws -> CurlReply {
        let file = try Data(contentsOf: URL(fileURLWithPath: path ?? sandbox.serviceAccountPath))
        let account = try JSONDecoder().decode(ServiceAccount.self, from: file)
        let now = Int(Date().timeIntervalSince1970)
        let claims: [String: Any] = [
            "iss": account.client_email, "scope": "https://www.googleapis.com/auth/firebase.messaging",
            "aud": account.token_uri, "iat": now, "exp": now + 3600,
        ]
        let unsigned = try Self.unsigned(
            ["alg": "RS256", "typ": "JWT", "kid": keyID ?? account.private_key_id],
            claims.merging(changes) { $1 })
        let key = try _RSA.Signing.PrivateKey(pemRepresentation: account.private_key)
        let signature = try key.signature(
            for: SHA256.hash(data: Data(unsigned.utf8)), padding: .insecurePKCS1v1_5)
        let assertion = unsigned + "." + Base64.url.encode(signature.rawRepresentation)
        return try await CurlReply.get([
            "--cacert", sandbox.caPath, account.token_uri, "--data-urlencode", "grant_type=\(Self.grant)", "-d",
            "assertion=\(assertion)",
        ])
    }

    func providerToken(at time: Date = Date(), keyID: String? = nil, key: P256.Signing.PrivateKey? = nil) throws
        -> String
    {
        let pem = try String(contentsOfFile: self.sandbox.apnsKeyPath, encoding: .utf8)
        let key = try key ?? P256.Signing.PrivateKey(pemRepresentation: pem)
        let unsigned = try Self.unsigned(
            ["alg": "ES256", "kid": keyID ?? self.sandbox.apnsKeyID],
            ["iss": self.sandbox.apnsTeamID, "iat": Int(time.timeIntervalSince1970)])
        let signature = try key.signature(for: SHA256.hash(data: Data(unsigned.utf8)))
        return unsigned + "." + Base64.url.encode(signature.rawRepresentation)
    }

    /// Calls `messages:send` over HTTP/2 unless the extra arguments say otherwise.
    func fcm(
        _ body: String, project: String? = nil, bearer: String? = nil, _ extra: String...
    ) async throws -> CurlReply {
        try await CurlReply.get(
            [
                "--cacert", self.sandbox.caPath, "-H", "content-type: application/json", "-H",
                "authorization: Bearer \(bearer ?? self.accessToken)", "--data-binary", body,
                "\(self.sandbox.url)/v1/projects/\(project ?? self.sandbox.projectID)/messages:send",
            ] + extra)
    }

    /// Sends a push with valid headers; an empty value removes a header.
    func apns(
        _ device: String, payload: String = #"{"aps":{"alert":"hi"}}"#, headers changes: [String: String] = [:],
        path: String? = nil, _ extra: String...
    ) async throws -> CurlReply {
        var headers = ["authorization": "bearer \(try self.providerToken())", "apns-topic": "org.example.app"]
        headers.merge(changes) { $1 }
        return try await CurlReply.get(
            ["--http2", "--cacert", self.sandbox.caPath, "--data-binary", payload]
                + headers.flatMap { ["-H", "\($0.key):" + ($0.value.isEmpty ? "" : " \($0.value)")] }
                + ["\(self.sandbox.url)\(path ?? "/3/device/\(device)")"] + extra)
    }

    /// The frames that answer pushes over one connection; without a bearer no provider token is
    /// sent.
    func frames(_ pushes: [(device: String, bearer: String?)]) async throws -> [FrameClient.Event] {
        try await FrameClient.events(
            pushes.map { FrameClient.Push(device: $0.device, bearer: $0.bearer) }, to: self.sandbox.url,
            authority: self.sandbox.caPath)
    }

    /// Makes a control call without TLS.
    func control(_ path: String, method: String = "GET") async throws -> CurlReply {
        try await CurlReply.get(["-X", method, self.sandbox.controlURL + path])
    }

    private static func unsigned(_ header: [String: Any], _ claims: [String: Any]) throws -> String {
        try [header, claims].map { Base64.url.encode(try JSONSerialization.data(withJSONObject: $0)) }
            .joined(separator: ".")
    }
}
