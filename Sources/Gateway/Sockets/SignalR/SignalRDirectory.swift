// Carillon · SignalRDirectory.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import DequeModule
import Protocols
import Synchronization

/// What the ids of a hub name on this node: offers that wait for their client, and connections.
///
/// Bounded: at the limit neither an offer nor a connection is taken.
final class SignalRDirectory: Sendable {
    struct Offer: Sendable {
        let connectionID: String
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
        /// Offers by their end, which comes in the order in which they were made.
        var ends: Deque<(id: String, at: Int64)> = []
    }

    private let limit: Int
    private let state = Mutex(State())
    private let lastNumber = Atomic<UInt64>(0)

    init(limit: Int) {
        self.limit = limit
    }

    /// A number that no other socket or poll of the hub has.
    func nextNumber() -> UInt64 { self.lastNumber.wrappingAdd(1, ordering: .relaxed).newValue }

    /// What an id names for its owner; nil for everyone else.
    func entry(_ id: String, owner: String) -> Entry? {
        let entry = self.state.withLock { $0.entries[id] }
        return entry?.owner == owner ? entry : nil
    }

    /// Whether an id names nothing, for anyone.
    func isFree(_ id: String) -> Bool { self.state.withLock { $0.entries[id] == nil } }

    /// Remembers an offer until `end`, in milliseconds; false if there are too many.
    func add(_ offer: Offer, id: String, until end: Int64) -> Bool {
        self.state.withLock { state in
            guard state.entries.count < self.limit, state.entries[id] == nil else { return false }
            state.entries[id] = .offer(offer)
            state.ends.append((id, end))
            return true
        }
    }

    /// Notes a connection, in place of the offer that it took up; false if the id is another's, or there are too many.
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

    /// Drops the offers that nobody took up.
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
