// Carillon · DueStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// When the work that waits in PostgreSQL is due, of all kinds in one statement.
package struct DueStore: Sendable {
    /// The first moment of each kind of work; nil if none waits.
    package struct Moments: Sendable, Equatable {
        package let schedule: Timestamp?
        package let followUp: Timestamp?
        package let digest: Timestamp?
        package let replay: Timestamp?
        /// Whether a broadcast is counted, expanded or withdrawn.
        package let hasBroadcast: Bool
    }

    let pool: PostgresPool

    package func next() async throws(PostgresError) -> Moments {
        guard let row = try await self.pool.query(Self.next).first else {
            throw PostgresError(.decoding, "asking what is due returned no row")
        }
        return Moments(
            schedule: try row.optionalTimestamp(0),
            followUp: try row.optionalTimestamp(1),
            digest: try row.optionalTimestamp(2),
            replay: try row.optionalTimestamp(3),
            hasBroadcast: try row.bool(4))
    }

    /// Each part reads the first row of an index.
    private static let next = """
        SELECT least(\(Self.lanes)),
            (SELECT min(due_at) FROM carillon.follow_ups),
            (SELECT min(due_at) FROM carillon.digests),
            (SELECT min(replay_at) FROM carillon.dead_letters),
            EXISTS (SELECT FROM carillon.broadcasts WHERE state IN ('counting', 'expanding', 'cancelling'))
        """

    private static let lanes = Lane.allCases.map { lane in
        "(SELECT min(wake_at) FROM carillon.schedules WHERE lane = \(lane.rank))"
    }.joined(separator: ", ")
}
