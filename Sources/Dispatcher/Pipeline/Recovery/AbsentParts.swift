// Carillon · AbsentParts.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Storage

/// The parts of a cluster whose master is away.
struct AbsentParts: Sendable {
    private let keys: Keyspace
    /// Their ``Keyspace/runNote`` keys.
    private var runNotes: Set<String> = []
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
        let runNotes = dispatcher.keys.runNotes
        var batch = RedisBatch()
        for key in runNotes { batch.append("EXISTS", .text(key)) }
        for (key, reply) in zip(runNotes, try await dispatcher.live.replies(batch)) {
            if case .error(let error) = reply, error.isOfAbsentServer { absent.add(key, error) }
        }
        if let error = absent.error, absent.runNotes.count == runNotes.count { throw error }
        return absent
    }

    mutating func add(_ runNote: String, _ error: RedisError) {
        self.runNotes.insert(runNote)
        self.error = self.error ?? error
    }

    /// Whether a user's keys are in one of these parts.
    func contains(_ user: String) -> Bool {
        !self.runNotes.isEmpty && self.runNotes.contains(self.keys.part(of: user).runNote)
    }
}
