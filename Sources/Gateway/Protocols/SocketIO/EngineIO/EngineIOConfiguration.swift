// Carillon · EngineIOConfiguration.swift
// SPDX-License-Identifier: Apache-2.0

/// The timeouts and limits of a server's sessions; a reference type, so that sessions share it.
package final class EngineIOConfiguration: Sendable {
    /// The time from the handshake, and from each pong, to the server's ping; sent to the client.
    let pingInterval: Milliseconds
    /// The time limit for the client's pong; sent to the client.
    let pingTimeout: Milliseconds
    /// The largest body or WebSocket message from the client, in bytes; sent to the client.
    package let maximumPayload: Int
    /// The most packets in a body from the client; clients put all they have into one body.
    let maximumPacketsReceived: Int
    /// The most bytes in an answer to a poll; a larger packet is sent alone.
    let maximumBytesSent: Int
    /// The bytes that may wait for a poll, including ``packetOverhead`` a packet; more close the
    /// session.
    package let maximumWaiting: Int

    /// The bytes that a waiting packet costs besides its content; limits the number of small
    /// packets.
    static let packetOverhead = 64

    package init(
        pingInterval: Milliseconds = 25_000,
        pingTimeout: Milliseconds = 20_000,
        maximumPayload: Int = 1_000_000,
        maximumPacketsReceived: Int = 4_096,
        maximumBytesSent: Int = 1_000_000,
        maximumWaiting: Int = 1_000_000
    ) {
        self.pingInterval = pingInterval
        self.pingTimeout = pingTimeout
        self.maximumPayload = maximumPayload
        self.maximumPacketsReceived = maximumPacketsReceived
        self.maximumBytesSent = maximumBytesSent
        self.maximumWaiting = maximumWaiting
    }
}
