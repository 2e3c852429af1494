// Carillon · ChannelContext.swift
// SPDX-License-Identifier: Apache-2.0

package import Logging
package import Model
package import Transfer

/// What ways to providers are made with.
package struct ChannelContext: Sendable {
    /// For the providers' own hosts.
    package let transfer: TransferClient
    /// For URLs that others chose: it does not connect to private addresses.
    package let guarded: TransferClient
    package let now: @Sendable () -> Timestamp
    package let logger: Logger
    /// Reads a credential's file.
    package let read: @Sendable (String) throws(CredentialFault) -> [UInt8]

    package init(
        transfer: TransferClient,
        guarded: TransferClient,
        now: @escaping @Sendable () -> Timestamp,
        logger: Logger,
        read: @escaping @Sendable (String) throws(CredentialFault) -> [UInt8]
    ) {
        self.transfer = transfer
        self.guarded = guarded
        self.now = now
        self.logger = logger
        self.read = read
    }
}
