// Carillon · EpochWatch.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Synchronization

/// SQL about inbox versions and their epoch.
///
/// A restore only raises the base. No inbox is written; each is read as if it had been raised.
enum EpochSQL {
    /// The least version of every inbox.
    static let base = "(SELECT e.base FROM carillon.epoch e WHERE e.singleton)"

    /// The version of an inbox, of a table called `alias`.
    static func version(of alias: String) -> String { "greatest(\(alias).version, \(Self.base))" }

    /// Clients below this version start over, as do those of an earlier epoch.
    static func floor(of alias: String) -> String { "greatest(\(alias).floor, \(Self.base))" }
}

/// Begins a new epoch of inbox versions when a new connection finds that the database went back to
/// an earlier state.
package final class EpochWatch: Sendable {
    private struct State {
        /// The base that the last connection found.
        var base: String?
        var changed: @Sendable () -> Void = {}
    }

    /// SQLSTATEs for a missing function, schema or table: the migrations have not run yet.
    private static let unknown: Set<String> = ["42883", "3F000", "42P01"]

    private let state = Mutex(State())

    package init() {}

    /// Compares the epoch on each connection of a pool before its first statement.
    package func watch(_ configuration: inout PostgresConfiguration) {
        configuration.prepare = { connection throws(PostgresError) in try self.compare(connection) }
    }

    /// Calls `body`, on the thread that opens connections, when a connection finds another epoch
    /// than the previous one.
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
