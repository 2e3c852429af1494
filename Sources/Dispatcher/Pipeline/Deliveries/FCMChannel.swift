// Carillon · FCMChannel.swift
// SPDX-License-Identifier: Apache-2.0

package import Model
package import Providers
package import Transfer

/// FCM for one project.
package struct FCMChannel: ProviderChannel {
    package let provider = Provider.fcm
    private let endpoint: String
    private let account: FCMServiceAccount
    private let credentials: CredentialCache
    private let now: @Sendable () -> Timestamp

    package init(
        endpoint: String,
        account: FCMServiceAccount,
        transfer: TransferClient,
        now: @escaping @Sendable () -> Timestamp
    ) {
        self.endpoint = endpoint
        self.account = account
        self.now = now
        self.credentials = CredentialCache(now: now) { moment in
            let request = try await account.tokenRequest(now: moment)
            switch await transfer.perform(TransferRequest(request, timeout: .seconds(10))) {
            case .answered(let response):
                let (token, lifetime) = try FCMServiceAccount.token(status: response.status, body: response.body)
                // Five minutes ahead of its end.
                return CredentialCache.Credential(
                    text: token,
                    renewAt: moment + max(lifetime - .seconds(300), lifetime / 2),
                    expiresAt: moment + lifetime
                )
            case .unanswered(let failure):
                throw CredentialFault("the token endpoint gave no answer: \(failure.reason.rawValue)")
            }
        }
    }

    package func request(_ message: PushMessage, device: Device) async throws -> ProviderRequest {
        FCMRequest.make(
            message,
            device: device,
            endpoint: self.endpoint,
            project: self.account.project,
            accessToken: try await self.credentials.get()
        )
    }

    package func read(_ response: TransferResponse) -> ProviderAnswer {
        FCMAnswer.read(status: response.status, body: response.body, retryAfter: response.retryAfter)
    }

    package func renewCredential(of request: ProviderRequest) async {
        guard let header = request.headers.first(where: { $0.name == "authorization" }) else { return }
        await self.credentials.invalidate(String(header.value.dropFirst("Bearer ".count)))
    }
}

extension TransferRequest {
    init(_ request: ProviderRequest, timeout: Duration) {
        self.init(
            .post,
            url: request.url,
            headers: request.headers,
            body: request.body,
            timeout: timeout
        )
    }
}

extension TransferResponse {
    /// The Retry-After header in its form of whole seconds (RFC 9110 section 10.2.3).
    var retryAfter: Duration? {
        self.header("retry-after").flatMap { Int64($0) }.map { .seconds(min(max($0, 0), 86_400)) }
    }
}
