// Carillon · RedisSubscription.swift
// SPDX-License-Identifier: Apache-2.0

import Logging
import NIOCore

/// A pub/sub subscription to a fixed set of channels, kept up through losses.
///
/// In a cluster it has a connection to each master that owns a sharded channel, and follows the
/// channels when slots move. The general channels have another connection, to any master, as each
/// delivers them. Messages published during a loss are gone; ``Event/lost`` and
/// ``Event/subscribed`` mark the gap.
package actor RedisSubscription {
    /// An event of the subscription, delivered on its event loop.
    package enum Event: Sendable {
        /// Every channel is subscribed; `isFirst` is false after a loss.
        case subscribed(isFirst: Bool)
        /// Some channels have just been subscribed, while others are not.
        case resumed
        /// Some channel is not subscribed any more; the text is the reason.
        case lost(String)
        case message(channel: String, payload: ArraySlice<UInt8>)
    }

    private struct Link {
        let channels: SubscriptionConnection.Channels
        let connection: SubscriptionConnection
        var isSubscribed = false
    }

    /// How often a cluster's map is checked; servers also signal a slot that has moved.
    private static let checkInterval: Duration = .seconds(15)
    /// How often the map is checked while a channel is not subscribed.
    private static let watchInterval: Duration = .milliseconds(250)

    private let eventLoop: any EventLoop
    private let configuration: RedisConfiguration
    private let channels: SubscriptionConnection.Channels
    private let logger: Logger
    private let handle: @Sendable (Event) -> Void

    /// The connections for sharded channels by master; nil stands for any master, or for a Redis
    /// that is no cluster.
    private var links: [RedisAddress.Server?: Link] = [:]
    private var check: RepeatedTask?
    private(set) var isComplete = false
    private var wasComplete = false
    private var isWatching = false
    private var isClosed = false

    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        self.eventLoop.executor.asUnownedSerialExecutor()
    }

    /// Subscribes, and subscribes again after each loss until ``close()`` or deallocation.
    ///
    /// - Parameters:
    ///   - channels: channels of PUBLISH.
    ///   - sharded: channels of SPUBLISH.
    /// - Throws: ``RedisError`` with code `configuration`.
    package init(
        _ configuration: RedisConfiguration,
        channels: [String],
        sharded: [String] = [],
        on eventLoop: any EventLoop,
        logger: Logger,
        handle: @escaping @Sendable (Event) -> Void
    ) throws(RedisError) {
        // Fails early if the configuration is unusable.
        _ = try RedisConnector(configuration)
        self.eventLoop = eventLoop
        self.configuration = configuration
        self.channels = SubscriptionConnection.Channels(general: channels, sharded: sharded)
        self.logger = logger
        self.handle = handle
        eventLoop.execute { self.assumeIsolated { $0.start() } }
    }

    deinit {
        self.check?.cancel()
    }

    private var isCluster: Bool { self.configuration.address.isCluster }

    /// Drops the connections with their unread input, and subscribes again.
    package func restart(_ reason: String) async {
        for link in self.links.values { await link.connection.restart(reason) }
    }

    /// Ends the subscription for good.
    package func close() async {
        self.isClosed = true
        self.check?.cancel()
        for link in self.links.values { await link.connection.close() }
    }

    private func start() {
        guard self.isCluster else { return self.link(nil, self.channels) }
        let interval = TimeAmount(Self.checkInterval)
        self.check = self.eventLoop.scheduleRepeatedTask(initialDelay: interval, delay: interval) { [weak self] _ in
            guard let self else { return }
            Task { await self.follow(within: Self.checkInterval / 2) }
        }
        self.watch()
    }

    private func link(_ server: RedisAddress.Server?, _ channels: SubscriptionConnection.Channels) {
        let configuration = server.map { self.configuration.of($0) } ?? self.configuration
        do throws(RedisError) {
            let connection = try SubscriptionConnection(
                configuration, channels: channels, on: self.eventLoop, logger: self.logger
            ) { [weak self] event in
                // The connection is on the same event loop.
                self?.assumeIsolated { $0.receive(event, from: server, channels) }
            }
            self.links[server] = Link(channels: channels, connection: connection)
        } catch {
            self.logger.error("cannot subscribe", metadata: ["error": "\(error)"])
        }
    }

    private func receive(
        _ event: SubscriptionConnection.Event,
        from server: RedisAddress.Server?,
        _ channels: SubscriptionConnection.Channels
    ) {
        switch event {
        case .message(let channel, let payload): self.handle(.message(channel: channel, payload: payload))
        case .subscribed: self.update(server, channels, isSubscribed: true, "")
        case .lost(let reason):
            self.update(server, channels, isSubscribed: false, reason)
            if self.isCluster { self.watch() }
        }
    }

    /// Records the state of a connection, unless another has replaced the connection.
    private func update(
        _ server: RedisAddress.Server?,
        _ channels: SubscriptionConnection.Channels,
        isSubscribed: Bool,
        _ reason: String
    ) {
        guard self.links[server]?.channels == channels else { return }
        self.links[server]?.isSubscribed = isSubscribed
        self.report(reason, hasResumed: isSubscribed)
    }

    /// Reports when all channels are subscribed, and when they no longer are.
    ///
    /// - Parameter hasResumed: whether a connection has just been subscribed.
    private func report(_ reason: String, hasResumed: Bool = false) {
        let count = self.links.values.reduce(0) { $0 + ($1.isSubscribed ? $1.channels.count : 0) }
        let isComplete = count == self.channels.count
        guard isComplete != self.isComplete else {
            if !isComplete, hasResumed { self.handle(.resumed) }
            return
        }
        self.isComplete = isComplete
        guard isComplete else { return self.handle(.lost(reason)) }
        self.handle(.subscribed(isFirst: !self.wasComplete))
        self.wasComplete = true
    }

    // MARK: Clusters

    /// Follows the channels until all are subscribed.
    private func watch() {
        guard !self.isWatching else { return }
        self.isWatching = true
        Task { [weak self] in
            while let self, await self.isStillWatching() {
                await self.follow(within: Self.watchInterval)
                // A cluster does not tell its clients where a slot is now.
                try? await Task.sleep(for: Self.watchInterval)
            }
        }
    }

    private func isStillWatching() -> Bool {
        self.isWatching = !self.isComplete && !self.isClosed
        return self.isWatching
    }

    /// Subscribes each sharded channel at the master that owns it now, and the others at any.
    private func follow(within age: Duration) async {
        guard
            let map = try? await self.configuration.topology.refresh(
                self.configuration, within: age, on: self.eventLoop),
            !self.isClosed
        else { return }
        var wanted: [RedisAddress.Server?: SubscriptionConnection.Channels] = [:]
        for channel in self.channels.sharded {
            guard let owner = map.owner(of: RedisSlot.of(Array(channel.utf8))) else { continue }
            wanted[owner, default: .init()].sharded.append(channel)
        }
        if !self.channels.general.isEmpty { wanted[nil] = .init(general: self.channels.general) }
        var gone: [SubscriptionConnection] = []
        for (server, link) in self.links where wanted[server] != link.channels {
            self.links[server] = nil
            gone.append(link.connection)
        }
        if !gone.isEmpty { self.report("a slot has moved") }
        for (server, channels) in wanted where self.links[server] == nil { self.link(server, channels) }
        for connection in gone { await connection.close() }
        await self.links[nil]?.connection.leave(unlessAmong: map.servers)
    }
}
