// Carillon · SignalRNode.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import DequeModule
import Metrics
import NIOCore
import Protocols
import Synchronization

/// All connections of a hub on this node.
final class SignalRNode: Sendable {
    /// Connections and offers at a time; more are answered with 503.
    private static let maximumConnections = 1_000_000

    let configuration: SignalREndpointConfiguration
    let directory: SignalRDirectory
    /// The clock of the hub's connections, in milliseconds.
    let now: @Sendable () -> Int64
    // The bound confines each to its loop.
    private let loops = Mutex<[ObjectIdentifier: NIOLoopBound<SignalRLoop>]>([:])

    init(
        configuration: SignalREndpointConfiguration,
        now: @escaping @Sendable () -> Int64 = SignalREndpoint.uptime
    ) {
        self.configuration = configuration
        self.now = now
        self.directory = SignalRDirectory(limit: SignalRNode.maximumConnections)
    }

    /// Returns the connections of a loop; called on it.
    func loop(_ eventLoop: any EventLoop) -> SignalRLoop {
        let key = ObjectIdentifier(eventLoop)
        if let existing = self.loops.withLock({ $0[key] }) { return existing.value }
        let bound = NIOLoopBound(SignalRLoop(), eventLoop: eventLoop)
        self.loops.withLock { $0[key] = bound }
        let tick = self.configuration.tick
        eventLoop.scheduleRepeatedTask(initialDelay: tick, delay: tick) { [weak self] task in
            guard let self else { return task.cancel() }
            self.directory.sweep(now: self.now())
            bound.value.tick()
        }
        return bound.value
    }

    /// Opens a connection on the caller's event loop; nil if the node is full or the hub refuses.
    func begin(
        id: String,
        offer: SignalRDirectory.Offer,
        transport: SignalRTransport,
        permit: SignalRPermit,
        on eventLoop: any EventLoop
    ) -> SignalRSession? {
        let session = SignalRSession(id: id, offer: offer, transport: transport, node: self, eventLoop: eventLoop)
        let reference = LoopReference(session, eventLoop: eventLoop)
        guard self.directory.add(reference, id: id, owner: permit.owner) else {
            SignalRMetrics.refused.increment()
            return nil
        }
        guard let application = permit.open(session) else {
            self.directory.remove(id)
            return nil
        }
        session.begin(application)
        self.loop(eventLoop).add(session)
        return session
    }

    /// Removes a closed connection; called on its loop.
    func end(_ session: SignalRSession, on eventLoop: any EventLoop) {
        self.directory.remove(session.id)
        self.loop(eventLoop).remove(session)
    }
}

/// The connections of a hub on one event loop, and their one timer; confined to it.
final class SignalRLoop {
    private var sessions: [ObjectIdentifier: SignalRSession] = [:]

    func add(_ session: SignalRSession) {
        self.sessions[ObjectIdentifier(session)] = session
    }

    func remove(_ session: SignalRSession) {
        self.sessions[ObjectIdentifier(session)] = nil
    }

    func tick() {
        for session in self.sessions.values { session.tick() }
    }
}

/// The ids of a hub on this node: offers that wait for their client, and connections.
///
/// Bounded: at the limit, it takes neither offers nor connections.
final class SignalRDirectory: Sendable {
    struct Offer: Sendable {
        let owner: String
        let usesStatefulReconnect: Bool
    }

    enum Entry: Sendable {
        case offer(Offer)
        case connection(LoopReference<SignalRSession>, owner: String)

        var owner: String {
            switch self {
            case .offer(let offer): offer.owner
            case .connection(_, let owner): owner
            }
        }
    }

    private struct State {
        var entries: [String: Entry] = [:]
        /// The ends of offers, in the order in which the offers were made.
        var ends: Deque<(id: String, at: Int64)> = []
    }

    private let limit: Int
    private let state = Mutex(State())
    private let lastNumber = Atomic<UInt64>(0)

    init(limit: Int) {
        self.limit = limit
    }

    /// Returns a number that no other socket or poll of the hub has.
    func nextNumber() -> UInt64 { self.lastNumber.wrappingAdd(1, ordering: .relaxed).newValue }

    /// The entry of an id, for its owner only.
    func entry(_ id: String, owner: String) -> Entry? {
        let entry = self.state.withLock { $0.entries[id] }
        return entry?.owner == owner ? entry : nil
    }

    /// Whether the id is unused.
    func isFree(_ id: String) -> Bool { self.state.withLock { $0.entries[id] == nil } }

    /// Adds an offer until `end`, in milliseconds; false if there are too many.
    func add(_ offer: Offer, id: String, until end: Int64) -> Bool {
        self.state.withLock { state in
            guard state.entries.count < self.limit, state.entries[id] == nil else { return false }
            state.entries[id] = .offer(offer)
            state.ends.append((id, end))
            return true
        }
    }

    /// Adds a connection in place of its offer; false if the id belongs to someone else or there
    /// are too many.
    func add(_ session: LoopReference<SignalRSession>, id: String, owner: String) -> Bool {
        self.state.withLock { state in
            switch state.entries[id] {
            case .connection: return false
            case .offer(let offer): guard offer.owner == owner else { return false }
            case nil: guard state.entries.count < self.limit else { return false }
            }
            state.entries[id] = .connection(session, owner: owner)
            return true
        }
    }

    func remove(_ id: String) {
        _ = self.state.withLock { $0.entries.removeValue(forKey: id) }
    }

    /// Removes the offers that no client used in time.
    func sweep(now: Int64) {
        self.state.withLock { state in
            while let first = state.ends.first, first.at <= now {
                state.ends.removeFirst()
                guard case .offer = state.entries[first.id] else { continue }
                state.entries[first.id] = nil
                SignalRMetrics.unused.increment()
            }
        }
    }
}

/// Hub metrics, each created once.
enum SignalRMetrics {
    /// Negotiations and connections refused because the node was full or their id was taken.
    static let refused = Counter(label: "carillon.signalr.refused")
    /// Connections that continued over another WebSocket.
    static let returned = Counter(label: "carillon.signalr.returned")
    /// Offers that no client used in time.
    static let unused = Counter(label: "carillon.signalr.unused")
    /// Pauses in reading a WebSocket because too many calls of its client waited.
    static let paused = Counter(label: "carillon.signalr.paused")
}
