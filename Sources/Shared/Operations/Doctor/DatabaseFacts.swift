// Carillon · DatabaseFacts.swift
// SPDX-License-Identifier: Apache-2.0

/// The state of PostgreSQL.
struct DatabaseFacts: Sendable, Equatable {
    /// The checks that every PostgreSQL passes or fails.
    static let checks = [
        "postgres version", "postgres encoding", "postgres durability", "postgres connections", "migrations",
    ]

    /// `server_version_num`, such as 150004.
    var version: Int32 = 0
    var connections: Int64 = 0
    var maximumConnections: Int64 = 0
    var syncsToDisk = true
    var encoding = "UTF8"
    /// Standbys that follow this server.
    var standbys: Int64 = 0
    /// `synchronous_commit`.
    var synchronousCommit = "on"
    /// Whether `synchronous_standby_names` names any standby.
    var namesStandbys = false
    /// Whether an audit row of the last day or later is in the default partition.
    var hasStrayAttempts = false
    /// Migrations of this release that are not applied.
    var missing: [String] = []
    /// Applied migrations that this release does not know.
    var unknown: [Int] = []

    /// Returns the findings.
    ///
    /// - Parameter needed: connections of one more process.
    func findings(needed: Int) -> [Finding] {
        [
            self.versionFinding, self.encodingFinding, self.durabilityFinding, self.standbyFinding,
            self.connectionsFinding(needed), self.migrationsFinding, self.auditFinding,
        ].compactMap(\.self)
    }

    private var versionFinding: Finding {
        let text = "\(self.version / 10_000).\(self.version % 10_000)"
        guard self.version >= 140_000 else {
            return Finding(.fail, "postgres version", "\(text) is too old", fix: "use PostgreSQL 15 or later")
        }
        guard self.version >= 150_000 else {
            return Finding(.warn, "postgres version", "\(text) is not tested", fix: "use PostgreSQL 15 or later")
        }
        return Finding(.ok, "postgres version", text)
    }

    private var encodingFinding: Finding {
        guard self.encoding != "UTF8" else { return Finding(.ok, "postgres encoding", self.encoding) }
        return Finding(
            .fail, "postgres encoding", "\(self.encoding) cannot hold all texts",
            fix: "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0")
    }

    private var durabilityFinding: Finding {
        if !self.syncsToDisk {
            return Finding(
                .fail, "postgres durability", "fsync is off: a crash of the machine can corrupt the database",
                fix: "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf()")
        }
        guard self.synchronousCommit == "off" else {
            return Finding(.ok, "postgres durability", "fsync is on, and commits wait for the disk")
        }
        return Finding(
            .warn, "postgres durability", "synchronous_commit is off: a crash loses the latest commits",
            fix: "ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf()")
    }

    private var standbyFinding: Finding? {
        let waitsForStandby = self.namesStandbys && !["local", "off"].contains(self.synchronousCommit)
        if waitsForStandby, self.standbys == 0 {
            return Finding(
                .fail, "postgres standbys", "none connected, and commits wait for one: every write hangs",
                fix: "start a standby; until then ALTER SYSTEM SET synchronous_standby_names = ''; "
                    + "SELECT pg_reload_conf()")
        }
        guard self.standbys > 0 else { return nil }
        let found = "\(self.standbys) connected"
        guard waitsForStandby else {
            return Finding(
                .warn, "postgres standbys", "\(found); commits wait for none, so a failover loses the latest",
                fix: "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'; "
                    + "ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf()")
        }
        return Finding(.ok, "postgres standbys", found)
    }

    private func connectionsFinding(_ needed: Int) -> Finding {
        let found = "\(self.connections) of \(self.maximumConnections); a process takes up to \(needed)"
        let free = self.maximumConnections - self.connections
        guard free >= needed else {
            return Finding(
                .warn, "postgres connections", found,
                fix: "raise max_connections, lower DATABASE_CONNECTIONS, or start fewer processes")
        }
        return Finding(.ok, "postgres connections", found)
    }

    private var migrationsFinding: Finding {
        guard self.missing.isEmpty else {
            return Finding(
                .fail, "migrations", "not applied: \(self.missing.joined(separator: ", "))",
                fix: "run `gateway migrate`; a gateway or dispatcher also migrates when it starts")
        }
        guard self.unknown.isEmpty else {
            let numbers = self.unknown.map { String($0) }.joined(separator: ", ")
            return Finding(
                .warn, "migrations", "\(numbers) come from a newer release",
                fix: "run both releases together only during an upgrade")
        }
        return Finding(.ok, "migrations", "all applied")
    }

    private var auditFinding: Finding? {
        guard self.hasStrayAttempts else { return nil }
        return Finding(
            .warn, "audit", "rows of the last day or later are in the default partition: a day has no partition",
            fix: "let a dispatcher run, correct the clocks, and end transactions that read the audit for days; "
                + "a dispatcher's log says why it cannot create partitions")
    }
}
