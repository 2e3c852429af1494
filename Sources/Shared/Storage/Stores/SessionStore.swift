// Carillon · SessionStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The sessions of Carillon's processes on the PostgreSQL server.
package struct SessionStore: Sendable {
    /// A session that was ended.
    package struct Ended: Sendable, Equatable {
        /// The id of the server's process.
        package let process: Int32
        /// The application name, such as `carillon-dispatcher`.
        package let program: String
        /// The seconds since its transaction began.
        package let seconds: Int64
    }

    /// How long a session may wait for its client within a transaction.
    ///
    /// A process that runs sends its statements without a pause, and none waits longer than this
    /// between two of them.
    package static let longestWait: Duration = .seconds(30)

    let pool: PostgresPool

    /// Ends the sessions of Carillon that wait for their clients in the middle of a transaction.
    ///
    /// Their processes have stalled, and the transactions would keep their locks: before version
    /// 17, PostgreSQL has no time limit for the rest of a pipeline, and the kernel of a stopped
    /// process answers keepalives.
    ///
    /// - Parameter limit: ends only those whose last message began longer ago.
    package func endStalled(after limit: Duration) async throws(PostgresError) -> [Ended] {
        var ended: [Ended] = []
        for row in try await self.pool.query(Self.end, .int8(limit.inMicroseconds)) {
            guard try row.bool(3) else { continue }
            ended.append(Ended(process: try row.int4(0), program: try row.text(1), seconds: try row.int8(2)))
        }
        return ended
    }

    /// Within a pipeline a session is `active`, and `state_change` is when its last message began.
    ///
    /// Ends the sessions in the list of columns, because PostgreSQL checks conditions on the view
    /// in any order. A pooler may add a host to the application name.
    ///
    /// $1: microseconds. Rows: process, application name, seconds, whether it was ended.
    private static let end = """
        SELECT a.pid, a.application_name, extract(epoch FROM clock_timestamp() - a.xact_start)::int8,
            pg_terminate_backend(a.pid)
        FROM pg_stat_activity a
        WHERE a.datname = current_database() AND a.usename = current_user AND a.application_name LIKE 'carillon-%'
            AND a.xact_start IS NOT NULL AND a.wait_event_type = 'Client'
            AND a.state_change < now() - $1 * interval '1 microsecond'
        """
}
