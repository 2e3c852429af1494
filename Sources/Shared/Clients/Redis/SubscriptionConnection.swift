// Carillon · SubscriptionConnection.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import NIOCore

/// A pub/sub connection with a fixed set of channels, subscribed again after every loss.
///
/// If the address is a cluster's, connects to one of its masters.
actor SubscriptionConnection {
    /// An event of the connection, delivered on its event loop.
    enum Event: Sendable {
        /// Every channel is subscribed.
        case subscribed
        /// The connection was lost, or an attempt to subscribe has failed: no channel is
        /// subscribed.
        case lost(String)
        case message(channel: String, payload: ArraySlice<UInt8>)
    }

    /// The channels of a connection.
    struct Channels: Sendable, Equatable {
        /// Channels that every server of a cluster hears.
        var general: [String] = []
        /// Channels that belong to the slot of their name.
        var sharded: [String] = []

        var count: Int { self.general.count + self.sharded.count }
    }

    private let eventLoop: any EventLoop
    private let configuration: RedisConfiguration
    private let connector: RedisConnector
    private let channels: Channels
    private let logger: Logger
    private let handle: @Sendable (Event) -> Void

    private var channel: (any Channel)?
    /// Numbers the channels, so that late events of an abandoned channel are ignored.
    private var generation = 0
    private var reader: RESPReader?
    private var server: RedisAddress?
    private var pendingLogins = 0
    private var logins: [RedisReply] = []
    private var subscribed: Set<String> = []
    private var isClosed = false
    private var attempt = 0
    /// The number of all attempts to connect so far, which go to a cluster's masters in turn.
    private var turn = 0
    private var lastFailure: String?
    private var probe: RepeatedTask?
    private var heardSinceProbe = true

    nonisolated var unownedExecutor: UnownedSerialExecutor {
        self.eventLoop.executor.asUnownedSerialExecutor()
    }

    /// Subscribes, and subscribes again after each loss until ``close()`` or deallocation.
    ///
    /// - Throws: ``RedisError`` with code `configuration`.
    init(
        _ configuration: RedisConfiguration,
        channels: Channels,
        on eventLoop: any EventLoop,
        logger: Logger,
        handle: @escaping @Sendable (Event) -> Void
    ) throws(RedisError) {
        self.eventLoop = eventLoop
        self.configuration = configuration
        self.connector = try RedisConnector(configuration)
        self.channels = channels
        self.logger = logger
        self.handle = handle
        eventLoop.execute { self.assumeIsolated { $0.start() } }
    }

    deinit {
        self.probe?.cancel()
        self.channel?.close(promise: nil)
    }

    var isSubscribed: Bool { self.subscribed.count == self.channels.count }

    /// Drops the connection with its unread input, and subscribes again.
    func restart(_ reason: String) {
        guard let channel = self.channel else { return }
        self.lost(reason)
        // A TLS channel with a silent peer takes seconds to close.
        channel.close(promise: nil)
    }

    /// Subscribes at another server if the present one is not among `servers`.
    func leave(unlessAmong servers: [RedisAddress.Server]) {
        guard case .tcp(let server) = self.server?.endpoint, !servers.contains(server) else { return }
        self.restart("\(server) has left the cluster")
    }

    /// Ends the subscription for good.
    func close() {
        self.isClosed = true
        self.probe?.cancel()
        self.channel?.close(promise: nil)
    }

    private func start() {
        // A probe has the time limit of a command.
        let interval = TimeAmount(self.configuration.commandTimeout)
        self.probe = self.eventLoop.scheduleRepeatedTask(initialDelay: interval, delay: interval) { [weak self] _ in
            self?.assumeIsolated { $0.checkLife() }
        }
        self.connect()
    }

    private func connect() {
        guard !self.isClosed else { return }
        let generation = self.generation
        defer { self.turn += 1 }
        self.connector.connect(on: self.eventLoop, turn: self.turn) { [weak self] event in
            self?.assumeIsolated { $0.receive(event, from: generation) }
        }.whenComplete { [weak self] result in
            guard let self else { return RedisConnector.close(result) }
            self.assumeIsolated { $0.connected(result) }
        }
    }

    private func connected(_ result: Result<RedisConnector.Opened, any Error>) {
        guard !self.isClosed else { return RedisConnector.close(result) }
        do {
            let channel = try result.get().channel
            self.channel = channel
            self.server = try result.get().server
            self.reader = try RESPReader()
            self.heardSinceProbe = true
            var batch = self.connector.login(checksRole: self.connector.usesSentinels)
            self.pendingLogins = batch.count
            self.logins = []
            if !self.channels.general.isEmpty {
                batch.append(["SUBSCRIBE"] + self.channels.general.map { .text($0) })
            }
            // One command a channel, as they may lie in several slots.
            for channel in self.channels.sharded { batch.append("SSUBSCRIBE", .text(channel)) }
            channel.writeAndFlush(batch.bytes, promise: nil)
        } catch {
            self.retry(NetworkFault.words(error))
        }
    }

    private func retry(_ reason: String) {
        guard !self.isClosed else { return }
        if self.lastFailure != reason {
            self.logger.warning("redis subscription lost; reconnecting", metadata: ["error": "\(reason)"])
        }
        self.lastFailure = reason
        self.handle(.lost(reason))
        let delay = self.configuration.reconnect.delay(attempt: self.attempt)
        self.attempt += 1
        self.eventLoop.scheduleTask(in: TimeAmount(delay)) { [weak self] in
            self?.assumeIsolated { $0.connect() }
        }
    }

    private func receive(_ event: RedisChannelEvent, from generation: Int) {
        guard generation == self.generation else { return }
        switch event {
        case .bytes(let buffer):
            self.heardSinceProbe = true
            do throws(RedisError) {
                var fault: RedisError?
                try self.reader?.read(buffer) { reply in
                    do throws(RedisError) { try self.receive(reply) } catch { fault = fault ?? error }
                }
                if let fault { throw fault }
            } catch {
                self.restart("\(error)")
            }
        case .closed(let reason): self.lost(reason)
        }
    }

    private func lost(_ reason: String) {
        self.generation += 1
        self.channel = nil
        self.reader = nil
        self.subscribed = []
        let refusal = self.pendingLogins > 0 ? RedisConnector.refusal(self.logins)?.description : nil
        self.retry(refusal ?? reason)
    }

    private func receive(_ reply: RedisReply) throws(RedisError) {
        if self.pendingLogins > 0 {
            self.pendingLogins -= 1
            self.logins.append(reply)
            guard self.pendingLogins == 0 else { return }
            _ = try RedisConnector.identifier(self.logins, checksRole: self.connector.usesSentinels)
            return
        }
        guard var cursor = try reply.cursor(), try cursor.array() != nil, let kind = try cursor.string() else { return }
        switch kind {
        case "message", "smessage":
            guard let channel = try cursor.string(), let payload = try cursor.bytes() else { return }
            self.handle(.message(channel: channel, payload: payload))
        case "subscribe", "ssubscribe":
            guard let channel = try cursor.string() else { return }
            self.subscribed.insert(channel)
            guard self.isSubscribed else { return }
            self.attempt = 0
            if self.lastFailure != nil { self.logger.info("redis subscription restored") }
            self.lastFailure = nil
            self.handle(.subscribed)
        case "sunsubscribe": throw RedisError(.connectionLost, "the slot of a channel has moved")
        default: break
        }
    }

    /// Ends the connection if nothing arrived since the last probe: the server stalled or the path
    /// is dead.
    private func checkLife() {
        guard let channel = self.channel else { return }
        guard self.heardSinceProbe else { return self.restart("no answer to a probe in time") }
        self.heardSinceProbe = false
        var batch = RedisBatch()
        batch.append("PING")
        channel.writeAndFlush(batch.bytes, promise: nil)
        if self.connector.usesSentinels { Task { await self.checkMaster() } }
    }

    /// Leaves a server that is no longer the master: no process publishes there.
    private func checkMaster() async {
        guard let channel, let server else { return }
        let isMaster = await self.connector.isMaster(server, on: self.eventLoop)
        guard !isMaster, channel === self.channel else { return }
        self.restart("Sentinel names another master than \(server)")
    }
}
