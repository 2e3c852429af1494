// Carillon · FramePublisher.swift
// SPDX-License-Identifier: Apache-2.0

import Model
package import Redis

/// Tells the nodes that hold a user of a change.
package struct FramePublisher: Sendable {
    private let connection: RedisConnection
    private let keys: Keyspace
    private let presence: PresenceRegistry

    package init(connection: RedisConnection, keys: Keyspace, presence: PresenceRegistry) {
        self.connection = connection
        self.keys = keys
        self.presence = presence
    }

    /// Publishes one frame to every node on which its user has a socket.
    package func publish(_ frame: NodeFrame) async throws(RedisError) {
        try await self.publish([frame])
    }

    /// Publishes frames of different users, each to every node on which its user has a socket.
    package func publish(_ frames: [NodeFrame]) async throws(RedisError) {
        var batch = RedisBatch()
        for (frame, presence) in zip(frames, try await self.presence.lookUp(frames.map(\.user))) {
            guard case .online(let connections) = presence else { continue }
            var message = NodeFrameBatch()
            message.append(frame)
            for node in Set(connections.map(\.node)) {
                batch.append("PUBLISH", .text(self.keys.nodeChannel(node)), .bytes(message.bytes))
            }
        }
        for reply in try await self.connection.send(batch) { _ = try reply.checked() }
    }
}
