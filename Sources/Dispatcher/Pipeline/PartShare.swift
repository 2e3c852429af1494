// Carillon · PartShare.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage
import Synchronization

/// The parts of a cluster that this dispatcher reads and looks after.
///
/// Each part has two dispatchers; every dispatcher derives the same two from the names of all that
/// hold their lease. So the polling of Redis grows with the parts, not with the dispatchers, and
/// one of the two may die. Correctness does not depend on the number: a part may have more for a
/// while. A single Redis is one part, which all dispatchers share.
final class PartShare: Sendable {
    /// The number of dispatchers of each part.
    static let width = 2
    /// How long a former part is remembered: long enough to find the entries of a lost reply, even
    /// after the process was suspended.
    ///
    /// It is remembered for longer while its streams cannot be read.
    private static let memory: Duration = .seconds(300)

    private struct State {
        var own: Set<Int>
        /// Former parts, with the time at which this dispatcher gave them up or could read their
        /// streams again; replies from these streams may have been lost.
        var former: [Int: ContinuousClock.Instant] = [:]
        /// Parts in which the last look did not rule out lost entries.
        var unclear: Set<Int> = []
        var isInformed = false
        var isLeaving = false
        /// Other dispatchers' parts in which this one has set proof deadlines.
        var visited: Set<Int> = []
    }

    private let keys: Keyspace
    private let name: String
    private let all: [Keyspace]
    private let instant: @Sendable () -> ContinuousClock.Instant
    private let state: Mutex<State>

    /// Creates a share of all parts, until the other dispatchers are known.
    ///
    /// - Parameter instant: a monotonic clock.
    init(_ keys: Keyspace, name: String, instant: @escaping @Sendable () -> ContinuousClock.Instant = { .now }) {
        self.keys = keys
        self.name = name
        self.instant = instant
        self.all = keys.parts
        self.state = Mutex(State(own: Set(self.all.indices)))
    }

    /// Takes the names of all dispatchers that hold their lease.
    func update(_ dispatchers: [String]) {
        guard self.keys.isSpread else { return }
        let names = Set(dispatchers).union([self.name])
        let own = Set(self.all.indices.filter { Self.owners(of: $0, among: names).contains(self.name) })
        let now = self.instant()
        self.state.withLock { state in
            // Nothing was read before the first update.
            if state.isInformed {
                for part in state.own.subtracting(own) { state.former[part] = now }
                // It may have set deadlines that others find only at their next look.
                state.visited.formUnion(state.own)
            }
            state.isInformed = true
            let unclear = state.unclear
            state.former = state.former.filter { part, since in
                !own.contains(part) && (unclear.contains(part) || now - since < Self.memory)
            }
            state.own = own
            state.visited.subtract(own)
        }
    }

    /// Returns the dispatchers of a part: those whose name, with the part's number, has the highest
    /// hash (rendezvous hashing).
    static func owners(of part: Int, among names: Set<String>) -> [String] {
        let ranked = names.map { (hash: FNV1a.hash64("\(part) \($0)".utf8), name: $0) }
        return ranked.sorted { ($0.hash, $0.name) > ($1.hash, $1.name) }.prefix(Self.width).map(\.name)
    }

    /// Whether this dispatcher gives its parts to others, as it shuts down.
    var isLeaving: Bool { self.state.withLock { $0.isLeaving } }

    /// Leaves the parts to others from now on.
    func leave() { self.state.withLock { $0.isLeaving = true } }

    /// The parts of this dispatcher.
    var parts: [Keyspace] { self.state.withLock { state in state.own.sorted().map { self.all[$0] } } }

    /// The parts whose streams this dispatcher reads, or did until lately.
    var knownParts: [Keyspace] {
        self.state.withLock { state in state.own.union(state.former.keys).sorted().map { self.all[$0] } }
    }

    /// Whether this dispatcher reads the streams of a part; all dispatchers read streams outside
    /// the parts.
    func owns(_ keys: Keyspace) -> Bool {
        guard let part = keys.index else { return true }
        return self.state.withLock { $0.own.contains(part) }
    }

    /// Records a look at a stream of a part.
    ///
    /// - Parameter isClear: whether no entry of this dispatcher was lost in the stream.
    func recordLook(in keys: Keyspace, isClear: Bool) {
        guard let part = keys.index else { return }
        let now = self.instant()
        self.state.withLock { state in
            guard isClear else {
                state.unclear.insert(part)
                return
            }
            guard state.unclear.remove(part) != nil, state.former[part] != nil else { return }
            // Its other streams may not have been looked at yet.
            state.former[part] = now
        }
    }

    // MARK: Proofs

    /// Records that this dispatcher has set deadlines for these users.
    func visit(_ users: some Sequence<String>) {
        guard self.keys.isSpread else { return }
        self.watch(users.compactMap { self.keys.part(of: $0).index })
    }

    /// Looks after the deadlines of these shards, also if others own their parts.
    func watch(_ shards: [Int]) {
        guard self.keys.isSpread else { return }
        self.state.withLock { $0.visited.formUnion(Set(shards).subtracting($0.own)) }
    }

    /// Returns the shards of deadlines that this dispatcher looks after, and forgets those outside
    /// its parts.
    ///
    /// Call ``watch(_:)`` for those that still have deadlines. Visits in between are remembered.
    func takeShards() -> [Int] {
        guard self.keys.isSpread else { return Array(0..<self.keys.proofShards) }
        return self.state.withLock { state in
            defer { state.visited = [] }
            return state.own.union(state.visited).sorted()
        }
    }
}
