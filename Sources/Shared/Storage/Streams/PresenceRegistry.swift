// Carillon · PresenceRegistry.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Synchronization

/// The connections of users and the nodes that hold them.
///
/// A user's hash has one field per connection: `1 <node> <dialect> <state> <since in ms>`, followed
/// by the time of the last state change, if any. Fields count only while their node holds its
/// lease, so they need no refresh of their own. The hash expires, because a gateway that was killed
/// leaves its fields behind.
package final class PresenceRegistry: Sendable {
    private static let livenessAge: Duration = .seconds(1)
    /// The time from a registration or check until a user's hash expires.
    ///
    /// Much longer than the five minutes between the checks of a gateway, some of which may fail.
    static let lifetime: Duration = .seconds(86_400)

    let live: Live
    // When a node's lease was last seen held. Bounded by the number of nodes; stale entries are
    // dropped.
    private let heldAt = Mutex<[String: ContinuousClock.Instant]>([:])

    package init(_ live: Live) {
        self.live = live
    }

    /// Registers connections in one round trip.
    ///
    /// - Returns: whether each was registered; a server of a cluster that is away fails only its
    ///   own connections, and at once.
    /// - Throws: if none was.
    package func register(
        _ entries: [(user: String, connection: ConnectionPresence)]
    ) async throws(RedisError) -> [Bool] {
        var batch = RedisBatch()
        for (user, connection) in entries {
            let key = RedisArgument.text(self.live.keys.presence(user))
            batch.append("HSET", key, .text(connection.connection), .text(Self.text(connection)))
            batch.append("PEXPIRE", key, .integer(Self.lifetime.inMilliseconds))
        }
        let replies = try await self.live.connection.send(batch, isPatient: false)
        let areRegistered = entries.indices.map { (try? replies[2 * $0].checked()) != nil }
        if !areRegistered.contains(true), let reply = replies.first { _ = try reply.checked() }
        return areRegistered
    }

    /// Changes the state of connections in one round trip; does not add back those that have left.
    ///
    /// - Throws: if any was not changed; a server of a cluster that is away fails only its own
    ///   connections, and at once.
    package func setStates(
        _ entries: [(user: String, connection: String, state: ConnectionPresence.State, since: Timestamp)]
    ) async throws(RedisError) {
        var batch = RedisBatch()
        for (user, connection, state, since) in entries {
            batch.append(
                StreamScripts.setPresenceState,
                keys: [.text(self.live.keys.presence(user))],
                arguments: [.text(connection), .text(state.rawValue), .integer(since.milliseconds)]
            )
        }
        try await self.live.connection.run(batch, isPatient: false)
    }

    /// Removes connections in one round trip.
    ///
    /// - Returns: whether each is gone; false if its server in a cluster is away, which fails only
    ///   the connections of that server, and at once.
    package func remove(_ entries: [(user: String, connection: String)]) async throws(RedisError) -> [Bool] {
        var batch = RedisBatch()
        for (user, connection) in entries {
            batch.append("HDEL", .text(self.live.keys.presence(user)), .text(connection))
        }
        var areGone: [Bool] = []
        for reply in try await self.live.replies(batch) {
            let isAway = self.live.isOfAbsentMaster(reply)
            if !isAway { _ = try reply.checked() }
            areGone.append(!isAway)
        }
        return areGone
    }

    /// Returns the presence of each user, in order, and removes connections of dead nodes.
    ///
    /// - Parameter isPatient: whether to wait for a server of a cluster that is away; if not, the
    ///   call fails at once.
    package func lookUp(_ users: [String], isPatient: Bool = true) async throws(RedisError) -> [Presence] {
        var batch = RedisBatch()
        for user in users { batch.append("HGETALL", .text(self.live.keys.presence(user))) }
        var found: [[ConnectionPresence]] = []
        found.reserveCapacity(users.count)
        var nodes: Set<String> = []
        for reply in try await self.live.connection.send(batch, isPatient: isPatient) {
            let connections = try Self.connections(reply)
            for connection in connections { nodes.insert(connection.node) }
            found.append(connections)
        }
        let held = try await self.held(nodes)
        var void: [(user: String, connection: ConnectionPresence)] = []
        let presences = zip(users, found).map { user, connections in
            var live = connections
            if !connections.allSatisfy({ held.contains($0.node) }) {
                live.removeAll { !held.contains($0.node) }
                for connection in connections where !held.contains(connection.node) {
                    void.append((user, connection))
                }
            }
            return live.isEmpty ? Presence.offline : .online(live)
        }
        // The lookup succeeds without this write, which Redis may refuse, for example while it
        // cannot save to disk; the next lookup tries again.
        if !void.isEmpty { _ = try? await self.forget(void) }
        return presences
    }

    /// Removes connections of dead nodes unless they have registered again since they were read: a
    /// node that was unreachable returns and registers its open sockets.
    func forget(_ entries: [(user: String, connection: ConnectionPresence)]) async throws(RedisError) {
        var batch = RedisBatch()
        for (user, connection) in entries {
            batch.append(
                StreamScripts.forgetPresence,
                keys: [.text(self.live.keys.presence(user))],
                arguments: [.text(connection.connection), .text(Self.text(connection))]
            )
        }
        try await self.live.connection.run(batch)
    }

    /// Makes the next lookup check the node's lease again.
    package func forgetLease(of node: String) {
        self.heldAt.withLock { $0[node] = nil }
    }

    /// The nodes that hold their lease, or held it within the last second.
    ///
    /// Only held leases are cached: a returning node registers its sockets at once, and a cached
    /// miss would remove them. A lease whose master is away counts as held, because users on other
    /// masters are still online.
    private func held(_ nodes: Set<String>) async throws(RedisError) -> Set<String> {
        let now = ContinuousClock.now
        let known = self.heldAt.withLock { heldAt in
            nodes.filter { node in heldAt[node].map { now - $0 < Self.livenessAge } ?? false }
        }
        let unknown = nodes.subtracting(known).sorted()
        guard !unknown.isEmpty else { return known }
        let areHeld = try await Lease.areHeld(
            unknown.map { self.live.keys.nodeLease($0) }, connection: self.live.connection)
        let found = zip(unknown, areHeld).compactMap { node, isHeld in isHeld ? node : nil }
        self.heldAt.withLock { heldAt in
            if heldAt.count > 4_096 { heldAt = heldAt.filter { now - $0.value < Self.livenessAge } }
            for node in found { heldAt[node] = now }
        }
        return known.union(found)
    }

    /// Returns each user's registered connections of a node, in the order of the users; nil if the
    /// user's master in a cluster is away.
    ///
    /// Does not check the node's lease, and removes nothing.
    ///
    /// - Parameter renews: whether to renew the lifetime of the users' hashes, which is a write.
    package func connections(
        of users: [String],
        on node: String,
        renews: Bool
    ) async throws(RedisError) -> [[String]?] {
        var batch = RedisBatch()
        for user in users { batch.append("HGETALL", .text(self.live.keys.presence(user))) }
        if renews {
            let lifetime = RedisArgument.integer(Self.lifetime.inMilliseconds)
            for user in users { batch.append("PEXPIRE", .text(self.live.keys.presence(user)), lifetime) }
        }
        var found: [[String]?] = []
        for reply in try await self.live.replies(batch).prefix(users.count) {
            if self.live.isOfAbsentMaster(reply) {
                found.append(nil)
            } else {
                found.append(try Self.connections(reply).filter { $0.node == node }.map(\.connection))
            }
        }
        return found
    }

    private static func text(_ connection: ConnectionPresence) -> String {
        let since = connection.since.milliseconds
        let text = "1 \(connection.node) \(connection.dialect.rawValue) \(connection.state.rawValue) \(since)"
        return connection.stateSince.map { "\(text) \($0.milliseconds)" } ?? text
    }

    private static func connections(_ reply: RedisReply) throws(RedisError) -> [ConnectionPresence] {
        guard var cursor = try reply.cursor(), let count = try cursor.array() else { return [] }
        var connections: [ConnectionPresence] = []
        for _ in 0..<count / 2 {
            let identifier = try cursor.string() ?? ""
            if let connection = Self.read(try cursor.bytes() ?? [], of: identifier) { connections.append(connection) }
        }
        return connections
    }

    /// Reads the text of a connection; nil for a newer gateway's format, whose field is kept.
    private static func read(_ text: ArraySlice<UInt8>, of connection: String) -> ConnectionPresence? {
        var rest = text
        guard rest.takeField() == [UInt8(ascii: "1")], let node = rest.takeField(),
            let dialect = rest.takeField().flatMap({ Dialect(rawValue: String(decoding: $0, as: UTF8.self)) }),
            let state = rest.takeField(),
            let state = ConnectionPresence.State(rawValue: String(decoding: state, as: UTF8.self))
        else { return nil }
        let isInField = { (byte: UInt8) in byte != UInt8(ascii: " ") }
        let since = rest.prefix(while: isInField)
        guard let moment = Self.moment(since) else { return nil }
        return ConnectionPresence(
            connection: connection,
            node: String(decoding: node, as: UTF8.self),
            dialect: dialect,
            state: state,
            since: moment,
            stateSince: Self.moment(rest.dropFirst(since.count + 1).prefix(while: isInField))
        )
    }

    private static func moment(_ milliseconds: ArraySlice<UInt8>) -> Timestamp? {
        Int64(String(decoding: milliseconds, as: UTF8.self)).map { Timestamp(milliseconds: $0) }
    }
}
