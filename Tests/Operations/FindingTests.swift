// Carillon · FindingTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Operations

/// The doctor's rules, without I/O.
struct FindingTests {
    private static func outcome(_ findings: [Finding], _ check: String) -> Finding.Outcome? {
        findings.first { $0.check == check }?.outcome
    }

    private static func redis(_ change: (inout RedisFacts) -> Void) -> [Finding] {
        var facts = RedisFacts()
        facts.version = "7.2.4"
        facts.evictionPolicy = "noeviction"
        facts.usesAppendOnlyFile = true
        facts.usedMemory = 100
        facts.maximumMemory = 1_000
        facts.clients = 10
        facts.maximumClients = 10_000
        change(&facts)
        return facts.findings
    }

    @Test("a healthy Redis passes every check")
    func soundRedis() {
        let findings = Self.redis { _ in }
        #expect(findings.allSatisfy { $0.outcome == .ok && $0.remedy == nil })
        #expect(findings.map(\.check) == RedisFacts.checks)
        let cluster = Self.redis { ($0.isClustered, $0.isClusterExpected) = (true, true) }
        #expect(cluster.allSatisfy { $0.outcome == .ok })
    }

    @Test("each fault of Redis has its check and its fix")
    func faultyRedis() {
        typealias Row = (check: String, outcome: Finding.Outcome, change: (inout RedisFacts) -> Void)
        let table: [Row] = [
            ("redis version", .fail, { $0.version = "6.0.16" }),
            ("redis version", .warn, { $0.version = "6.2.0" }),
            ("redis version", .fail, { $0.version = "5" }),
            ("redis version", .warn, { $0.version = "" }),
            ("redis role", .fail, { $0.isReplica = true }),
            ("redis cluster", .fail, { $0.isClustered = true }),
            (
                "redis cluster", .warn,
                { ($0.isClustered, $0.isClusterExpected, $0.requiresFullCoverage) = (true, true, true) }
            ),
            ("redis eviction", .fail, { $0.evictionPolicy = "allkeys-lru" }),
            ("redis eviction", .warn, { ($0.evictionPolicy, $0.maximumMemory) = ("volatile-ttl", 0) }),
            ("redis eviction", .warn, { $0.evictionPolicy = "" }),
            ("redis persistence", .warn, { $0.usesAppendOnlyFile = false }),
            ("redis persistence", .warn, { ($0.usesAppendOnlyFile, $0.savesSnapshots) = (false, true) }),
            ("redis persistence", .fail, { $0.isLastWriteGood = false }),
            ("redis memory", .warn, { $0.usedMemory = 750 }),
            ("redis memory", .fail, { $0.usedMemory = 950 }),
            ("redis memory", .fail, { ($0.maximumMemory, $0.machineMemory) = (0, 100) }),
            ("redis connections", .warn, { $0.clients = 7_500 }),
            ("redis replicas", .fail, { ($0.replicas, $0.jobReplicas, $0.goodReplicas) = (1, 2, 1) }),
            ("redis replicas", .warn, { $0.hasFailover = true }),
            ("redis replicas", .warn, { $0.replicas = 1 }),
            ("redis replicas", .ok, { ($0.replicas, $0.goodReplicas) = (1, 1) }),
            ("redis replicas", .fail, { $0.goodReplicas = 0 }),
            ("redis replicas", .fail, { ($0.replicas, $0.goodReplicas) = (1, 0) }),
        ]
        for row in table {
            let findings = Self.redis(row.change)
            #expect(Self.outcome(findings, row.check) == row.outcome, "\(row.check) of \(findings)")
            #expect(findings.allSatisfy { ($0.outcome == .ok) == ($0.remedy == nil) })
        }
    }

    @Test("a cluster's server that is named alone is to be named by the cluster's scheme, also with one part")
    func cluster() throws {
        let findings = Self.redis { $0.isClustered = true }
        let remedy = try #require(findings.first { $0.check == "redis cluster" }?.remedy)
        #expect(remedy.contains("redis+cluster://"))
        #expect(remedy.contains("dispatcher parts grow"))
    }

    @Test("parses Redis's INFO")
    func info() {
        let facts = RedisFacts(
            info: """
                # Server\r
                redis_version:7.0.15\r
                # Clients\r
                connected_clients:3\r
                maxclients:10000\r
                # Memory\r
                used_memory:1048576\r
                total_system_memory:8589934592\r
                maxmemory:0\r
                maxmemory_policy:allkeys-lfu\r
                # Persistence\r
                aof_enabled:1\r
                aof_last_write_status:err\r
                rdb_last_bgsave_status:ok\r
                # Replication\r
                role:slave\r
                connected_slaves:2\r
                min_slaves_good_slaves:2\r
                # Cluster\r
                cluster_enabled:1\r
                """
        )
        #expect(facts.version == "7.0.15")
        #expect(facts.isReplica)
        #expect(facts.replicas == 2 && facts.goodReplicas == 2)
        #expect(facts.isClustered)
        #expect(facts.evictionPolicy == "allkeys-lfu")
        #expect(facts.usesAppendOnlyFile)
        #expect(!facts.isLastWriteGood)
        #expect(facts.usedMemory == 1_048_576)
        #expect(facts.machineMemory == 8_589_934_592)
        #expect(facts.clients == 3)
        #expect(facts.maximumClients == 10_000)
    }

    @Test("each fault of PostgreSQL has its check")
    func database() {
        func findings(_ change: (inout DatabaseFacts) -> Void) -> [Finding] {
            var facts = DatabaseFacts()
            facts.version = 150_004
            facts.connections = 10
            facts.maximumConnections = 100
            change(&facts)
            return facts.findings(needed: 10)
        }
        #expect(findings { _ in }.allSatisfy { $0.outcome == .ok })
        #expect(findings { _ in }.map(\.check) == DatabaseFacts.checks)
        typealias Row = (check: String, outcome: Finding.Outcome, change: (inout DatabaseFacts) -> Void)
        let table: [Row] = [
            ("postgres version", .fail, { $0.version = 130_010 }),
            ("postgres version", .warn, { $0.version = 140_001 }),
            ("postgres encoding", .fail, { $0.encoding = "SQL_ASCII" }),
            ("postgres durability", .fail, { $0.syncsToDisk = false }),
            ("postgres standbys", .warn, { $0.standbys = 1 }),
            ("postgres standbys", .ok, { ($0.standbys, $0.namesStandbys) = (1, true) }),
            ("postgres standbys", .fail, { $0.namesStandbys = true }),
            (
                "postgres standbys", .warn,
                { ($0.standbys, $0.namesStandbys, $0.synchronousCommit) = (1, true, "local") }
            ),
            ("postgres durability", .ok, { $0.synchronousCommit = "local" }),
            ("postgres durability", .warn, { $0.synchronousCommit = "off" }),
            ("postgres connections", .ok, { $0.connections = 90 }),
            ("postgres connections", .warn, { $0.connections = 91 }),
            ("migrations", .fail, { $0.missing = ["1 schema"] }),
            ("migrations", .warn, { $0.unknown = [99] }),
            ("audit", .warn, { $0.hasStrayAttempts = true }),
        ]
        for row in table {
            #expect(Self.outcome(findings(row.change), row.check) == row.outcome, "\(row.check)")
        }
    }

    @Test("the machine's limits are judged by each program's needs")
    func machine() {
        func outcome(
            _ role: MachineFacts.Role,
            _ check: String,
            _ change: (inout MachineFacts) -> Void
        ) -> Finding.Outcome? {
            var facts = MachineFacts()
            facts.mostOpenFiles = 1_048_576
            facts.listenBacklog = 4_096
            change(&facts)
            return Self.outcome(facts.findings(role), check)
        }
        #expect(outcome(.gateway, "open files") { _ in } == .ok)
        // A gateway of the largest sizes has 100,000 sockets.
        #expect(outcome(.gateway, "open files") { $0.mostOpenFiles = 100_000 } == .warn)
        #expect(outcome(.gateway, "open files") { $0.mostOpenFiles = 131_072 } == .ok)
        #expect(outcome(.gateway, "open files") { $0.mostOpenFiles = 1_023 } == .fail)
        #expect(outcome(.dispatcher, "open files") { $0.mostOpenFiles = 512 } == .ok)
        #expect(outcome(.dispatcher, "open files") { $0.mostOpenFiles = 511 } == .warn)
        #expect(outcome(.dispatcher, "open files") { $0.mostOpenFiles = 255 } == .fail)
        #expect(outcome(.gateway, "listen backlog") { $0.listenBacklog = 128 } == .warn)
        #expect(outcome(.dispatcher, "listen backlog") { $0.listenBacklog = 128 } == nil)
        #expect(outcome(.dispatcher, "local ports") { $0.ports = 60_000...60_999 } == .warn)
        #expect(outcome(.dispatcher, "local ports") { $0.ports = 32_768...60_999 } == .ok)
        let tracked = MachineFacts.Tracked(count: 80, maximum: 100)
        #expect(outcome(.gateway, "tracked connections") { $0.tracked = tracked } == .warn)
    }

    @Test("a dispatcher needs files for reading every part of a cluster")
    func parts() {
        // Three lanes of jobs and of five providers.
        #expect(MachineFacts.readers(parts: 1, former: []).all == 18)
        // Also the jobs of the former parts, and those under the plain names: 81 streams by lane.
        let grown = MachineFacts.readers(parts: 64, former: [16])
        #expect(grown == MachineFacts.Readers(jobs: 243, deliveries: 960))
        func finding(_ limit: UInt64) -> Finding? {
            var facts = MachineFacts()
            (facts.readers, facts.mostOpenFiles) = (grown, limit)
            return facts.findings(.dispatcher).first { $0.check == "open files" }
        }
        #expect(finding(498)?.outcome == .fail)
        #expect(finding(499)?.outcome == .warn)
        #expect(finding(1_714)?.outcome == .warn)
        #expect(finding(1_714)?.remedy?.contains("LimitNOFILE=2048") == true)
        #expect(finding(1_715)?.outcome == .ok)
    }

    @Test(
        "clocks may differ by a second before a warning, and by the token skew before a failure",
        arguments: [
            (0, 999, Finding.Outcome.ok), (1_001, 0, .warn), (0, -1_001, .warn), (-30_001, 0, .fail),
            (5, 30_001, .fail),
        ]
    )
    func clocks(redis: Int, database: Int, outcome: Finding.Outcome) {
        let facts = ClockFacts(redis: .milliseconds(redis), database: .milliseconds(database))
        #expect(facts.findings.map(\.outcome) == [outcome])
        #expect(ClockFacts().findings.map(\.outcome) == [.skipped])
    }

    @Test("time-zone data must exist, be recent, and match the stored schedules")
    func zones() {
        func outcome(_ version: String, missing: [String] = [], stored: String? = nil) -> Finding.Outcome {
            ZoneFacts(version: version, missing: missing, stored: stored, year: 2026).finding.outcome
        }
        #expect(outcome("2025b") == .ok)
        #expect(outcome("2025b", stored: "2025b") == .ok)
        #expect(outcome("2025b", stored: "2025a") == .warn)
        #expect(outcome("2024a") == .warn)
        #expect(outcome("files-1f") == .ok)
        #expect(outcome("2025b", missing: ["Asia/Tokyo"]) == .fail)
    }

    @Test("a secret file is for its owner and group")
    func files() {
        #expect(FileFacts(path: "/k", mode: 0o100640).finding?.outcome == .ok)
        #expect(FileFacts(path: "/k", mode: 0o100644).finding?.outcome == .warn)
        #expect(FileFacts(path: "/nowhere/at/all").finding == nil)
    }

    @Test("a certificate gives a warning two weeks before it expires")
    func certificate() {
        let now = Timestamp(seconds: 1_795_168_800)
        func outcome(from: Int, until: Int) -> Finding.Outcome {
            CertificateFacts(notBefore: now + .seconds(from), notAfter: now + .seconds(until)).finding(now: now).outcome
        }
        #expect(outcome(from: -1, until: 15 * 86_400) == .ok)
        #expect(outcome(from: -1, until: 13 * 86_400) == .warn)
        #expect(outcome(from: -1, until: 0) == .fail)
        #expect(outcome(from: 1, until: 86_400) == .fail)
    }

    @Test("a report's exit code follows its worst finding")
    func report() {
        var report = DoctorReport()
        report.add(settingsFaults: [])
        report.add(Finding(.warn, "x", "odd", fix: "fix it"))
        #expect(report.exitCode == nil)
        #expect(
            report.lines(style: Style(isOn: false)) == [
                "ok      settings  complete and valid", "warn    x         odd", "        → fix it", "",
                "1 ok, 0 skipped, 1 warn, 0 fail",
            ])
        report.add(Finding(.fail, "y", "bad", fix: "fix it"))
        #expect(report.exitCode == ExitStatus.no)
        report.add(settingsFaults: ["CATALOG is missing"])
        #expect(report.exitCode == ExitStatus.configuration)
    }

    @Test("a name that resembles a setting is a warning, which names the setting")
    func misspelling() {
        var report = DoctorReport()
        report.add(settingsFaults: [], misspellings: [(name: "GATEWAY_PROT", meant: "GATEWAY_PORT")])
        let found = "GATEWAY_PROT is not a setting; did you mean GATEWAY_PORT?"
        let remedy = "correct the name in the file of --config, or remove it"
        #expect(report.findings == [Finding(.warn, "settings", found, fix: remedy)])
        #expect(report.exitCode == nil)
    }
}
