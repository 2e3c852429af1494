// Carillon · EpochWatch.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Synchronization

/// SQL about inbox versions and their epoch.
///
/// A restore only raises the base. No inbox is written; each is read as if it had been raised too.
enum EpochSQL {
    /// The least version of every inbox.
    static let base = "(SELECT e.base FROM carillon.epoch e WHERE e.singleton)"

    /// The version of an inbox, of a table called `alias`.
    static func version(of alias: String) -> String { "greatest(\(alias).version, \(Self.base))" }

    /// Clients below it start afresh, so those of an earlier epoch do.
    static func floor(of alias: String) -> String { "greatest(\(alias).floor, \(Self.base))" }
}

/// Begins a new epoch of inbox versions when a new connection finds that the database went back to
/// an earlier moment.
package final class EpochWatch: Sendable {
    private struct State {
        /// The base that the last connection found.
        var base: String?
        var changed: @Sendable () -> Void = {}
    }

    /// No such function, schema or table: the migration has not run yet.
    private static let unknown: Set<String> = ["42883", "3F000", "42P01"]

    private let state = Mutex(State())

    package init() {}

    /// Has each connection of a pool compared before anything else runs on it.
    package func watch(_ configuration: inout PostgresConfiguration) {
        configuration.prepare = { connection throws(PostgresError) in try self.compare(connection) }
    }

    /// Calls `body` when a connection finds another epoch than the one before it did, on the thread
    /// that opens connections.
    package func onChange(_ body: @escaping @Sendable () -> Void) {
        self.state.withLock { $0.changed = body }
    }

    private func compare(_ connection: BlockingConnection) throws(PostgresError) {
        let base: String?
        do throws(PostgresError) {
            base = try connection.query("SELECT carillon.current_epoch()").first
        } catch  where error.sqlState.map({ Self.unknown.contains($0) }) ?? false {
            return
        }
        let changed = self.state.withLock { state in
            let isOther = state.base != nil && state.base != base
            state.base = base
            return isOther ? state.changed : {}
        }
        changed()
    }
}
