// Carillon · NodeService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import NIOCore
import Operations
import ServiceLifecycle
import Sockets
import Storage
import Synchronization

/// Keeps a node registered: renews its lease, holds its subscription, and repairs sockets after
/// gaps in either.
///
/// At each renewal it publishes a probe, an empty message, on each of its channels. A channel that
/// does not bring it is subscribed again: its server may answer and still get no messages.
package struct NodeService: Service {
    /// The steps of the wait for the next renewal, and of the wait after a failed one: 5 s and 0.3
    /// s with the usual lease.
    private static let steps = 50
    private static let retrySteps = 3

    private let node: String
    private let lease: Lease
    private let configuration: RedisConfiguration
    private let live: Live
    private let hub: SocketHub
    private let revocations: RevocationRegister
    private let eventLoop: any EventLoop
    private let now: @Sendable () -> ContinuousClock.Instant
    private let process: ProcessNote
    private let logger: Logger

    package init(
        node: String,
        lease: Lease,
        configuration: RedisConfiguration,
        live: Live,
        hub: SocketHub,
        revocations: RevocationRegister,
        eventLoop: any EventLoop,
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now },
        startedAt: Timestamp = .now(),
        logger: Logger
    ) {
        self.node = node
        self.lease = lease
        self.configuration = configuration
        self.live = live
        self.hub = hub
        self.revocations = revocations
        self.eventLoop = eventLoop
        self.now = now
        self.process = ProcessNote(version: CommandFrame.version, startedAt: startedAt)
        self.logger = logger
    }

    package func run() async throws {
        let lease = self.lease
        let window = LeaseWindow(lifetime: lease.lifetime)
        let start = self.now()
        if (try? await lease.renew()) != nil { window.begin(at: start) }
        let frames = FrameGatherer(hub: self.hub, eventLoop: self.eventLoop)
        let hub = self.hub
        let now = self.now
        let revocations = self.revocations
        let keys = self.live.keys
        let revocationsChannel = keys.revocationsChannel
        let logger = self.logger
        let channels = keys.parts.map { $0.nodeChannel(self.node) }
        let probes = ChannelProbes(channels)
        let subscription = try RedisSubscription(
            self.configuration,
            channels: [keys.allNodesChannel, revocationsChannel] + (keys.isSpread ? [] : channels),
            sharded: keys.isSpread ? channels : [],
            on: self.eventLoop,
            logger: self.logger
        ) { event in
            switch event {
            case .subscribed:
                probes.listen()
                hub.repair()
                revocations.wake()
            case .resumed: hub.repair()
            case .lost: probes.drop()
            case .message(revocationsChannel, _): revocations.wake()
            case .message(let channel, let payload):
                probes.note(channel)
                guard let batch = NodeFrameBatch.decode(payload) else {
                    logger.error("ignored frames of an unknown format; run the same version on all nodes")
                    return
                }
                guard window.admits(at: now()) else { return hub.skip(batch.count) }
                frames.add(batch)
            }
        }
        // The lease outlives the drain, because remaining sockets still need frames.
        var isFailing = false
        while !Task.isCancelled, !Task.isShuttingDownGracefully || hub.count > 0 {
            let start = self.now()
            do throws(RedisError) {
                let isHeld = try await lease.renew(
                    showing: self.process.leaseValue("gateway", load: hub.count), timeout: lease.patience)
                isFailing = false
                await self.renewed(window, from: start, isHeld: isHeld, subscription)
                if let silent = probes.silent {
                    probes.drop()
                    await subscription.restart("the channel \(silent) is silent")
                } else if probes.begin() {
                    await self.probe(channels, probes)
                }
            } catch {
                // Publishers, too, count a lease as held while its master in a cluster is away.
                if self.live.connection.isCluster, error.isOfAbsentServer {
                    await self.renewed(window, from: start, isHeld: true, subscription)
                }
                if !isFailing {
                    self.logger.warning("cannot renew the node's lease; retrying", metadata: ["error": "\(error)"])
                }
                isFailing = true
            }
            // Soon after a failure, while the lease still holds.
            for step in 0..<(isFailing ? Self.retrySteps : Self.steps)
            where !Task.isShuttingDownGracefully || hub.count > 0 {
                guard step < 5 || window.isWhole(at: self.now()) else { break }
                // In steps, because neither an expired lease nor the last socket to leave sends a
                // signal, and both end the wait.
                try await Task.sleep(for: lease.renewal / Self.steps)
            }
        }
        await subscription.close()
        try? await lease.release()
    }

    /// Extends the window after a renewal whose call began at `start`, or starts a new one.
    private func renewed(
        _ window: LeaseWindow,
        from start: ContinuousClock.Instant,
        isHeld: Bool,
        _ subscription: RedisSubscription
    ) async {
        if isHeld, window.isWhole(at: self.now()) {
            window.extend(from: start)
        } else {
            // Drops the waiting frames; the hub repairs after it has subscribed again.
            await subscription.restart("the lease expired")
            window.begin(at: start)
        }
    }

    private func probe(_ channels: [String], _ probes: ChannelProbes) async {
        var batch = RedisBatch()
        let probe = RedisArgument.bytes(NodeFrameBatch().bytes)
        for channel in channels { batch.append(self.live.keys.publishCommand, .text(channel), probe) }
        do throws(RedisError) {
            for reply in try await self.live.connection.send(batch) { _ = try reply.checked() }
        } catch {
            probes.forget()
            self.logger.warning(
                "cannot publish on the node's channels; retrying at the next renewal", metadata: ["error": "\(error)"])
        }
    }
}

/// The channels on which two probes were published and nothing has arrived since.
private final class ChannelProbes: Sendable {
    private struct State {
        var isListening = false
        var waiting: Set<String> = []
        /// Those that had brought nothing when the last probe was published.
        var missing: Set<String> = []
    }

    private let all: Set<String>
    private let state = Mutex(State())

    init(_ channels: [String]) { self.all = Set(channels) }

    /// A channel that brought neither of two probes; nil if there is none.
    ///
    /// One may wait unread while the process stands still.
    var silent: String? { self.state.withLock { $0.waiting.intersection($0.missing).first } }

    /// Notes that all channels are subscribed.
    func listen() { self.state.withLock { $0.isListening = true } }

    /// Expects probes, which must be published after this call.
    ///
    /// - Returns: whether the channels are subscribed.
    func begin() -> Bool {
        self.state.withLock { state in
            guard state.isListening else { return false }
            state.missing = state.waiting
            state.waiting = self.all
            return true
        }
    }

    func note(_ channel: String) {
        self.state.withLock { state in
            state.waiting.remove(channel)
            state.missing.remove(channel)
        }
    }

    /// Forgets probes that could not be published.
    func forget() { self.state.withLock { $0.waiting = [] } }

    /// Notes that the subscription was lost, which brings no probes.
    func drop() { self.state.withLock { $0 = State() } }
}

/// Hands the frames of one turn of the event loop to the hub together.
///
/// Many small messages then wake the sockets' loops once, and a socket gets their frames in one
/// write.
private final class FrameGatherer: Sendable {
    private let hub: SocketHub
    private let eventLoop: any EventLoop
    private let gathered = Mutex<[NodeFrame]>([])

    init(hub: SocketHub, eventLoop: any EventLoop) {
        self.hub = hub
        self.eventLoop = eventLoop
    }

    /// Adds frames; called on the event loop.
    func add(_ frames: [NodeFrame]) {
        let isFirst = self.gathered.withLock { gathered in
            defer { gathered += frames }
            return gathered.isEmpty
        }
        guard isFirst else { return }
        self.eventLoop.execute {
            let frames = self.gathered.withLock { gathered in
                defer { gathered = [] }
                return gathered
            }
            self.hub.deliver(frames)
        }
    }
}

/// The time for which a node certainly holds its lease, by its own clock.
///
/// Publishers skip a node whose lease has expired. A node that stalled must drop the frames that
/// waited, because it may have missed their cancellation.
private final class LeaseWindow: Sendable {
    private struct State {
        /// Nil before the lease was acquired.
        var end: ContinuousClock.Instant?
        /// Whether frames were dropped since the lease began.
        var hasGap = false
    }

    private let lifetime: Duration
    private let state = Mutex(State())

    init(lifetime: Duration) { self.lifetime = lifetime }

    /// Whether frames that arrive now may be delivered.
    func admits(at now: ContinuousClock.Instant) -> Bool {
        self.state.withLock { state in
            if let end = state.end, now < end { return true }
            state.hasGap = true
            return false
        }
    }

    /// Whether the lease was held without a gap and no frame was dropped.
    func isWhole(at now: ContinuousClock.Instant) -> Bool {
        self.state.withLock { state in !state.hasGap && state.end.map { now < $0 } ?? false }
    }

    /// Extends the window after a renewal whose call began at `start`.
    func extend(from start: ContinuousClock.Instant) {
        self.state.withLock { $0.end = start + self.lifetime }
    }

    /// Starts a new window after the lease was acquired by a call that began at `start`.
    func begin(at start: ContinuousClock.Instant) {
        self.state.withLock { $0 = State(end: start + self.lifetime) }
    }
}
