// Carillon · Migrations.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Logging

/// Numbered SQL scripts, each applied once and in order.
package enum Migrations {
    /// A numbered script.
    package struct Migration: Sendable {
        let number: Int
        let name: String
        let script: String

        /// The name in logs and output, such as `1 schema`.
        var label: String { "\(self.number) \(self.name)" }
    }

    /// All migrations; a released one never changes.
    ///
    /// Only `outbox.sql` changes: it can run again, in the last migration that contains it.
    package static let all = [
        Migration(
            number: 1, name: "schema",
            script: String(decoding: PackageResources.V0001_schema_sql + PackageResources.outbox_sql, as: UTF8.self))
    ]

    /// A repeatable script for a database that has only an outbox to relay.
    package static var outboxScript: String {
        """
        BEGIN;
        CREATE SCHEMA IF NOT EXISTS carillon;

        \(String(decoding: PackageResources.outbox_sql, as: UTF8.self))
        COMMIT;
        """
    }

    /// The advisory lock under which migrations are applied: "carillon" in ASCII.
    private static let lock: Int64 = 0x6361_7269_6C6C_6F6E

    /// How long a migration waits for one lock; later transactions queue behind it meanwhile.
    private static let lockWait = "2s"
    /// In seconds.
    private static let longestPause = 30

    /// Applies the migrations that the database lacks.
    ///
    /// Each migration is one transaction. Several processes may call this at once. A migration that
    /// does not get a lock soon lets others pass, and retries with growing pauses.
    ///
    /// - Parameter patience: how long each migration is retried.
    /// - Returns: number and name of each that was applied now.
    /// - Throws: ``PostgresError``; after `patience` with SQLSTATE 55P03 or 40P01 and the blocker.
    @discardableResult
    package static func apply(
        _ migrations: [Migration] = Self.all,
        to pool: PostgresPool,
        logger: Logger,
        patience: Duration = .seconds(600)
    ) async throws -> [String] {
        try await pool.withScriptConnection { connection in
            try connection.execute("SET statement_timeout = 0; SELECT pg_advisory_lock(\(Self.lock))")
            try connection.execute(
                """
                SET client_min_messages = warning;
                CREATE SCHEMA IF NOT EXISTS carillon;
                CREATE TABLE IF NOT EXISTS carillon.schema_migrations (
                    number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());
                """
            )
            let applied = Set(try connection.query("SELECT number FROM carillon.schema_migrations"))
            let missing = migrations.filter { !applied.contains(String($0.number)) }
            for migration in missing {
                try Self.apply(migration, on: connection, patience: patience, logger: logger)
                logger.info("migration applied", metadata: ["migration.name": "\(migration.name)"])
            }
            return missing.map(\.label)
        }
    }

    private static func apply(
        _ migration: Migration,
        on connection: BlockingConnection,
        patience: Duration,
        logger: Logger
    ) throws(PostgresError) {
        let end = ContinuousClock.now + patience
        var pause = 1
        while true {
            do throws(PostgresError) {
                return try connection.execute(
                    """
                    BEGIN;
                    SET LOCAL lock_timeout = '\(Self.lockWait)';
                    \(migration.script);
                    INSERT INTO carillon.schema_migrations (number, name)
                        VALUES (\(migration.number), '\(migration.name)');
                    COMMIT;
                    """
                )
            } catch  where error.sqlState == "55P03" || error.sqlState == "40P01" {
                try connection.execute("ROLLBACK")
                let blocker = try connection.query(Self.oldestTransaction).first ?? "a transaction that has ended"
                guard ContinuousClock.now < end else {
                    throw PostgresError(
                        .server, "migration \(migration.label) did not get its locks in \(patience), as of \(blocker)",
                        sqlState: error.sqlState)
                }
                logger.warning(
                    "migration waits for a lock",
                    metadata: ["migration.name": "\(migration.label)", "reason": "\(blocker)"]
                )
                // PostgreSQL signals a released lock only to those that queue for it.
                try connection.execute("SELECT pg_sleep(\(pause))")
                pause = min(pause * 2, Self.longestPause)
            }
        }
    }

    /// The likely blocker: the oldest other transaction that holds a lock on a table of Carillon.
    ///
    /// A role without the right to see when transactions began still sees that they exist.
    private static let oldestTransaction = """
        SELECT format('%s (process %s, in a transaction for %s)', coalesce(nullif(a.application_name, ''), 'a client'),
            a.pid, coalesce(date_trunc('second', clock_timestamp() - a.xact_start)::text, 'an unknown time'))
        FROM pg_stat_activity a
        WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND EXISTS (
            SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
            JOIN pg_namespace s ON s.oid = c.relnamespace AND s.nspname = 'carillon'
            JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
            WHERE l.pid = a.pid AND l.granted
        )
        ORDER BY a.xact_start NULLS FIRST LIMIT 1
        """

    /// Applies the migrations as soon as the database can do it, however long that takes.
    ///
    /// - Throws: an error of the database that is not transient.
    package static func applyWhenReachable(to pool: PostgresPool, logger: Logger) async throws {
        while true {
            do {
                try await self.apply(to: pool, logger: logger)
                return
            } catch let error as PostgresError where error.isTransient {
                logger.warning("database unavailable; retrying every second", metadata: ["error": "\(error)"])
                // A database does not tell when it is available.
                try await Task.sleep(for: .seconds(1))
            }
        }
    }
}

extension Migrations {
    /// The difference between a database and this release.
    package struct State: Sendable, Equatable {
        /// Number and name of each migration that is not applied.
        package let missing: [String]
        /// Numbers of applied migrations that this release does not know.
        package let unknown: [Int]
    }

    /// Compares a database with this release; changes nothing.
    package static func state(
        of pool: PostgresPool,
        comparedWith migrations: [Migration] = Self.all
    ) async throws(PostgresError) -> State {
        let known = try await pool.query("SELECT to_regclass('carillon.schema_migrations') IS NOT NULL")
        var applied: Set<Int> = []
        if try known.first?.bool(0) == true {
            for row in try await pool.query("SELECT number FROM carillon.schema_migrations") {
                applied.insert(Int(try row.int4(0)))
            }
        }
        return State(
            missing: migrations.filter { !applied.contains($0.number) }.map(\.label),
            unknown: applied.subtracting(migrations.map(\.number)).sorted()
        )
    }
}
