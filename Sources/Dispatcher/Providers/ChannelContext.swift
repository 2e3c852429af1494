// Carillon · ChannelContext.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Synchronization

/// The dependencies of provider channels.
package struct ChannelContext: Sendable {
    let transfers: TransferPool
    let now: @Sendable () -> Timestamp
    package let logger: Logger
    /// Reads a credential file.
    package let read: @Sendable (String) throws(CredentialFault) -> [UInt8]
    /// A PEM file of certificate authorities for channels with their own connections; nil means the
    /// system's.
    let caFile: String?
    /// The time limit for an answer; nil means each provider's default.
    let timeout: Duration?
    /// Credentials shared by channels with the same key, including later channels.
    let credentials = SharedCredentials()
    /// Returns the one-click unsubscribe URL for e-mail about a notification; nil if there is none.
    let unsubscribe: @Sendable (Notification) -> String?

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

    /// Reads a one-line secret from a file, without its line break.
    ///
    /// - Throws: ``CredentialFault``, which never holds any of the secret.
    func secret(_ path: String) throws(CredentialFault) -> String {
        guard let text = String(validating: try self.read(path), as: UTF8.self) else {
            throw CredentialFault("the file is not UTF-8 text")
        }
        // A carriage return and line feed are one character.
        let lines = text.split(omittingEmptySubsequences: false) { $0.isNewline }
        let secret = lines.first ?? ""
        guard !secret.isEmpty, !secret.contains("\0"), lines.dropFirst().allSatisfy(\.isEmpty) else {
            throw CredentialFault("the file must hold exactly one line, the secret")
        }
        return String(secret)
    }

    /// Returns a logger with the provider, and the app if given, as metadata.
    func logger(of provider: Provider, app: String? = nil) -> Logger {
        var logger = self.logger
        logger[metadataKey: "provider"] = "\(provider.rawValue)"
        logger[metadataKey: "app"] = app.map { "\($0)" }
        return logger
    }
}

/// The HTTP clients of the channels, one for each group that must not share connections, a thread
/// or limits.
///
/// A provider that does not answer blocks only its own client, and Apple binds a connection to the
/// tokens of one key. A client lives as long as a channel retains it.
package final class TransferPool: Sendable {
    private struct Member {
        weak var client: TransferClient?
    }

    private let configuration: TransferConfiguration
    private let allowsPrivateAddresses: Bool
    private let logger: Logger
    private let members = Mutex<[String: Member]>([:])

    /// - Parameters:
    ///   - configuration: the settings of all clients.
    ///   - allowsPrivateAddresses: allows private addresses even for untrusted URLs; for tests on
    ///     one machine.
    package init(configuration: TransferConfiguration, allowsPrivateAddresses: Bool, logger: Logger) {
        self.configuration = configuration
        self.allowsPrivateAddresses = allowsPrivateAddresses
        self.logger = logger
    }

    /// Returns the client of a provider, and of one key if connections belong to keys.
    ///
    /// - Parameter strangersChooseURLs: as in ``TransferConfiguration``.
    /// - Throws: ``CredentialFault`` if libcurl or a thread is unavailable.
    func client(
        of provider: Provider,
        key: String = "",
        strangersChooseURLs: Bool = false
    ) throws(CredentialFault) -> TransferClient {
        var configuration = self.configuration
        configuration.strangersChooseURLs = strangersChooseURLs
        configuration.refusesPrivateAddresses = strangersChooseURLs && !self.allowsPrivateAddresses
        let name = "\(provider.rawValue) \(strangersChooseURLs) \(key)"
        do throws(TransferError) {
            return try self.members.withLock { (members) throws(TransferError) in
                if let known = members[name]?.client { return known }
                members = members.filter { $0.value.client != nil }
                let client = try TransferClient(configuration: configuration, logger: self.logger)
                members[name] = Member(client: client)
                return client
            }
        } catch {
            throw CredentialFault("cannot start the HTTP client: \(error)")
        }
    }

    /// Ends all transfers and returns when all threads have ended.
    package func shutdown() async {
        for client in self.members.withLock({ $0.values.compactMap(\.client) }) { await client.shutdown() }
    }
}
