// Carillon · Examination.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Glibc
import Storage

/// Collects the facts for the doctor's checks; the only part of the doctor with I/O.
package enum Examination {
    /// The timeout of every call.
    private static let timeout: Duration = .seconds(5)
    /// Zones that every version of the data has.
    private static let knownZones = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo"]

    /// The findings about Redis.
    struct RedisReport: Sendable {
        var findings: [Finding]
        /// How far its clock is ahead of the machine's.
        var clock: Duration?
        /// The identity of the database whose work Redis holds; nil before the first dispatcher.
        var installation: String?
    }

    static func redis(_ settings: RedisSettings) async -> RedisReport {
        let address = settings.address
        var configuration = settings.configuration(clientName: "carillon-doctor")
        configuration.connectTimeout = self.timeout
        configuration.commandTimeout = self.timeout
        do {
            return try await CommandClients.withRedis(configuration) { connection in
                let clock = ContinuousClock()
                var time = RedisBatch()
                time.append("TIME")
                // The first call also connects; do not time it.
                _ = try await connection.sendToAll(time)
                let start = clock.now
                let before = Timestamp.now()
                let times = try await connection.sendToAll(time)
                let delay = clock.now - start
                var findings = [Finding(.ok, "redis", "\(address), answered in \(self.text(delay))")]
                var offsets: [Duration] = []
                for answer in times {
                    offsets.append(try answer.replies[0].time() - (before + delay / 2))
                }
                var info = RedisBatch()
                info.append("INFO")
                info.append("CONFIG", "GET", "cluster-require-full-coverage")
                for answer in try await connection.sendToAll(info) {
                    var facts = RedisFacts(info: try answer.replies[0].string() ?? "")
                    facts.jobReplicas = settings.jobReplicas
                    facts.isClusterExpected = address.isCluster
                    facts.hasFailover = address.hasFailover
                    // An access list may refuse CONFIG.
                    facts.requiresFullCoverage = (try? answer.replies[1].strings())?.last == "yes"
                    // With several masters, each finding names its own.
                    findings += facts.findings.map { times.count > 1 ? $0.about(answer.server) : $0 }
                }
                return RedisReport(
                    findings: findings,
                    clock: offsets.max { abs($0 / .seconds(1)) < abs($1 / .seconds(1)) },
                    // If REDIS_URL names one server of a cluster, it may refuse the key.
                    installation: try? await connection.send("GET", .text(Keyspace().installation)).string()
                )
            }
        } catch {
            let remedy = "start Redis, or correct REDIS_URL; check firewalls and the password"
            let fault = Finding(.fail, "redis", "\(error)", fix: remedy)
            return RedisReport(findings: [fault] + Finding.skipped(RedisFacts.checks, needs: "Redis"))
        }
    }

    /// The findings about PostgreSQL.
    struct DatabaseReport: Sendable {
        var findings: [Finding]
        /// How far its clock is ahead of the machine's.
        var clock: Duration?
        /// The time-zone version that stored schedules were computed with.
        var zoneVersion: String?
        var identity: String?
        /// The parts of Redis; nil before the first process has recorded them.
        var layout: LayoutStore.Layout?
    }

    /// - Parameter needed: connections of one more process.
    static func database(_ configuration: PostgresConfiguration, needed: Int) async -> DatabaseReport {
        var configuration = configuration
        configuration.connectTimeout = self.timeout
        configuration.timeout = self.timeout
        do {
            return try await CommandClients.withDatabase(configuration) { pool in
                try await self.database(pool, needed: needed)
            }
        } catch {
            // libpq's error for a server that refuses writes.
            let remedy =
                "\(error)".contains("session is read-only")
                ? "it refuses writes, as a standby does: name the primary, or all servers, in DATABASE_URL"
                : "start PostgreSQL, or correct DATABASE_URL; check pg_hba.conf, firewalls and the password"
            let fault = Finding(.fail, "postgres", "\(error)", fix: remedy)
            return DatabaseReport(findings: [fault] + Finding.skipped(DatabaseFacts.checks, needs: "PostgreSQL"))
        }
    }

    /// Checks that Redis holds the work of this database, not of another.
    private static func installation(redis: String?, database: String?) -> Finding? {
        guard let redis, let database else { return nil }
        let check = "redis installation"
        guard redis != database else { return Finding(.ok, check, "holds the work of this database") }
        return Finding(
            .fail, check, "holds the work of another database, not of the one in DATABASE_URL",
            fix: "correct REDIS_URL or DATABASE_URL; if this database replaces the other, stop the other's dispatchers "
                + "and run DEL \(Keyspace().installation) in Redis")
    }

    /// Checks whether a standby answers for inbox pages.
    package static func standby(_ url: String) async -> Finding {
        var configuration = PostgresConfiguration(connectionString: url, applicationName: "carillon-doctor")
        configuration.connectTimeout = self.timeout
        configuration.timeout = self.timeout
        configuration.connections = 1
        configuration.wantsStandby = true
        do {
            _ = try await CommandClients.withDatabase(configuration) { pool in try await pool.query("SELECT 1") }
            return Finding(.ok, "postgres pages", "a standby answers")
        } catch {
            let remedy = "name a running standby in DATABASE_READ_URL; until then the primary answers pages"
            return Finding(.warn, "postgres pages", "\(error)", fix: remedy)
        }
    }

    private static func database(_ pool: PostgresPool, needed: Int) async throws -> DatabaseReport {
        // The first query also waits for the connection; do not time it.
        _ = try await pool.query("SELECT 1")
        let clock = ContinuousClock()
        let start = clock.now
        let before = Timestamp.now()
        let time = try await pool.query("SELECT clock_timestamp()").first?.timestamptz(0)
        let delay = clock.now - start
        var facts = DatabaseFacts()
        if let row = try await pool.query(self.about).first {
            facts.version = try row.int4(0)
            facts.connections = try row.int8(1)
            facts.maximumConnections = try row.int8(2)
            facts.syncsToDisk = try row.bool(3)
            facts.synchronousCommit = try row.text(4)
            facts.encoding = try row.text(5)
            facts.standbys = try row.int8(6)
            facts.namesStandbys = try row.bool(7)
        }
        let state = try await Migrations.state(of: pool)
        facts.missing = state.missing
        facts.unknown = state.unknown
        if state.missing.isEmpty { facts.hasStrayAttempts = try await Database(pool).deliveries.hasStrayAttempts() }
        let found = Finding(.ok, "postgres", "answered in \(self.text(delay))")
        return DatabaseReport(
            findings: [found] + facts.findings(needed: needed),
            clock: time.map { Timestamp(microseconds: $0) - (before + delay / 2) },
            zoneVersion: state.missing.isEmpty ? try await Database(pool).schedules.zoneVersion() : nil,
            identity: state.missing.isEmpty ? try await Database(pool).layout.identity() : nil,
            layout: state.missing.isEmpty ? try await Database(pool).layout.recorded() : nil
        )
    }

    // `pg_stat_activity` hides the type of other roles' sessions.
    private static let about = """
        SELECT current_setting('server_version_num')::int4,
            (SELECT sum(numbackends)::int8 FROM pg_stat_database),
            current_setting('max_connections')::int8 - current_setting('superuser_reserved_connections')::int8,
            current_setting('fsync')::bool, current_setting('synchronous_commit'),
            current_setting('server_encoding'), (SELECT count(*) FROM pg_stat_replication),
            current_setting('synchronous_standby_names') <> ''
        """

    /// Reads the machine's limits.
    static func machine() -> MachineFacts {
        var facts = MachineFacts()
        var limit = rlimit()
        if getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 {
            facts.mostOpenFiles = UInt64(limit.rlim_max)
        }
        facts.listenBacklog = self.numbers("/proc/sys/net/core/somaxconn").first
        let ports = self.numbers("/proc/sys/net/ipv4/ip_local_port_range")
        if ports.count == 2, ports[0] <= ports[1] { facts.ports = ports[0]...ports[1] }
        let folder = "/proc/sys/net/netfilter/nf_conntrack_"
        if let count = self.numbers(folder + "count").first, let maximum = self.numbers(folder + "max").first {
            facts.tracked = MachineFacts.Tracked(count: count, maximum: maximum)
        }
        return facts
    }

    /// Reads the machine's time-zone data.
    static func zones(_ zones: ZoneDatabase, stored: String?) -> ZoneFacts {
        ZoneFacts(
            version: zones.version,
            missing: self.knownZones.filter { zones.rules($0) == nil },
            stored: stored,
            year: Int(Timestamp.now().rfc3339.prefix(4)) ?? 0
        )
    }

    /// Checks whether a catalog is valid.
    static func catalog(path: String) -> [Finding] {
        do throws(CatalogFaults) {
            return [Finding(.ok, "catalog", "\(try CatalogLoader.load(path: path).all.count) types in \(path)")]
        } catch {
            return error.faults.map {
                Finding(.fail, "catalog", "\($0)", fix: "correct the file; see docs/catalog.md")
            }
        }
    }

    /// Examines what both programs need: settings, catalog, Redis, PostgreSQL, clocks, time zones
    /// and the limits of the machine.
    ///
    /// - Parameters:
    ///   - reader: the reader of `settings`, after all settings were read.
    ///   - needed: connections to PostgreSQL that one more process needs.
    ///   - clocks: how far clocks may differ.
    package static func program(
        _ role: MachineFacts.Role,
        _ reader: SettingsReader,
        _ settings: CommonSettings,
        needed: Int,
        clocks: ClockFacts = ClockFacts()
    ) async -> DoctorReport {
        var report = DoctorReport()
        var clocks = clocks
        report.add(settingsFaults: reader.found, misspellings: reader.misspellings)
        if !settings.catalog.isEmpty { report.add(self.catalog(path: settings.catalog)) }
        let redis = await self.redis(settings.redis)
        report.add(redis.findings)
        clocks.redis = redis.clock
        var zoneVersion: String?
        var layout: LayoutStore.Layout?
        if settings.database.isEmpty {
            let checks = ["postgres"] + DatabaseFacts.checks + ["redis installation"]
            report.add(Finding.skipped(checks, needs: "DATABASE_URL"))
        } else {
            let configuration = CommandClients.database(reader, name: "doctor", watchesEpoch: false)
            let database = await self.database(configuration, needed: needed)
            report.add(database.findings)
            if redis.clock == nil || database.clock == nil {
                report.add(Finding.skipped(["redis installation"], needs: "Redis and PostgreSQL"))
            } else if let finding = self.installation(redis: redis.installation, database: database.identity) {
                report.add(finding)
            }
            clocks.database = database.clock
            layout = database.layout
            // Only dispatchers compute schedules.
            if role == .dispatcher { zoneVersion = database.zoneVersion }
        }
        report.add(clocks.findings)
        report.add(self.zones(ZoneDatabase(), stored: zoneVersion).finding)
        var machine = self.machine()
        machine.readers = MachineFacts.readers(
            parts: layout?.parts ?? settings.redis.firstParts, former: layout?.former ?? [])
        report.add(machine.findings(role))
        return report
    }

    /// Checks whether a certificate authority file is readable.
    package static func authorities(_ name: String, path: String?) -> Finding? {
        guard let path else { return nil }
        guard access(path, R_OK) == 0 else {
            return Finding(.fail, name.lowercased(), "\(path) cannot be read", fix: "correct \(name)")
        }
        return Finding(.ok, name.lowercased(), path)
    }

    private static func numbers(_ path: String) -> [Int64] {
        guard let data = FileManager.default.contents(atPath: path) else { return [] }
        return String(decoding: data, as: UTF8.self).split(whereSeparator: \.isWhitespace).compactMap { Int64($0) }
    }

    private static func text(_ delay: Duration) -> String {
        let microseconds = delay.inMicroseconds
        return "\(microseconds / 1_000).\(microseconds % 1_000 / 100) ms"
    }
}
