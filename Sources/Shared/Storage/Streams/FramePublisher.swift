// Carillon · FramePublisher.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Tells the nodes that hold a user of a change.
package struct FramePublisher: Sendable {
    let live: Live
    private let presence: PresenceRegistry

    package init(_ live: Live, presence: PresenceRegistry) {
        self.live = live
        self.presence = presence
    }

    /// Publishes one frame to every node on which its user has a socket.
    package func publish(_ frame: NodeFrame) async throws(RedisError) {
        try await self.publish([frame])
    }

    /// Publishes frames, each to every node on which its user has a socket, in their order for each node.
    package func publish(_ frames: [NodeFrame]) async throws(RedisError) {
        guard !frames.isEmpty else { return }
        var messages: [(node: String, frames: NodeFrameBatch)] = []
        var filling: [String: NodeFrameBatch] = [:]
        for (frame, presence) in zip(frames, try await self.presence.lookUp(frames.map(\.user))) {
            guard case .online(let connections) = presence else { continue }
            for node in Set(connections.map(\.node)) {
                filling[node, default: NodeFrameBatch()].append(frame)
                guard let full = filling[node], full.isFull else { continue }
                messages.append((node, full))
                filling[node] = nil
            }
        }
        messages += filling.map { ($0.key, $0.value) }
        guard !messages.isEmpty else { return }
        var batch = RedisBatch()
        for message in messages {
            batch.append("PUBLISH", .text(self.live.keys.nodeChannel(message.node)), .bytes(message.frames.bytes))
        }
        for reply in try await self.live.connection.send(batch) { _ = try reply.checked() }
    }
}
