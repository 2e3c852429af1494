// Carillon · APNS.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Crypto

/// Apple's push notification service with provider tokens.
package enum APNS: ProviderKind {
    package static let provider = Provider.apns
    package static let rules = APNSAnswer.rules
    package static let files = ["key"]
    package static let settings = ["key", "key_id", "team_id", "topic", "endpoint"]

    package static func channel(
        app: String,
        settings: [String: String],
        shape: PushShape,
        context: ChannelContext
    ) async throws(CredentialFault) -> any ProviderChannel {
        let path = try settings.required("key")
        let keyID = try settings.required("key_id")
        let teamID = try settings.required("team_id")
        let topic = try settings.required("topic")
        let key = try CredentialFault.of("key") {
            let pem = String(decoding: try context.read(path), as: UTF8.self)
            return try APNSKey(pem: pem, keyID: keyID, teamID: teamID)
        }
        return try APNSChannel(
            app: app, endpoint: settings["endpoint"], topic: topic, key: key, shape: shape, context: context)
    }
}

/// APNs for one key and topic, production and sandbox.
struct APNSChannel: HTTPProviderChannel {
    /// Apple accepts a token for an hour and allows a new one every 20 minutes at most.
    private static let renewal: Duration = .seconds(50 * 60)
    private static let lifetime: Duration = .seconds(60 * 60)
    private static let leastAge: Duration = .seconds(20 * 60)

    let provider = Provider.apns
    let app: String
    let transfer: TransferClient
    let now: @Sendable () -> Timestamp
    let timeout: Duration?
    private let endpoints: [ProviderEnvironment: String]
    private let topic: String
    private let shape: PushShape
    private let credentials: CredentialCache

    /// - Parameter endpoint: replaces Apple's endpoints of both environments.
    init(
        app: String,
        endpoint: String?,
        topic: String,
        key: APNSKey,
        shape: PushShape,
        context: ChannelContext
    ) throws(CredentialFault) {
        self.app = app
        self.transfer = try context.transfers.client(of: self.provider, key: key.identity)
        self.now = context.now
        self.timeout = context.timeout
        self.endpoints = [
            .production: endpoint ?? "https://api.push.apple.com",
            .sandbox: endpoint ?? "https://api.sandbox.push.apple.com",
        ]
        self.topic = topic
        self.shape = shape
        self.credentials = context.credentials.cache(of: key.identity) {
            CredentialCache(leastAge: Self.leastAge, now: context.now, logger: context.logger(of: .apns)) { moment in
                CredentialCache.Credential(
                    text: try key.token(now: moment),
                    renewAt: moment + Self.renewal,
                    expiresAt: moment + Self.lifetime
                )
            }
        }
    }

    let needsHTTP2 = true

    var addresses: [String] { Set(self.endpoints.values).sorted() }

    func request(_ message: PushMessage, device: Device) async throws -> ProviderRequest {
        guard !device.token.isEmpty, device.token.utf8.allSatisfy({ Self.isTokenByte($0) }) else {
            throw MessageRefusal("token_malformed")
        }
        return try APNSRequest.make(
            message,
            device: device,
            endpoint: self.endpoints[device.environment] ?? "",
            topic: self.topic,
            providerToken: try await self.credentials.get(),
            shape: self.shape
        )
    }

    /// The token becomes part of the path, so it must not hold separators.
    private static func isTokenByte(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte) || (0x61...0x7A).contains(byte)
            || byte == UInt8(ascii: "-") || byte == UInt8(ascii: "_")
    }

    func read(_ response: TransferResponse, now: Timestamp) -> ProviderAnswer? {
        guard response.version == .http2 else { return .retry(reason: "not_http2", after: nil) }
        return APNSAnswer.read(
            status: response.status,
            body: response.body,
            isPage: response.isPage,
            isComplete: response.isComplete,
            identifier: response.header("apns-id"),
            retryAfter: response.retryAfter(now: now)
        )
    }

    func renewCredential(of request: ProviderRequest) async -> Bool {
        guard let credential = request.credential else { return false }
        return await self.credentials.invalidate(credential)
    }

    /// Apple refuses the old token on a connection that has had the new one.
    func hasReplacedCredential(of request: ProviderRequest, refusedFor reason: String) async -> Bool {
        guard reason == "TooManyProviderTokenUpdates", let credential = request.credential else { return false }
        return await self.credentials.hasReplaced(credential)
    }
}

/// Apple's .p8 signing key with its team; creates provider tokens.
struct APNSKey: Sendable {
    /// Identifies the key by a hash.
    let identity: String
    private let keyID: String
    private let teamID: String
    private let key: P256.Signing.PrivateKey

    /// - Throws: ``CredentialFault`` if the PEM holds no P-256 key.
    init(pem: String, keyID: String, teamID: String) throws(CredentialFault) {
        guard let key = try? P256.Signing.PrivateKey(pemRepresentation: pem) else {
            throw CredentialFault("the APNs key is not a P-256 key in PEM")
        }
        self.key = key
        self.keyID = keyID
        self.teamID = teamID
        let hash = SHA256.hash(data: pem.utf8.filter { $0 > 0x20 })
        self.identity = "\(teamID) \(keyID) " + Base64.url.encode(hash.prefix(16))
    }

    /// Creates a provider token, which Apple accepts for an hour from `now`.
    func token(now: Timestamp) throws(CredentialFault) -> String {
        var claims = JSONWriter()
        claims.beginObject()
        claims.member("iss", self.teamID)
        claims.member("iat", now.seconds)
        claims.endObject()
        do {
            return try JSONWebToken.signed(.es256, keyID: self.keyID, claims: claims.bytes) { bytes in
                try self.key.signature(for: bytes).rawRepresentation
            }
        } catch {
            throw CredentialFault("the APNs key cannot sign")
        }
    }
}
