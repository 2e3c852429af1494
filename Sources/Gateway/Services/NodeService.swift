// Carillon · NodeService.swift
// SPDX-License-Identifier: Apache-2.0

import JSON
package import Logging
package import NIOCore
package import Redis
import ServiceLifecycle
package import Sockets
package import Streams

/// Keeps a node known: its lease, its subscription, and the repair of what both missed.
package struct NodeService: Service {
    private let node: String
    private let configuration: RedisConfiguration
    private let connection: RedisConnection
    private let keys: Keyspace
    private let hub: SocketHub
    private let revocations: RevocationRegister
    private let eventLoop: any EventLoop
    private let logger: Logger

    package init(
        node: String,
        configuration: RedisConfiguration,
        connection: RedisConnection,
        keys: Keyspace,
        hub: SocketHub,
        revocations: RevocationRegister,
        eventLoop: any EventLoop,
        logger: Logger
    ) {
        self.node = node
        self.configuration = configuration
        self.connection = connection
        self.keys = keys
        self.hub = hub
        self.revocations = revocations
        self.eventLoop = eventLoop
        self.logger = logger
    }

    package func run() async throws {
        let lease = Lease(key: self.keys.nodeLease(self.node), value: "gateway", connection: self.connection)
        _ = try? await lease.renew()
        let hub = self.hub
        let revocations = self.revocations
        let revocationsChannel = self.keys.revocationsChannel
        let logger = self.logger
        let subscription = try RedisSubscription(
            self.configuration,
            channels: [self.keys.nodeChannel(self.node), self.keys.allNodesChannel, revocationsChannel],
            on: self.eventLoop,
            logger: self.logger
        ) { event in
            switch event {
            case .subscribed:
                hub.repair()
                revocations.wake()
            case .lost: break
            case .message(revocationsChannel, _): revocations.wake()
            case .message(_, let payload):
                guard let frames = NodeFrameBatch.decode(payload) else {
                    logger.error("frames of an unknown format were passed over")
                    return
                }
                hub.deliver(frames.map { NodeChange($0) })
            }
        }
        // The lease outlives the drain: frames still reach the sockets that are left.
        while !Task.isCancelled, !Task.isShuttingDownGracefully || hub.count > 0 {
            do {
                if try await !lease.renew(showing: "gateway \(hub.count)") { hub.repair() }
            } catch {
                self.logger.warning("lease not renewed", metadata: ["error": "\(error)"])
            }
            for _ in 0..<50 where !Task.isShuttingDownGracefully || hub.count > 0 {
                // The time until the next renewal, in steps, so that the last socket to leave ends it.
                try await Task.sleep(for: Lease.renewal / 50)
            }
        }
        await subscription.close()
        try? await lease.release()
    }
}

extension NodeChange {
    init(_ frame: NodeFrame) {
        let kind: NodeChange.Kind =
            switch frame.kind {
            case .notification: .notification
            case .read: .read
            case .deleted: .deleted
            case .event, .eventForEveryone: .event
            }
        let isForEveryone = frame.kind == .eventForEveryone
        let excepted = isForEveryone ? (try? JSONParser.parse(frame.camelCaseBody))?.strings ?? [] : []
        self.init(
            kind: kind,
            user: frame.user,
            previous: frame.previous,
            version: frame.version,
            unread: frame.unread,
            id: frame.id,
            awaitingLane: frame.awaitingLane,
            body: NodeChange.Body(canonical: frame.body, camelCase: isForEveryone ? [] : frame.camelCaseBody),
            everyoneBut: isForEveryone ? Set(excepted.map { ExactText($0) }) : nil
        )
    }
}
