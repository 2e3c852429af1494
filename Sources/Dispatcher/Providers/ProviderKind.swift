// Carillon · ProviderKind.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A kind of provider: how an app's settings become a way to it.
///
/// All that a provider is lies in one folder; its kind is named in ``ProviderKinds/all``, and nowhere else.
package protocol ProviderKind {
    /// Its word, which no other kind has; it is part of Redis keys and of rows in the database, so it never changes.
    static var provider: Provider { get }
    /// The names of the settings it takes.
    static var settings: [String] { get }
    /// Those of them that are paths of files, which are read again when they change.
    static var files: [String] { get }
    /// What its answers mean.
    static var rules: [AnswerRule] { get }

    /// Makes the way to the provider for one app.
    ///
    /// - Parameter settings: only names of ``settings``, none empty.
    /// - Throws: ``CredentialFault`` that names the setting at fault.
    static func channel(
        app: String,
        settings: [String: String],
        shape: PushShape,
        context: ChannelContext
    ) async throws(CredentialFault) -> any ProviderChannel
}

extension ProviderKind {
    package static var files: [String] { [] }
}
