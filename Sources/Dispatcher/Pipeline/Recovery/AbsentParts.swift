// Carillon · AbsentParts.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Storage

/// The parts of a cluster whose master is away.
struct AbsentParts: Sendable {
    private let keys: Keyspace
    /// Their ``Keyspace/memory`` keys.
    private var memories: Set<String> = []
    /// The first error; nil if no master is away.
    private(set) var error: RedisError?

    init(_ keys: Keyspace) { self.keys = keys }

    /// Finds the parts of a cluster whose master does not answer; none on a single server.
    ///
    /// Work that needs a master that is away would hold up the rest of its batch.
    ///
    /// - Throws: ``RedisError`` if all masters are away.
    static func find(_ dispatcher: Dispatcher) async throws(RedisError) -> AbsentParts {
        var absent = AbsentParts(dispatcher.keys)
        guard dispatcher.redis.isCluster else { return absent }
        let memories = dispatcher.keys.memories
        var batch = RedisBatch()
        for memory in memories { batch.append("EXISTS", .text(memory)) }
        for (memory, reply) in zip(memories, try await dispatcher.live.replies(batch)) {
            if case .error(let error) = reply, error.isOfAbsentServer { absent.add(memory, error) }
        }
        if let error = absent.error, absent.memories.count == memories.count { throw error }
        return absent
    }

    mutating func add(_ memory: String, _ error: RedisError) {
        self.memories.insert(memory)
        self.error = self.error ?? error
    }

    /// Whether a user's keys are in one of these parts.
    func contains(_ user: String) -> Bool {
        !self.memories.isEmpty && self.memories.contains(self.keys.part(of: user).memory)
    }
}
