// Carillon · WebhookProvider.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A program of the app's own, which is told by HTTP and takes the notification wherever it likes.
package enum WebhookProvider: ProviderKind {
    /// A shorter secret is found by trying.
    private static let shortestSecret = 16

    package static let provider = Provider.webhook
    package static let rules = WebhookAnswer.rules
    package static let files = ["secret_file"]
    package static let settings = ["url", "secret", "secret_file"]

    package static func channel(
        app: String,
        settings: [String: String],
        shape: PushShape,
        context: ChannelContext
    ) async throws(CredentialFault) -> any ProviderChannel {
        let url = try settings.required("url")
        let (secret, place) = try self.secret(settings, context)
        // Without TLS whoever listens would read what is sent.
        if let fault = Webhook.fault(inURL: url, allowsPlain: false) { throw CredentialFault(fault, setting: "url") }
        guard secret.utf8.count >= Self.shortestSecret else {
            throw CredentialFault("must have \(Self.shortestSecret) bytes at least", setting: place)
        }
        return try WebhookChannel(app: app, url: url, secret: secret, shape: shape, context: context)
    }

    /// The secret, and the setting that it is of.
    private static func secret(
        _ settings: [String: String],
        _ context: ChannelContext
    ) throws(CredentialFault) -> (text: String, setting: String) {
        guard let path = settings["secret_file"] else { return (try settings.required("secret"), "secret") }
        guard settings["secret"] == nil else {
            throw CredentialFault("is there beside the secret itself; leave one of them out", setting: "secret_file")
        }
        do throws(CredentialFault) {
            return (try context.secret(path), "secret_file")
        } catch {
            throw error.of("secret_file")
        }
    }
}
