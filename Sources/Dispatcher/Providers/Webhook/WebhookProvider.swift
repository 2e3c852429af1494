// Carillon · WebhookProvider.swift
// SPDX-License-Identifier: Apache-2.0

package import Model

/// A program of the app's own, which is told by HTTP and takes the notification wherever it likes.
package enum WebhookProvider: ProviderKind {
    /// A shorter secret is found by trying.
    private static let shortestSecret = 16

    package static let provider = Provider.webhook
    package static let rules = WebhookAnswer.rules
    package static let settings = ["url", "secret"]

    package static func channel(
        app: String,
        settings: [String: String],
        shape: PushShape,
        context: ChannelContext
    ) async throws(CredentialFault) -> any ProviderChannel {
        let url = try settings.required("url")
        let secret = try settings.required("secret")
        // Without TLS whoever listens would read what is sent.
        if let fault = Webhook.fault(inURL: url, allowsPlain: false) { throw CredentialFault(fault, setting: "url") }
        guard secret.utf8.count >= Self.shortestSecret else {
            throw CredentialFault("must have \(Self.shortestSecret) bytes at least", setting: "secret")
        }
        return try WebhookChannel(app: app, url: url, secret: secret, shape: shape, context: context)
    }
}
