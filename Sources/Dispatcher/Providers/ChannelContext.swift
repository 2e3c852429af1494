// Carillon · ChannelContext.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging

/// What ways to providers are made with.
package struct ChannelContext: Sendable {
    package let transfers: TransferPool
    package let now: @Sendable () -> Timestamp
    package let logger: Logger
    /// Reads a credential's file.
    package let read: @Sendable (String) throws(CredentialFault) -> [UInt8]
    /// A PEM file of authorities for ways that make connections of their own; nil for the system's.
    package let caFile: String?
    /// How long an answer is waited for; nil for what each provider needs.
    package let timeout: Duration?
    /// What channels of one key share, those that come after them too.
    package let credentials = SharedCredentials()
    /// The URL at which one click stops e-mail such as a notification's; nil if there is none.
    package let unsubscribe: @Sendable (Notification) -> String?

    package init(
        transfers: TransferPool,
        now: @escaping @Sendable () -> Timestamp,
        logger: Logger,
        read: @escaping @Sendable (String) throws(CredentialFault) -> [UInt8],
        caFile: String? = nil,
        timeout: Duration? = nil,
        unsubscribe: @escaping @Sendable (Notification) -> String? = { _ in nil }
    ) {
        self.transfers = transfers
        self.now = now
        self.logger = logger
        self.read = read
        self.caFile = caFile
        self.timeout = timeout
        self.unsubscribe = unsubscribe
    }

    /// The secret that a file holds, on one line, whose end is no part of it.
    ///
    /// - Throws: ``CredentialFault``, without any of it.
    func secret(_ path: String) throws(CredentialFault) -> String {
        guard let text = String(validating: try self.read(path), as: UTF8.self) else {
            throw CredentialFault("the file is no UTF-8 text")
        }
        // A carriage return and what follows it are one character.
        let lines = text.split(omittingEmptySubsequences: false) { $0.isNewline }
        let secret = lines.first ?? ""
        guard !secret.isEmpty, !secret.contains("\0"), lines.dropFirst().allSatisfy(\.isEmpty) else {
            throw CredentialFault("the file must have one line, the secret")
        }
        return String(secret)
    }

    /// One whose lines name the provider, and the app if it is of one alone.
    func logger(of provider: Provider, app: String? = nil) -> Logger {
        var logger = self.logger
        logger[metadataKey: "provider"] = "\(provider.rawValue)"
        logger[metadataKey: "app"] = app.map { "\($0)" }
        return logger
    }
}
