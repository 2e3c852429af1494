// Carillon · RedisClusterMap.swift
// SPDX-License-Identifier: Apache-2.0

/// The masters of a cluster, and the slots of each.
struct RedisClusterMap: Sendable, Equatable {
    private(set) var servers: [RedisAddress.Server] = []
    /// The index of each slot's master in ``servers``, plus one; 0 for none.
    private var owners = [UInt16](repeating: 0, count: RedisSlot.count)

    init() {}

    /// Reads a reply to CLUSTER SLOTS.
    ///
    /// - Parameter asked: the server that answered, whose host stands for one that is left out.
    /// - Throws: ``RedisError`` with code `unexpectedReply`, or the server's error.
    init(_ reply: RedisReply, from asked: RedisAddress.Server) throws(RedisError) {
        guard var cursor = try reply.cursor(), let count = try cursor.array() else {
            throw RedisError(.unexpectedReply, "expected the slots of a cluster")
        }
        for _ in 0..<count {
            let parts = try cursor.array() ?? 0
            let first = try cursor.integer()
            let last = try cursor.integer()
            guard parts >= 3, first >= 0, first <= last, last < RedisSlot.count, let fields = try cursor.array(),
                fields >= 2
            else { throw RedisError(.unexpectedReply, "expected a range of slots and its master") }
            let host = try cursor.string() ?? ""
            let port = try cursor.integer()
            for _ in 2..<fields { try cursor.skip() }
            for _ in 3..<parts { try cursor.skip() }
            let server = try Self.server(host: host, port: port, from: asked)
            for slot in Int(first)...Int(last) { self.move(slot, to: server) }
        }
    }

    /// Returns the server that a cluster names; an empty host stands for the one that was asked.
    static func server(
        host: String,
        port: Int64,
        from asked: RedisAddress.Server
    ) throws(RedisError) -> RedisAddress.Server {
        guard (1...65_535).contains(port) else { throw RedisError(.unexpectedReply, "expected a port") }
        return RedisAddress.Server(host: host.isEmpty || host == "?" ? asked.host : host, port: Int(port))
    }

    /// The master of a slot; nil if none is known.
    func owner(of slot: Int) -> RedisAddress.Server? {
        let number = Int(self.owners[slot])
        return number > 0 ? self.servers[number - 1] : nil
    }

    /// Whether a slot with an owner in `former` no longer belongs to it.
    func hasOtherOwners(than former: RedisClusterMap) -> Bool {
        guard self != former else { return false }
        return (0..<RedisSlot.count).contains { slot in
            guard let owner = former.owner(of: slot) else { return false }
            return self.owner(of: slot) != owner
        }
    }

    /// Records that a slot belongs to `server`.
    mutating func move(_ slot: Int, to server: RedisAddress.Server) {
        let index = self.servers.firstIndex(of: server) ?? self.servers.endIndex
        if index == self.servers.endIndex { self.servers.append(server) }
        self.owners[slot] = UInt16(truncatingIfNeeded: index + 1)
    }
}

/// A redirect by a server of a cluster that does not run the command itself.
enum RedisRedirect: Equatable {
    /// The slot belongs to another master.
    case moved(slot: Int, RedisAddress.Server)
    /// The slot is on its way to another master, which has this key.
    case ask(RedisAddress.Server)
    /// The slot is on its way, and the command's keys lie on both sides.
    case tryAgain

    /// Reads an error; nil if it is none of these.
    init?(_ error: RedisError, from asked: RedisAddress.Server) {
        let words = (error.message ?? "").split(separator: " ")
        switch words.first {
        case "TRYAGAIN": self = .tryAgain
        case "MOVED", "ASK":
            guard words.count == 3, let slot = Int(words[1]), (0..<RedisSlot.count).contains(slot),
                let colon = words[2].lastIndex(of: ":"),
                let port = Int64(words[2][words[2].index(after: colon)...]),
                let server = try? RedisClusterMap.server(host: String(words[2][..<colon]), port: port, from: asked)
            else { return nil }
            self = words[0] == "MOVED" ? .moved(slot: slot, server) : .ask(server)
        default: return nil
        }
    }
}
