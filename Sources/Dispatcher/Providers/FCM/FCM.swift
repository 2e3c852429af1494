// Carillon · FCM.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Firebase Cloud Messaging, HTTP v1.
package enum FCM: ProviderKind {
    package static let provider = Provider.fcm
    package static let rules = FCMAnswer.rules
    package static let files = ["credentials"]
    package static let settings = ["credentials", "endpoint", "channel", "click_action"]

    package static func channel(
        app: String,
        settings: [String: String],
        shape: PushShape,
        context: ChannelContext
    ) async throws(CredentialFault) -> any ProviderChannel {
        let path = try settings.required("credentials")
        let account = try CredentialFault.of("credentials") {
            try FCMServiceAccount(json: try context.read(path))
        }
        let endpoint = settings["endpoint"] ?? "https://fcm.googleapis.com"
        let settings = FCMSettings(
            url: "\(endpoint)/v1/projects/\(account.project)/messages:send", shape: shape, channel: settings["channel"],
            clickAction: settings["click_action"])
        return try FCMChannel(app: app, endpoint: endpoint, account: account, settings: settings, context: context)
    }
}

/// FCM for one project.
struct FCMChannel: HTTPProviderChannel {
    /// The time limit for an access token.
    private static let tokenPatience: Duration = .seconds(10)

    let provider = Provider.fcm
    let app: String
    let transfer: TransferClient
    let now: @Sendable () -> Timestamp
    let timeout: Duration?
    private let endpoint: String
    private let serviceAccount: FCMServiceAccount
    private let settings: FCMSettings
    private let credentials: CredentialCache

    init(
        app: String,
        endpoint: String,
        account: FCMServiceAccount,
        settings: FCMSettings,
        context: ChannelContext
    ) throws(CredentialFault) {
        self.app = app
        let transfer = try context.transfers.client(of: self.provider)
        self.transfer = transfer
        self.now = context.now
        self.timeout = context.timeout
        self.endpoint = endpoint
        self.serviceAccount = account
        self.settings = settings
        let patience = min(context.timeout ?? Self.tokenPatience, Self.tokenPatience)
        self.credentials = CredentialCache(now: context.now, logger: context.logger(of: .fcm, app: app)) { moment in
            let request = try account.tokenRequest(now: moment)
            // High priority, because critical messages wait for the token too.
            switch await transfer.perform(TransferRequest(request, timeout: patience, priority: .high)) {
            case .answered(let response) where FCMServiceAccount.isOutage(response.status):
                throw CredentialOutage("\(response.status)")
            case .answered(let response) where !response.isComplete:
                // Neither a token nor a complete refusal.
                throw CredentialOutage("answer_cut")
            case .answered(let response):
                let (token, lifetime) = try FCMServiceAccount.token(status: response.status, body: response.body)
                // Renews five minutes before the end, or after half of a short lifetime.
                return CredentialCache.Credential(
                    text: token,
                    renewAt: moment + max(lifetime - .seconds(300), lifetime / 2),
                    expiresAt: moment + lifetime
                )
            case .unanswered(let failure) where failure.reason == .invalidRequest:
                throw CredentialFault("the token endpoint's URL is invalid")
            case .unanswered(let failure):
                throw CredentialOutage(failure.reason.rawValue)
            }
        }
    }

    /// Firebase counts messages by project, across apps.
    var account: String { self.serviceAccount.project }

    func request(_ message: PushMessage, device: Device) async throws -> ProviderRequest {
        FCMRequest.make(
            message, device: device, settings: self.settings, accessToken: try await self.credentials.get())
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
        guard let credential = request.credential else { return false }
        return await self.credentials.invalidate(credential)
    }

    var addresses: [String] { [self.endpoint] }

    /// Also fetches an access token, which checks the key and the clock.
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
            ProviderProbe("access token from \(self.serviceAccount.tokenURL)", fault: fault),
        ]
    }
}
