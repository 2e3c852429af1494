// Carillon · PostgresConfiguration.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// How a pool reaches PostgreSQL and what it allows.
package struct PostgresConfiguration: Sendable {
    /// libpq's own syntax: a URI or `key=value` pairs.
    package var connectionString: String
    /// The name that `pg_stat_activity` shows.
    package var applicationName: String
    package var connections = 4
    /// How many calls one connection carries at once, pipelined.
    package var pipelineDepth = 16
    /// How many calls may wait for a connection; more are refused with `overloaded`.
    package var maximumWaiting = 4_096
    /// How long a call may take, waiting included.
    ///
    /// The server gives a statement up a little earlier.
    package var timeout: Duration = .seconds(10)
    package var connectTimeout: Duration = .seconds(5)
    /// Server settings of each session, by name.
    package var sessionSettings: [(name: String, value: String)] = []
    /// Runs on each new connection before anything else does; an error refuses the connection.
    package var prepare: (@Sendable (BlockingConnection) throws(PostgresError) -> Void)?
    package var reconnect = Backoff(base: .milliseconds(50), limit: .seconds(2))

    package init(connectionString: String, applicationName: String) {
        self.connectionString = connectionString
        self.applicationName = applicationName
    }
}
