// Carillon · ProviderKind.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A kind of provider: turns an app's settings into a channel.
///
/// Everything about a provider is in its folder; ``ProviderKinds/all`` names its kind, and
/// `Provider.all` its name.
package protocol ProviderKind {
    /// The unique name; part of Redis keys and database rows, so it never changes.
    static var provider: Provider { get }
    /// The names of its settings.
    static var settings: [String] { get }
    /// The settings that are file paths; the files are reread when they change.
    static var files: [String] { get }
    /// The meaning of its answers.
    static var rules: [AnswerRule] { get }

    /// Creates the channel of one app.
    ///
    /// - Parameter settings: values for names in ``settings``, none empty.
    /// - Throws: ``CredentialFault`` that names the setting.
    static func channel(
        app: String,
        settings: [String: String],
        shape: PushShape,
        context: ChannelContext
    ) async throws(CredentialFault) -> any ProviderChannel
}

/// The built-in kinds of providers: one for each of `Provider.all`.
package enum ProviderKinds {
    package static var all: [any ProviderKind.Type] {
        [
            FCM.self,
            APNS.self,
            WebPush.self,
            Email.self,
            WebhookProvider.self,
        ]
    }

    /// Returns the kind of a provider; nil if none is built in.
    package static func kind(of provider: Provider) -> (any ProviderKind.Type)? {
        self.all.first { $0.provider == provider }
    }
}
