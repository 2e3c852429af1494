// Carillon · SocketIOConfiguration.swift
// SPDX-License-Identifier: Apache-2.0

/// The times and bounds of all connections of one server; a reference, so that a connection only points at it.
package final class SocketIOConfiguration: Sendable {
    /// How long a connection may be without any joined namespace.
    package let connectTimeout: Milliseconds
    /// The most attachments of one packet; more closes the connection.
    package let maximumAttachments: Int
    /// The most bytes in the attachments of one packet together; more closes the connection.
    package let maximumAttachmentBytes: Int
    /// The most namespaces joined or asked for; a further CONNECT is refused.
    package let maximumNamespaces: Int
    /// The longest name of a namespace in bytes; a longer one closes the connection.
    package let maximumNamespaceLength: Int
    /// The most acknowledgements that a namespace waits for; a further event that wants one is not sent.
    package let maximumAwaitedAcknowledgements: Int
    /// Whether a CONNECT's `pid` and `offset` are read as a request to recover.
    package let offersRecovery: Bool

    package init(
        connectTimeout: Milliseconds = 10_000,
        maximumAttachments: Int = 10,
        maximumAttachmentBytes: Int = 1_000_000,
        maximumNamespaces: Int = 16,
        maximumNamespaceLength: Int = 256,
        maximumAwaitedAcknowledgements: Int = 64,
        offersRecovery: Bool = false
    ) {
        self.connectTimeout = connectTimeout
        self.maximumAttachments = max(maximumAttachments, 0)
        self.maximumAttachmentBytes = maximumAttachmentBytes
        self.maximumNamespaces = maximumNamespaces
        self.maximumNamespaceLength = maximumNamespaceLength
        self.maximumAwaitedAcknowledgements = maximumAwaitedAcknowledgements
        self.offersRecovery = offersRecovery
    }
}
