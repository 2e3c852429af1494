// Carillon · APNSChannel.swift
// SPDX-License-Identifier: Apache-2.0

package import Model
package import Providers
package import Transfer

/// APNs for one key and topic, production and sandbox.
package struct APNSChannel: ProviderChannel {
    /// Apple takes a token for an hour and wants it renewed no more often than every 20 minutes.
    private static let renewal: Duration = .seconds(50 * 60)
    private static let lifetime: Duration = .seconds(60 * 60)
    private static let leastAge: Duration = .seconds(20 * 60)

    package let provider = Provider.apns
    private let endpoints: [ProviderEnvironment: String]
    private let topic: String
    private let credentials: CredentialCache

    /// - Parameter endpoint: in place of Apple's own, for both environments.
    package init(endpoint: String?, topic: String, key: APNSKey, now: @escaping @Sendable () -> Timestamp) {
        self.endpoints = [
            .production: endpoint ?? "https://api.push.apple.com",
            .sandbox: endpoint ?? "https://api.sandbox.push.apple.com",
        ]
        self.topic = topic
        self.credentials = CredentialCache(leastAge: Self.leastAge, now: now) { moment in
            CredentialCache.Credential(
                text: try await key.token(now: moment),
                renewAt: moment + Self.renewal,
                expiresAt: moment + Self.lifetime
            )
        }
    }

    package func request(_ message: PushMessage, device: Device) async throws -> ProviderRequest {
        APNSRequest.make(
            message,
            device: device,
            endpoint: self.endpoints[device.environment] ?? "",
            topic: self.topic,
            providerToken: try await self.credentials.get()
        )
    }

    package func read(_ response: TransferResponse) -> ProviderAnswer {
        APNSAnswer.read(status: response.status, body: response.body, identifier: response.header("apns-id"))
    }

    package func renewCredential(of request: ProviderRequest) async {
        guard let header = request.headers.first(where: { $0.name == "authorization" }) else { return }
        await self.credentials.invalidate(String(header.value.dropFirst("bearer ".count)))
    }
}
