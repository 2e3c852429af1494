// Carillon · EngineIOConfiguration.swift
// SPDX-License-Identifier: Apache-2.0

/// The times and bounds of all sessions of one server; a reference, so that a session only points at it.
package final class EngineIOConfiguration: Sendable {
    /// How long after the open, and after each pong, the server pings; told to the client.
    package let pingInterval: Milliseconds
    /// How long the client has for its pong; told to the client.
    package let pingTimeout: Milliseconds
    /// How long a WebSocket that wants to take over has until its upgrade packet.
    package let upgradeTimeout: Milliseconds
    /// When a request that waits during an upgrade is released: at most 100 ms, so that the client can go on; 0 is at once.
    package let upgradeRelease: Milliseconds
    /// How long a session that the server closed waits for a request that fetches the news of it.
    package let closeLinger: Milliseconds
    /// The largest body and the largest WebSocket message that the client may send, in bytes; told to the client.
    package let maximumPayload: Int
    /// The most packets in a body from the client; clients batch all they have up to the largest body.
    package let maximumPacketsReceived: Int
    /// The most packets in an answer to a poll; some clients refuse more than 16.
    package let maximumPacketsSent: Int
    /// Above this many bytes an answer to a poll takes no further packet; a larger packet goes alone.
    package let maximumBytesSent: Int
    /// The most bytes that wait for a poll, each packet with ``packetOverhead``; one more closes the session.
    package let maximumWaiting: Int
    /// Whether polling sessions may change to a WebSocket.
    package let allowsUpgrade: Bool

    /// What a waiting packet counts beside its content, so that many small ones are bounded too.
    package static let packetOverhead = 64

    package init(
        pingInterval: Milliseconds = 25_000,
        pingTimeout: Milliseconds = 20_000,
        upgradeTimeout: Milliseconds = 10_000,
        upgradeRelease: Milliseconds = 100,
        closeLinger: Milliseconds = 30_000,
        maximumPayload: Int = 1_000_000,
        maximumPacketsReceived: Int = 4_096,
        maximumPacketsSent: Int = 16,
        maximumBytesSent: Int = 1_000_000,
        maximumWaiting: Int = 1_000_000,
        allowsUpgrade: Bool = true
    ) {
        self.pingInterval = pingInterval
        self.pingTimeout = pingTimeout
        self.upgradeTimeout = upgradeTimeout
        self.upgradeRelease = min(max(upgradeRelease, 0), 100)
        self.closeLinger = closeLinger
        self.maximumPayload = maximumPayload
        self.maximumPacketsReceived = maximumPacketsReceived
        self.maximumPacketsSent = max(maximumPacketsSent, 2)
        self.maximumBytesSent = maximumBytesSent
        self.maximumWaiting = maximumWaiting
        self.allowsUpgrade = allowsUpgrade
    }
}
