// Carillon · SignalRNode.swift
// SPDX-License-Identifier: Apache-2.0

import Core
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
    /// The clock of the hub's connections.
    let now: @Sendable () -> Milliseconds
    // The bound confines each value to its loop.
    private let loops = Mutex<[ObjectIdentifier: NIOLoopBound<SignalRLoop>]>([:])

    init(
        configuration: SignalREndpointConfiguration,
        now: @escaping @Sendable () -> Milliseconds = systemUptime
    ) {
        self.configuration = configuration
        self.now = now
        self.directory = SignalRDirectory(
            limit: SignalRNode.maximumConnections,
            openingsPerOwner: configuration.openingsPerOwner
        )
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
            let now = self.now()
            guard bound.value.tick(now: now) else { return }
            self.directory.sweep(now: now)
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
    ) -> SignalRConnection? {
        let connection = SignalRConnection(id: id, offer: offer, transport: transport, node: self, eventLoop: eventLoop)
        let reference = LoopReference(connection, eventLoop: eventLoop)
        guard self.directory.add(reference, id: id, owner: permit.owner) else {
            SignalRMetrics.refused.increment()
            return nil
        }
        guard let application = permit.open(connection) else {
            self.directory.remove(id)
            return nil
        }
        connection.begin(application)
        self.loop(eventLoop).add(connection)
        return connection
    }

    /// Removes a closed connection; called on its loop.
    func end(_ connection: SignalRConnection, on eventLoop: any EventLoop) {
        let id = connection.id
        // Remember a fresh id, or it would pass for one that another node has just issued.
        let wallClock = self.configuration.wallClock().milliseconds
        if SignalRIssueTime.isStamped(id), SignalRIssueTime.isFresh(id, at: wallClock) {
            self.directory.recordEnd(id, until: self.now() + SignalRNegotiation.unusedLimit)
        }
        self.directory.remove(id)
        self.loop(eventLoop).remove(connection)
    }
}

/// The connections of a hub on one event loop; confined to it.
final class SignalRLoop {
    private var connections: [ObjectIdentifier: SignalRConnection] = [:]
    private var stallGuard = StallGuard()

    func add(_ connection: SignalRConnection) {
        self.connections[ObjectIdentifier(connection)] = connection
    }

    func remove(_ connection: SignalRConnection) {
        self.connections[ObjectIdentifier(connection)] = nil
    }

    /// Runs what is due on the connections.
    ///
    /// - Returns: false if it skipped this round after a stall.
    func tick(now: Milliseconds) -> Bool {
        guard self.stallGuard.admitsRound(at: now) else { return false }
        for connection in self.connections.values { connection.tick() }
        return true
    }
}

/// The ids of a hub on this node: offers that wait for their client, and connections.
///
/// Bounded: at its limit, it accepts no offers or connections, and remembers no more ended ids.
final class SignalRDirectory: Sendable {
    struct Offer: Sendable {
        let owner: String
        let usesStatefulReconnect: Bool
    }

    enum Entry: Sendable {
        case offer(Offer)
        case connection(LoopReference<SignalRConnection>, owner: String)

        var owner: String {
            switch self {
            case .offer(let offer): offer.owner
            case .connection(_, let owner): owner
            }
        }

        func isOf(_ owner: String) -> Bool { ExactText(self.owner) == ExactText(owner) }
    }

    private struct State {
        var entries: [String: Entry] = [:]
        /// The ids without a handshake yet.
        var opening: Set<String> = []
        /// The number of ids in ``opening`` of each owner.
        var openings: [ExactText: Int] = [:]
        /// The ids of connections that have ended, until they can no longer pass for new ones.
        var ended: Set<String> = []
        /// When offers end and ended ids are forgotten, in the order in which they were recorded.
        var ends: Deque<(id: String, at: Milliseconds)> = []

        func openings(of owner: String) -> Int { self.openings[ExactText(owner)] ?? 0 }

        mutating func add(_ entry: Entry, id: String) {
            self.entries[id] = entry
            self.opening.insert(id)
            self.openings[ExactText(entry.owner), default: 0] += 1
        }

        mutating func remove(_ id: String) {
            self.endOpening(id)
            self.entries[id] = nil
        }

        mutating func endOpening(_ id: String) {
            guard self.opening.remove(id) != nil, let owner = self.entries[id]?.owner else { return }
            let rest = self.openings(of: owner) - 1
            self.openings[ExactText(owner)] = rest > 0 ? rest : nil
        }
    }

    private let limit: Int
    private let openingsPerOwner: Int
    private let state = Mutex(State())
    private let lastNumber = Atomic<UInt64>(0)

    /// - Parameters:
    ///   - limit: the most offers and connections.
    ///   - openingsPerOwner: the most offers and connections of one owner before their handshake.
    init(limit: Int, openingsPerOwner: Int = .max) {
        self.limit = limit
        self.openingsPerOwner = openingsPerOwner
    }

    /// Returns a number that no other socket or poll of the hub has.
    func nextNumber() -> UInt64 { self.lastNumber.wrappingAdd(1, ordering: .relaxed).newValue }

    /// The entry of an id, for its owner only.
    func entry(_ id: String, owner: String) -> Entry? {
        let entry = self.state.withLock { $0.entries[id] }
        return entry?.isOf(owner) == true ? entry : nil
    }

    /// Whether the id is unused.
    func isFree(_ id: String) -> Bool { self.state.withLock { $0.entries[id] == nil } }

    /// Whether the owner may have another offer or connection before its handshake.
    func hasRoom(for owner: String) -> Bool {
        self.state.withLock { $0.openings(of: owner) < self.openingsPerOwner }
    }

    /// Adds an offer until `end`; false if there are too many or the id is taken.
    func add(_ offer: Offer, id: String, until end: Milliseconds) -> Bool {
        self.state.withLock { state in
            guard state.entries.count < self.limit, state.openings(of: offer.owner) < self.openingsPerOwner,
                state.entries[id] == nil
            else { return false }
            state.add(.offer(offer), id: id)
            state.ends.append((id, end))
            return true
        }
    }

    /// Adds a connection in place of its offer; false if the id belongs to someone else or there
    /// are too many.
    func add(_ connection: LoopReference<SignalRConnection>, id: String, owner: String) -> Bool {
        self.state.withLock { state in
            switch state.entries[id] {
            case .connection: return false
            case .offer(let offer):
                guard ExactText(offer.owner) == ExactText(owner) else { return false }
                // The offer counts already.
                state.entries[id] = .connection(connection, owner: owner)
            case nil:
                guard state.entries.count < self.limit, state.openings(of: owner) < self.openingsPerOwner else {
                    return false
                }
                state.add(.connection(connection, owner: owner), id: id)
            }
            return true
        }
    }

    /// Notes the handshake of a connection.
    func opened(_ id: String) {
        self.state.withLock { $0.endOpening(id) }
    }

    func remove(_ id: String) {
        self.state.withLock { $0.remove(id) }
    }

    /// Remembers the id of a connection that ends, until `end`.
    func recordEnd(_ id: String, until end: Milliseconds) {
        self.state.withLock { state in
            guard state.ended.count < self.limit else { return }
            state.ended.insert(id)
            state.ends.append((id, end))
        }
    }

    /// Whether a connection with this id has ended, as far as ids are remembered.
    func hasEnded(_ id: String) -> Bool { self.state.withLock { $0.ended.contains(id) } }

    /// Removes the offers that no client used in time, and forgets ended ids.
    func sweep(now: Milliseconds) {
        self.state.withLock { state in
            while let first = state.ends.first, first.at <= now {
                state.ends.removeFirst()
                state.ended.remove(first.id)
                if case .offer = state.entries[first.id] { state.remove(first.id) }
            }
        }
    }
}

/// Hub metrics, each created once.
enum SignalRMetrics {
    /// Negotiations and connections refused because the node was full, their user had too many
    /// without a handshake, or their id was taken.
    static let refused = Counter(label: "carillon.signalr.refused")
    /// Pauses in reading a WebSocket because too many calls of its client waited.
    static let paused = Counter(label: "carillon.signalr.paused")
}
