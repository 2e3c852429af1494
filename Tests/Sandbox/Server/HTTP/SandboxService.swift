// Carillon · SandboxService.swift
// SPDX-License-Identifier: Apache-2.0

/// Sends each request to the endpoint that answers it.
final class SandboxService: Sendable {
    private let tokens: TokenEndpoint
    private let fcm: FCMEndpoint
    private let apns: APNSEndpoint
    private let webPush: WebPushEndpoint
    private let webhook: WebhookEndpoint
    private let control: ControlEndpoint

    init(
        tokens: TokenEndpoint, fcm: FCMEndpoint, apns: APNSEndpoint, webPush: WebPushEndpoint,
        webhook: WebhookEndpoint, control: ControlEndpoint
    ) {
        self.tokens = tokens
        self.fcm = fcm
        self.apns = apns
        self.webPush = webPush
        self.webhook = webhook
        self.control = control
    }

    /// Decides about one request.
    ///
    /// Called on the connection's event loop; never waits.
    func answer(_ request: SandboxRequest, on connection: inout SandboxConnection) -> SandboxAnswer {
        if request.transport == .plain { return .respond(self.control.respond(to: request)) }
        if request.path.hasPrefix("/3/") { return self.apns.answer(request, on: &connection) }
        connection.isTrusted = true
        if request.path.hasPrefix("/v1/projects/") { return self.fcm.answer(request) }
        if request.path.hasPrefix(SandboxSubscription.path) { return self.webPush.answer(request) }
        if request.path == WebhookEndpoint.path { return self.webhook.answer(request) }
        if request.path == "/token" { return self.tokens.answer(request) }
        return .respond(self.control.respond(to: request))
    }
}
