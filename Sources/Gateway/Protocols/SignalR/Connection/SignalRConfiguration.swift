// Carillon · SignalRConfiguration.swift
// SPDX-License-Identifier: Apache-2.0

/// The limits of connections, shared by all of them; times are milliseconds.
package final class SignalRConfiguration: Sendable {
    /// The reference server's limits.
    package static let standard = SignalRConfiguration()

    /// The longest record that a client may send; a longer one closes the connection.
    package let maximumMessageBytes: Int
    /// How long the server is silent before it pings.
    package let keepAliveInterval: Int64
    /// How long a client may be silent.
    package let clientTimeout: Int64
    /// How long a client may take for its handshake.
    package let handshakeTimeout: Int64
    /// How many invocations may wait for the running one; one more closes the connection.
    package let maximumWaitingInvocations: Int
    /// How many bytes they may have had on the wire.
    package let maximumWaitingBytes: Int
    /// How many streams, in either direction, may run at once; one more is answered with an error.
    package let maximumStreams: Int
    /// How many of the server's own invocations may wait for their results.
    package let maximumClientResults: Int
    /// How many unacknowledged bytes stateful reconnect keeps before it takes no more.
    package let resendBufferBytes: Int
    /// How long what arrived waits for its acknowledgement, so that one covers many.
    package let acknowledgementDelay: Int64
    /// How long a connection with stateful reconnect waits for its client.
    package let detachedLimit: Int64

    package init(
        maximumMessageBytes: Int = 32 * 1024,
        keepAliveInterval: Int64 = 15_000,
        clientTimeout: Int64 = 30_000,
        handshakeTimeout: Int64 = 15_000,
        maximumWaitingInvocations: Int = 100,
        maximumWaitingBytes: Int = 256 * 1024,
        maximumStreams: Int = 100,
        maximumClientResults: Int = 100,
        resendBufferBytes: Int = 100_000,
        acknowledgementDelay: Int64 = 1000,
        detachedLimit: Int64 = 15_000
    ) {
        self.maximumMessageBytes = maximumMessageBytes
        self.keepAliveInterval = keepAliveInterval
        self.clientTimeout = clientTimeout
        self.handshakeTimeout = handshakeTimeout
        self.maximumWaitingInvocations = maximumWaitingInvocations
        self.maximumWaitingBytes = maximumWaitingBytes
        self.maximumStreams = maximumStreams
        self.maximumClientResults = maximumClientResults
        self.resendBufferBytes = resendBufferBytes
        self.acknowledgementDelay = acknowledgementDelay
        self.detachedLimit = detachedLimit
    }
}
