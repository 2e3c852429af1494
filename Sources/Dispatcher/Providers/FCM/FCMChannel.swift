// Carillon · FCMChannel.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// FCM for one project.
struct FCMChannel: HTTPProviderChannel {
    /// How long an access token is waited for.
    private static let tokenPatience: Duration = .seconds(10)

    let provider = Provider.fcm
    let app: String
    let transfer: TransferClient
    let now: @Sendable () -> Timestamp
    let timeout: Duration?
    private let endpoint: String
    private let serviceAccount: FCMServiceAccount
    private let shape: PushShape
    private let androidChannel: String?
    private let clickAction: String?
    private let credentials: CredentialCache

    init(
        app: String,
        endpoint: String,
        account: FCMServiceAccount,
        shape: PushShape,
        androidChannel: String?,
        clickAction: String?,
        context: ChannelContext
    ) throws(CredentialFault) {
        self.app = app
        let transfer = try context.transfers.client(of: self.provider)
        self.transfer = transfer
        self.now = context.now
        self.timeout = context.timeout
        self.endpoint = endpoint
        self.serviceAccount = account
        self.shape = shape
        self.androidChannel = androidChannel
        self.clickAction = clickAction
        let patience = min(context.timeout ?? Self.tokenPatience, Self.tokenPatience)
        self.credentials = CredentialCache(now: context.now, logger: context.logger(of: .fcm, app: app)) { moment in
            let request = try await account.tokenRequest(now: moment)
            // The critical lane's messages wait for it too.
            switch await transfer.perform(TransferRequest(request, timeout: patience, priority: .high)) {
            case .answered(let response) where FCMServiceAccount.isOutage(response.status):
                throw CredentialOutage("\(response.status)")
            case .answered(let response) where !response.isComplete:
                // Neither a token nor a refusal that can be read to its end.
                throw CredentialOutage("answer_cut")
            case .answered(let response):
                let (token, lifetime) = try FCMServiceAccount.token(status: response.status, body: response.body)
                // Five minutes ahead of its end.
                return CredentialCache.Credential(
                    text: token,
                    renewAt: moment + max(lifetime - .seconds(300), lifetime / 2),
                    expiresAt: moment + lifetime
                )
            case .unanswered(let failure) where failure.reason == .invalidRequest:
                throw CredentialFault("the token endpoint's URL cannot be called")
            case .unanswered(let failure):
                throw CredentialOutage(failure.reason.rawValue)
            }
        }
    }

    /// Firebase counts a project's messages, whichever app they are for.
    var account: String { self.serviceAccount.project }

    func request(_ message: PushMessage, device: Device) async throws -> ProviderRequest {
        FCMRequest.make(
            message,
            device: device,
            endpoint: self.endpoint,
            project: self.serviceAccount.project,
            accessToken: try await self.credentials.get(),
            shape: self.shape,
            channel: self.androidChannel,
            clickAction: self.clickAction
        )
    }

    func read(_ response: TransferResponse, now: Timestamp) -> ProviderAnswer? {
        FCMAnswer.read(
            status: response.status,
            body: response.body,
            isPage: response.isPage,
            isComplete: response.isComplete,
            retryAfter: response.retryAfter(now: now)
        )
    }

    func renewCredential(of request: ProviderRequest) async -> Bool {
        guard let header = request.headers.first(where: { $0.name == "authorization" }) else { return false }
        return await self.credentials.invalidate(String(header.value.dropFirst("Bearer ".count)))
    }

    var addresses: [String] { [self.endpoint] }

    /// An access token is bought too: it takes the right key, and clocks that agree.
    func probe() async -> [ProviderProbe] {
        var fault: String?
        do {
            _ = try await self.credentials.get()
        } catch let outage as CredentialOutage {
            fault = outage.cause
        } catch {
            fault = "\(error)"
        }
        return [
            await self.probe(self.endpoint),
            ProviderProbe("an access token of \(self.serviceAccount.tokenURL)", fault: fault),
        ]
    }
}
