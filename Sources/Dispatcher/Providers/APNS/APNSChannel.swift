// Carillon · APNSChannel.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// APNs for one key and topic, production and sandbox.
struct APNSChannel: HTTPProviderChannel {
    /// Apple takes a token for an hour and wants it renewed no more often than every 20 minutes.
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

    /// - Parameter endpoint: in place of Apple's own, for both environments.
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
                    text: try await key.token(now: moment),
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

    /// A token is a part of the path, so it holds nothing that would lead elsewhere.
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
        guard let header = request.headers.first(where: { $0.name == "authorization" }) else { return false }
        return await self.credentials.invalidate(String(header.value.dropFirst("bearer ".count)))
    }
}
