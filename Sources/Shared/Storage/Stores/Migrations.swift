// Carillon · Migrations.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Logging

/// The numbered SQL files, applied in order and once.
package enum Migrations {
    struct Migration {
        let number: Int
        let name: String
        let script: [UInt8]
    }

    static let all: [Migration] = [
        Migration(number: 1, name: "initial", script: PackageResources.V0001_initial_sql),
        Migration(number: 2, name: "people", script: PackageResources.V0002_people_sql),
        Migration(number: 3, name: "token_revocations", script: PackageResources.V0003_token_revocations_sql),
        Migration(number: 4, name: "cancellations", script: PackageResources.V0004_cancellations_sql),
        Migration(number: 5, name: "outbox", script: PackageResources.V0005_outbox_sql),
        Migration(number: 6, name: "broadcasts", script: PackageResources.V0006_broadcasts_sql),
        Migration(number: 7, name: "schedules", script: PackageResources.V0007_schedules_sql),
        Migration(number: 8, name: "webhooks", script: PackageResources.V0008_webhooks_sql),
        Migration(number: 9, name: "retention", script: PackageResources.V0009_retention_sql),
        Migration(number: 10, name: "decisions", script: PackageResources.V0010_decisions_sql),
        Migration(number: 11, name: "digests", script: PackageResources.V0011_digests_sql),
        Migration(number: 12, name: "email", script: PackageResources.V0012_email_sql),
        Migration(number: 13, name: "statistics", script: PackageResources.V0013_statistics_sql),
        Migration(number: 14, name: "held_follow_ups", script: PackageResources.V0014_held_follow_ups_sql),
        Migration(number: 15, name: "digest_details", script: PackageResources.V0015_digest_details_sql),
        Migration(number: 16, name: "inbox_begun", script: PackageResources.V0016_inbox_begun_sql),
        Migration(number: 17, name: "email_set", script: PackageResources.V0017_email_set_sql),
        Migration(number: 18, name: "critical_follow_ups", script: PackageResources.V0018_critical_follow_ups_sql),
        Migration(number: 19, name: "device_age", script: PackageResources.V0019_device_age_sql),
        Migration(number: 20, name: "epoch", script: PackageResources.V0020_epoch_sql),
        Migration(number: 21, name: "sent_device", script: PackageResources.V0021_sent_device_sql),
        Migration(number: 22, name: "switched_off_devices", script: PackageResources.V0022_switched_off_devices_sql),
        Migration(number: 23, name: "repair", script: PackageResources.V0023_repair_sql),
        Migration(number: 24, name: "opened", script: PackageResources.V0024_opened_sql),
    ]

    /// What a database needs that only has an outbox to be relayed; it may be run again.
    package static var outboxScript: String {
        """
        BEGIN;
        CREATE SCHEMA IF NOT EXISTS carillon;

        \(String(decoding: PackageResources.V0005_outbox_sql, as: UTF8.self))
        COMMIT;
        """
    }

    /// The advisory lock under which migrations are applied: "carillon" in ASCII.
    private static let lock: Int64 = 0x6361_7269_6C6C_6F6E

    /// For how long a migration waits for one lock, and whoever comes after it waits behind it.
    private static let lockWait = "2s"
    /// In seconds.
    private static let longestPause = 30

    /// Brings the database to the newest state; does nothing where it is there already.
    ///
    /// Each migration is one transaction; several processes may call this at once. One that does not get a lock soon lets
    /// those behind it pass, and is tried again after pauses that grow.
    ///
    /// - Parameter patience: for how long each is tried again.
    /// - Returns: the names of those that were applied now.
    /// - Throws: ``PostgresError``; with SQLSTATE 55P03 or 40P01 and who is in the way if patience has run out.
    @discardableResult
    package static func apply(
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
            var names: [String] = []
            for migration in Self.all where !applied.contains(String(migration.number)) {
                try Self.apply(migration, on: connection, patience: patience, logger: logger)
                names.append("\(migration.number) \(migration.name)")
                logger.info("migration applied", metadata: ["migration.name": "\(migration.name)"])
            }
            try InboxPart.check(connection)
            return names
        }
    }

    private static func apply(
        _ migration: Migration,
        on connection: BlockingConnection,
        patience: Duration,
        logger: Logger
    ) throws(PostgresError) {
        let name = "\(migration.number) \(migration.name)"
        let end = ContinuousClock.now + patience
        var pause = 1
        while true {
            do throws(PostgresError) {
                return try connection.execute(
                    """
                    BEGIN;
                    SET LOCAL lock_timeout = '\(Self.lockWait)';
                    \(String(decoding: migration.script, as: UTF8.self));
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
                        .server, "migration \(name) did not get its locks in \(patience), as of \(blocker)",
                        sqlState: error.sqlState)
                }
                logger.warning(
                    "migration waits for a lock",
                    metadata: ["migration.name": "\(name)", "reason": "\(blocker)"]
                )
                // Whoever holds a lock tells nobody when it lets go, but for those that queue for it.
                try connection.execute("SELECT pg_sleep(\(pause))")
                pause = min(pause * 2, Self.longestPause)
            }
        }
    }

    /// Who is most likely in a migration's way: the oldest transaction of others that holds a lock on a table of ours.
    ///
    /// A role that may not see when others' began sees that they are there.
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

    /// Applies the migrations as soon as the database can be reached, however long that takes.
    ///
    /// - Throws: what the database says against a migration.
    package static func applyWhenReachable(to pool: PostgresPool, logger: Logger) async throws {
        while true {
            do {
                try await self.apply(to: pool, logger: logger)
                return
            } catch let error as PostgresError where error.code != .server {
                logger.warning("waiting for the database", metadata: ["error": "\(error)"])
                // PostgreSQL tells nobody when it is back.
                try await Task.sleep(for: .seconds(1))
            }
        }
    }
}
