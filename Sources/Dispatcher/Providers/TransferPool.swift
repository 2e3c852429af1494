// Carillon · TransferPool.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Synchronization

/// The HTTP clients of the ways to providers: one each for what must not share a connection, a thread or a bound.
///
/// A provider whose answers do not come keeps its own client busy and no other's; and Apple takes the tokens of one key on a
/// connection only. A client lives as long as a channel holds it.
package final class TransferPool: Sendable {
    private struct Member {
        weak var client: TransferClient?
    }

    private let configuration: TransferConfiguration
    private let allowsPrivateAddresses: Bool
    private let logger: Logger
    private let members = Mutex<[String: Member]>([:])

    /// - Parameters:
    ///   - configuration: what holds for all clients.
    ///   - allowsPrivateAddresses: connects wherever a stranger's URL points; for tests on one machine.
    package init(configuration: TransferConfiguration, allowsPrivateAddresses: Bool, logger: Logger) {
        self.configuration = configuration
        self.allowsPrivateAddresses = allowsPrivateAddresses
        self.logger = logger
    }

    /// The client of a provider, and of one of its keys where connections belong to keys.
    ///
    /// - Parameter areURLsGiven: whether strangers chose the URLs, so that private addresses are out of reach.
    /// - Throws: ``CredentialFault`` if the system has no thread for it or libcurl refuses.
    func client(
        of provider: Provider,
        key: String = "",
        areURLsGiven: Bool = false
    ) throws(CredentialFault) -> TransferClient {
        var configuration = self.configuration
        configuration.refusesPrivateAddresses = areURLsGiven && !self.allowsPrivateAddresses
        let name = "\(provider.rawValue) \(areURLsGiven) \(key)"
        do throws(TransferError) {
            return try self.members.withLock { (members) throws(TransferError) in
                if let known = members[name]?.client { return known }
                members = members.filter { $0.value.client != nil }
                let client = try TransferClient(configuration: configuration, logger: self.logger)
                members[name] = Member(client: client)
                return client
            }
        } catch {
            throw CredentialFault("the HTTP client cannot start: \(error)")
        }
    }

    /// Ends what is under way and returns when all threads are done.
    package func shutdown() async {
        for client in self.members.withLock({ $0.values.compactMap(\.client) }) { await client.shutdown() }
    }
}
