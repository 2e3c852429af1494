// Carillon · HubLoops.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore

/// The event loops of a hub, and the shard of each.
struct HubLoops: Sendable {
    let eventLoops: [any EventLoop]
    // The bound confines each shard to its loop, which fills the box.
    private let shards: [ObjectIdentifier: NIOLoopBoundBox<HubShard?>]

    init(_ group: any EventLoopGroup) {
        self.eventLoops = Array(group.makeIterator())
        var shards: [ObjectIdentifier: NIOLoopBoundBox<HubShard?>] = [:]
        for eventLoop in self.eventLoops {
            shards[ObjectIdentifier(eventLoop)] = NIOLoopBoundBox.makeBoxSendingValue(
                HubShard?.none, as: HubShard?.self, eventLoop: eventLoop)
        }
        self.shards = shards
    }

    /// Starts a hub's shard on each loop.
    func start(_ hub: SocketHub) {
        for (index, eventLoop) in self.eventLoops.enumerated() {
            eventLoop.execute {
                let shard = HubShard(eventLoop: eventLoop, index: index, hub: hub)
                shard.start()
                self.shards[ObjectIdentifier(eventLoop)]?.value = shard
            }
        }
    }

    /// Returns the shard of a loop, for use on that loop; nil for a loop of another group.
    func shard(on eventLoop: any EventLoop) -> HubShard? {
        self.shards[ObjectIdentifier(eventLoop)]?.value
    }

    /// Calls `body` with each shard on its loop, without waiting.
    func onEach(_ body: @escaping @Sendable (HubShard) -> Void) {
        for eventLoop in self.eventLoops {
            eventLoop.execute { if let shard = self.shard(on: eventLoop) { body(shard) } }
        }
    }

    /// Runs a query on a loop's shard; nil if the loop has ended.
    func ask<Answer: Sendable>(
        _ eventLoop: any EventLoop,
        _ question: @escaping @Sendable (HubShard) -> Answer
    ) async -> Answer? {
        try? await eventLoop.submit { self.shard(on: eventLoop).map(question) }.get()
    }
}
