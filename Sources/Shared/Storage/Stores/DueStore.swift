// Carillon · DueStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Finds when the work in PostgreSQL is next due, for all kinds in one statement.
package struct DueStore: Sendable {
    /// The first moment of each kind of work; nil if none waits.
    package struct Moments: Sendable, Equatable {
        /// One for each lane, by rank.
        package let schedules: [Timestamp?]
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
        let lanes = Lane.allCases.count
        return Moments(
            schedules: try (0..<lanes).map { (lane) throws(PostgresError) in try row.optionalTimestamp(lane) },
            followUp: try row.optionalTimestamp(lanes),
            digest: try row.optionalTimestamp(lanes + 1),
            replay: try row.optionalTimestamp(lanes + 2),
            hasBroadcast: try row.bool(lanes + 3))
    }

    /// Each part reads the first row of an index.
    private static let next = """
        SELECT \(Self.lanes),
            (SELECT min(due_at) FROM carillon.follow_ups),
            (SELECT min(due_at) FROM carillon.digests),
            (SELECT min(replay_at) FROM carillon.dead_letters),
            EXISTS (SELECT FROM carillon.broadcasts WHERE state IN ('counting', 'expanding', 'cancelling'))
        """

    /// Jobs and pages of broadcasts have an index each.
    private static let lanes = Lane.allCases.map { lane -> String in
        let kinds = [ScheduleSQL.isJob, ScheduleSQL.isPage].map { kind in
            "(SELECT min(wake_at) FROM carillon.schedules WHERE lane = \(lane.rank) AND \(kind))"
        }
        return "least(\(kinds.joined(separator: ", ")))"
    }.joined(separator: ", ")
}
