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

/// Keeps a node registered: renews its lease, holds its subscription, and has all sockets catch up
/// after gaps in either.
///
/// At each renewal it publishes a probe, an empty message, on each of its channels. If two probes
/// in a row do not arrive on a channel, the node resubscribes: a server may answer commands and yet
/// deliver no messages.
package struct NodeService: Service {
    /// The number of short sleeps until the next renewal: 5 s in all with the default lease, and
    /// 0.3 s after a failed renewal.
    private static let steps = 50
    private static let retrySteps = 3
    /// The time between catch-ups while the lease cannot be renewed; each reads the inbox of every
    /// socket.
    private static let catchUpInterval: Duration = .seconds(60)

    private let node: String
    private let lease: Lease
    private let configuration: RedisConfiguration
    private let live: Live
    private let hub: SocketHub
    private let revocations: RevocationRegister
    private let eventLoop: any EventLoop
    private let now: @Sendable () -> ContinuousClock.Instant
    /// The time from a resubscription to the second catch-up.
    private let secondCatchUp: Duration
    private let process: ProcessNote
    private let revocationsChannel: String
    private let logger: Logger
    private let window: LeaseWindow
    private let probes: ChannelProbes
    private let frames: FrameGatherer

    package init(
        node: String,
        lease: Lease,
        configuration: RedisConfiguration,
        live: Live,
        hub: SocketHub,
        revocations: RevocationRegister,
        eventLoop: any EventLoop,
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now },
        secondCatchUp: Duration = .seconds(15),
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
        self.secondCatchUp = secondCatchUp
        self.process = ProcessNote(version: Release.version, startedAt: .now())
        self.revocationsChannel = live.keys.revocationsChannel
        self.logger = logger
        self.window = LeaseWindow(lifetime: lease.lifetime)
        self.probes = ChannelProbes(live.keys.parts.map { $0.nodeChannel(node) })
        self.frames = FrameGatherer(hub: hub, eventLoop: eventLoop)
    }

    package func run() async throws {
        let start = self.now()
        if (try? await self.lease.renew()) != nil { self.window.begin(at: start) }
        let keys = self.live.keys
        let channels = Array(self.probes.all)
        let subscription = try RedisSubscription(
            self.configuration,
            channels: [keys.allNodesChannel, self.revocationsChannel] + (keys.isSpread ? [] : channels),
            sharded: keys.isSpread ? channels : [],
            on: self.eventLoop,
            logger: self.logger
        ) { self.handle($0) }
        var isFailing = false
        // When the sockets catch up unless the lease is renewed first.
        var catchUpAt = start + self.lease.lifetime
        while !Task.isCancelled, self.isNeeded {
            do throws(RedisError) {
                try await self.renew(subscription)
                isFailing = false
                catchUpAt = self.now() + self.lease.lifetime
            } catch {
                if !isFailing {
                    self.logger.warning("cannot renew the node's lease; retrying", metadata: ["error": "\(error)"])
                }
                isFailing = true
                // Publishers that still reach the lease's master consider the node dead.
                if self.live.connection.isCluster, self.now() >= catchUpAt {
                    catchUpAt = self.now() + Self.catchUpInterval
                    self.hub.catchUpAll()
                }
            }
            try await self.pause(afterFailure: isFailing)
        }
        await subscription.close()
        try? await self.lease.release()
    }

    /// Whether the lease must be held; it outlives the drain, because remaining sockets still need
    /// frames.
    private var isNeeded: Bool { !Task.isShuttingDownGracefully || self.hub.count > 0 }

    private func handle(_ event: RedisSubscription.Event) {
        switch event {
        case .subscribed(let isFirst):
            self.probes.listen()
            self.hub.catchUpAll()
            self.revocations.wake()
            guard !isFirst else { return }
            // After a planned failover, this catch-up and the publishers may have used the former
            // master, whose writes are lost.
            self.eventLoop.scheduleTask(in: TimeAmount(self.secondCatchUp)) { self.hub.catchUpAll() }
        case .resumed: self.hub.catchUpAll()
        case .lost: self.probes.drop()
        case .message(self.revocationsChannel, let payload):
            guard let revocation = self.revocations.hear(payload) else { return }
            self.hub.revoke([(revocation.user, revocation.before)])
        case .message(let channel, let payload):
            self.probes.received(on: channel)
            guard let batch = NodeFrameBatch.decode(payload) else {
                self.logger.error("ignored frames of an unknown format; run the same version on all nodes")
                return
            }
            // A probe has no frames, and need not wake the sockets' loops.
            guard !batch.isEmpty else { return }
            guard self.window.admits(at: self.now()) else { return self.hub.skip(batch.count) }
            self.frames.add(batch)
        }
    }

    /// Renews the lease; then restarts a silent subscription, or publishes the next probes.
    private func renew(_ subscription: RedisSubscription) async throws(RedisError) {
        let start = self.now()
        let isHeld: Bool
        do throws(RedisError) {
            isHeld = try await self.lease.renew(
                showing: self.process.leaseValue("gateway", load: self.hub.count), timeout: self.lease.patience)
        } catch {
            // While the lease's master is unreachable, publishers also consider the lease held.
            if self.live.connection.isCluster, error.isOfAbsentServer {
                await self.renewed(subscription, from: start, isHeld: true)
            }
            throw error
        }
        await self.renewed(subscription, from: start, isHeld: isHeld)
        if let silent = self.probes.silent {
            self.probes.drop()
            await subscription.restart("the channel \(silent) is silent")
        } else if self.probes.begin() {
            await self.publishProbes()
        }
    }

    /// Waits for the next renewal, only briefly after a failure or once the lease has expired.
    private func pause(afterFailure isFailing: Bool) async throws {
        for step in 0..<(isFailing ? Self.retrySteps : Self.steps) where self.isNeeded {
            guard step < 5 || self.window.isWhole(at: self.now()) else { return }
            // Sleep in short steps: an expired lease and the loss of the last socket end the wait,
            // but send no signal.
            try await Task.sleep(for: self.lease.renewal / Self.steps)
        }
    }

    /// Extends the window after a renewal whose call began at `start`, or starts a new one.
    private func renewed(
        _ subscription: RedisSubscription,
        from start: ContinuousClock.Instant,
        isHeld: Bool
    ) async {
        if isHeld, self.window.isWhole(at: self.now()) {
            self.window.extend(from: start)
        } else {
            // Drops the waiting frames; the sockets catch up once the node has resubscribed.
            await subscription.restart("the lease expired")
            self.window.begin(at: start)
        }
    }

    private func publishProbes() async {
        var batch = RedisBatch()
        let probe = RedisArgument.bytes(NodeFrameBatch().bytes)
        for channel in self.probes.all { batch.append(self.live.keys.publishCommand, .text(channel), probe) }
        do throws(RedisError) {
            try await self.live.connection.run(batch)
        } catch {
            self.probes.forget()
            self.logger.warning(
                "cannot publish on the node's channels; retrying at the next renewal", metadata: ["error": "\(error)"])
        }
    }
}

/// Tracks the probes on each channel, to find channels that deliver nothing.
private final class ChannelProbes: Sendable {
    private struct State {
        var isListening = false
        var waiting: Set<String> = []
        /// The channels whose previous probe had not arrived when the last one was published.
        var missing: Set<String> = []
    }

    let all: Set<String>
    private let state = Mutex(State())

    init(_ channels: [String]) { self.all = Set(channels) }

    /// A channel on which neither of the last two probes arrived; nil if there is none.
    ///
    /// A single probe may wait unread while the process is suspended.
    var silent: String? { self.state.withLock { $0.waiting.intersection($0.missing).first } }

    /// Expects probes from now on, because all channels are subscribed.
    func listen() { self.state.withLock { $0.isListening = true } }

    /// Expects a probe on each channel; publish the probes after this call.
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

    func received(on channel: String) {
        self.state.withLock { state in
            state.waiting.remove(channel)
            state.missing.remove(channel)
        }
    }

    /// Forgets probes that could not be published.
    func forget() { self.state.withLock { $0.waiting = [] } }

    /// Forgets all probes, because the subscription was lost.
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
/// waited: frames that withdraw their notifications may have skipped it.
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
