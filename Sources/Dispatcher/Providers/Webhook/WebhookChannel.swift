// Carillon · WebhookChannel.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The way to one app's program.
struct WebhookChannel: HTTPProviderChannel {
    let provider = Provider.webhook
    let app: String
    let transfer: TransferClient
    let now: @Sendable () -> Timestamp
    let timeout: Duration?
    let retractionsHaveBadge = true
    private let url: String
    private let secret: String
    private let shape: PushShape

    init(app: String, url: String, secret: String, shape: PushShape, context: ChannelContext) throws(CredentialFault) {
        self.app = app
        self.transfer = try context.transfers.client(of: self.provider)
        self.now = context.now
        self.timeout = context.timeout
        self.url = url
        self.secret = secret
        self.shape = shape
    }

    func request(_ message: PushMessage, device: Device) async throws -> ProviderRequest {
        // What is no text for people is none for the program either.
        guard !device.token.isEmpty, device.token.utf8.allSatisfy({ (0x20...0x7E).contains($0) }) else {
            throw MessageRefusal("token_malformed")
        }
        return WebhookRequest.make(
            message, device: device, url: self.url, secret: self.secret, shape: self.shape, at: self.now())
    }

    func read(_ response: TransferResponse, now: Timestamp) -> ProviderAnswer? {
        WebhookAnswer.read(status: response.status, body: response.body, retryAfter: response.retryAfter(now: now))
    }

    /// The signature is made for each request, and never old.
    func renewCredential(of request: ProviderRequest) async -> Bool { false }
}
