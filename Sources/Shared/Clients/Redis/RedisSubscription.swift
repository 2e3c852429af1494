// Carillon · RedisSubscription.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import NIOCore

/// A pub/sub connection: a fixed set of channels, subscribed again after every loss.
///
/// Messages that were published while it was away are gone; ``Event/lost`` and ``Event/subscribed`` tell when to look for them.
package actor RedisSubscription {
    /// What the subscriber hears, on the connection's event loop.
    package enum Event: Sendable {
        /// Every channel is subscribed; `isFirst` is false after a loss.
        case subscribed(isFirst: Bool)
        /// No channel is subscribed any more, and why: in the network's, the server's or the client's words.
        case lost(String)
        case message(channel: String, payload: ArraySlice<UInt8>)
    }

    private static let probeInterval = TimeAmount.seconds(5)

    private let eventLoop: any EventLoop
    private let configuration: RedisConfiguration
    private let connector: RedisConnector
    private let channels: [String]
    private let logger: Logger
    private let handle: @Sendable (Event) -> Void

    private var channel: (any Channel)?
    private var reader: RESPReader?
    private var owedLogins = 0
    private var subscribed: Set<String> = []
    private var wasSubscribed = false
    private var isClosed = false
    private var attempt = 0
    /// What went wrong on the channel before it closed.
    private var fault: String?
    private var lastFailure: String?
    private var probe: RepeatedTask?
    private var heardSinceProbe = true

    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        self.eventLoop.executor.asUnownedSerialExecutor()
    }

    /// Subscribes, and keeps it so until ``close()``, or until nobody holds the subscription any more.
    ///
    /// - Throws: ``RedisError`` with code `configuration`.
    package init(
        _ configuration: RedisConfiguration,
        channels: [String],
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

    /// Whether every channel is subscribed now.
    package var isSubscribed: Bool { self.subscribed.count == self.channels.count }

    /// Gives up the connection, with all that waits in it, and subscribes again.
    package func restart(_ reason: String) {
        // Input that was read before the channel closes is dropped.
        self.reader = nil
        self.end(reason)
    }

    /// Ends the subscription for good.
    package func close() {
        self.isClosed = true
        self.probe?.cancel()
        self.channel?.close(promise: nil)
    }

    private func start() {
        self.probe = self.eventLoop.scheduleRepeatedTask(
            initialDelay: Self.probeInterval,
            delay: Self.probeInterval
        ) { [weak self] _ in
            self?.assumeIsolated { $0.checkLife() }
        }
        self.connect()
    }

    private func connect() {
        guard !self.isClosed else { return }
        self.connector.connect(on: self.eventLoop) {
            RedisChannelHandler { [weak self] event in self?.assumeIsolated { $0.receive(event) } }
        }.whenComplete { [weak self] result in
            guard let self else {
                if case .success(let channel) = result { channel.close(promise: nil) }
                return
            }
            self.assumeIsolated { $0.connected(result) }
        }
    }

    private func connected(_ result: Result<any Channel, any Error>) {
        do {
            let channel = try result.get()
            guard !self.isClosed else {
                channel.close(promise: nil)
                return
            }
            self.channel = channel
            self.fault = nil
            self.reader = try RESPReader()
            self.heardSinceProbe = true
            var batch = self.connector.login()
            self.owedLogins = batch.count
            batch.append(["SUBSCRIBE"] + self.channels.map { .text($0) })
            channel.writeAndFlush(batch.bytes, promise: nil)
        } catch {
            self.retry(NetworkFault.words(error))
        }
    }

    private func retry(_ reason: String) {
        guard !self.isClosed else { return }
        if self.lastFailure != reason {
            self.logger.warning("redis subscription lost", metadata: ["error": "\(reason)"])
        }
        self.lastFailure = reason
        let delay = self.configuration.reconnect.delay(attempt: self.attempt)
        self.attempt += 1
        self.eventLoop.scheduleTask(in: TimeAmount(delay)) { [weak self] in
            self?.assumeIsolated { $0.connect() }
        }
    }

    private func receive(_ event: RedisChannelEvent) {
        switch event {
        case .bytes(let buffer):
            self.heardSinceProbe = true
            do throws(RedisError) {
                var fault: RedisError?
                try self.reader?.read(buffer) { reply in
                    do throws(RedisError) { try self.take(reply) } catch { fault = fault ?? error }
                }
                if let fault { throw fault }
            } catch {
                self.end("\(error)")
            }
        case .failed(let reason):
            self.fault = self.fault ?? reason
        case .closed:
            self.closed()
        }
    }

    /// Closes the channel for a reason; it is opened again once it is closed.
    private func end(_ reason: String) {
        self.fault = self.fault ?? reason
        self.channel?.close(promise: nil)
    }

    private func closed() {
        self.channel = nil
        self.reader = nil
        let wasComplete = self.isSubscribed
        self.subscribed = []
        let reason = self.fault ?? "the connection was closed"
        if wasComplete { self.handle(.lost(reason)) }
        self.retry(reason)
    }

    private func take(_ reply: RedisReply) throws(RedisError) {
        if self.owedLogins > 0 {
            self.owedLogins -= 1
            _ = try reply.checked()
            return
        }
        guard var cursor = try reply.cursor(), try cursor.array() != nil, let kind = try cursor.string() else { return }
        switch kind {
        case "message":
            guard let channel = try cursor.string(), let payload = try cursor.bytes() else { return }
            self.handle(.message(channel: channel, payload: payload))
        case "subscribe":
            guard let channel = try cursor.string() else { return }
            self.subscribed.insert(channel)
            guard self.isSubscribed else { return }
            self.attempt = 0
            if self.lastFailure != nil { self.logger.info("redis subscribed again") }
            self.lastFailure = nil
            self.handle(.subscribed(isFirst: !self.wasSubscribed))
            self.wasSubscribed = true
        default: break
        }
    }

    /// A stalled server or a dead path shows as silence: what was asked and not answered within an interval ends the connection.
    private func checkLife() {
        guard let channel = self.channel else { return }
        guard self.heardSinceProbe else { return self.end("no answer to a probe in time") }
        self.heardSinceProbe = false
        var batch = RedisBatch()
        batch.append("PING")
        channel.writeAndFlush(batch.bytes, promise: nil)
    }
}
