// Carillon · RedisFacts.swift
// SPDX-License-Identifier: Apache-2.0

/// The state of Redis.
package struct RedisFacts: Sendable, Equatable {
    /// The checks that every Redis passes or fails.
    static let checks = [
        "redis version", "redis role", "redis eviction", "redis persistence", "redis memory", "redis connections",
    ]

    /// The fill ratios that give a warning and a failure.
    private static let fullness = (warn: 0.75, fail: 0.95)

    var version = ""
    var isReplica = false
    /// Replicas that are connected.
    var replicas: Int64 = 0
    /// Replicas that are not behind, if the master refuses writes without them
    /// (`min-replicas-to-write`); nil if it does not.
    var goodReplicas: Int64?
    /// `JOB_REPLICAS`.
    var jobReplicas = 0
    /// Whether it is a server of a cluster.
    var isClustered = false
    /// Whether `REDIS_URL` names a cluster.
    var isClusterExpected = false
    /// Whether a cluster refuses all commands while a slot has no master
    /// (`cluster-require-full-coverage`).
    var requiresFullCoverage = false
    /// Whether another server takes over if the master dies.
    var hasFailover = false
    package var evictionPolicy = ""
    package var usesAppendOnlyFile = false
    var savesSnapshots = false
    package var isLastWriteGood = true
    package var usedMemory: Int64 = 0
    /// `maxmemory`; 0 if unlimited.
    var maximumMemory: Int64 = 0
    /// 0 if unknown.
    var machineMemory: Int64 = 0
    /// The memory that it may use: `maxmemory`, or else the machine's memory; nil if unknown.
    package var memoryLimit: Int64? { [self.maximumMemory, self.machineMemory].first { $0 > 0 } }
    var clients: Int64 = 0
    var maximumClients: Int64 = 0

    init() {}

    /// Parses the answer to INFO.
    package init(info: String) {
        var values: [Substring: Substring] = [:]
        for line in info.split(whereSeparator: \.isNewline) where !line.hasPrefix("#") {
            let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            if parts.count == 2 { values[parts[0]] = parts[1] }
        }
        func number(_ name: Substring) -> Int64 { values[name].flatMap { Int64($0) } ?? 0 }
        self.version = values["redis_version"].map { String($0) } ?? ""
        self.isReplica = values["role"] == "slave"
        self.isClustered = values["cluster_enabled"] == "1"
        self.replicas = number("connected_slaves")
        // INFO has the line only if both settings are above zero.
        self.goodReplicas = values["min_slaves_good_slaves"].flatMap { Int64($0) }
        self.evictionPolicy = values["maxmemory_policy"].map { String($0) } ?? ""
        self.usesAppendOnlyFile = values["aof_enabled"] == "1"
        self.savesSnapshots = number("rdb_last_save_time") > 0 && number("rdb_saves") > 0
        let states = [
            values["aof_last_write_status"], values["aof_last_bgrewrite_status"], values["rdb_last_bgsave_status"],
        ]
        self.isLastWriteGood = states.allSatisfy { $0 == nil || $0 == "ok" }
        self.usedMemory = number("used_memory")
        self.maximumMemory = number("maxmemory")
        self.machineMemory = number("total_system_memory")
        self.clients = number("connected_clients")
        self.maximumClients = number("maxclients")
    }

    /// Whether the version, role and settings keep data safe, and the limits leave room.
    var findings: [Finding] {
        [self.versionFinding, self.roleFinding, self.evictionFinding, self.persistenceFinding, self.memoryFinding]
            + [self.clusterFinding, self.replicasFinding, self.clientsFinding].compactMap(\.self)
    }

    private var versionFinding: Finding {
        let parts = self.version.split(separator: ".").compactMap { Int($0) }
        let check = "redis version"
        guard let major = parts.first else {
            return Finding(.warn, check, "unknown: INFO does not report it", fix: "use Redis 7 or Valkey 7.2 or later")
        }
        if major < 6 || major == 6 && (parts.count < 2 || parts[1] < 2) {
            return Finding(.fail, check, "\(self.version) lacks required commands", fix: "use Redis 7 or later")
        }
        if major < 7 {
            return Finding(
                .warn, check, "\(self.version) cannot report the backlog of a stream", fix: "use Redis 7 or later")
        }
        return Finding(.ok, check, self.version)
    }

    private var roleFinding: Finding {
        guard self.isReplica else { return Finding(.ok, "redis role", "master") }
        return Finding(
            .fail, "redis role", "a replica, which refuses writes", fix: "point REDIS_URL at the primary")
    }

    private var clusterFinding: Finding? {
        guard self.isClustered else { return nil }
        let check = "redis cluster"
        guard !self.isClusterExpected else {
            guard self.requiresFullCoverage else { return nil }
            return Finding(
                .warn, check, "one lost master stops the whole cluster",
                fix: "CONFIG SET cluster-require-full-coverage no, and the same in redis.conf of each server")
        }
        return Finding(
            .fail, check,
            "a server of a cluster, named as if it stood alone: it refuses the keys of other servers, and a failover "
                + "leaves it a replica",
            fix: "set REDIS_URL to redis+cluster:// with the same server, or rediss+cluster:// for TLS; "
                + "an installation with one part then needs dispatcher parts grow")
    }

    private var replicasFinding: Finding? {
        let check = "redis replicas"
        let found = "\(self.replicas) connected"
        if self.goodReplicas == 0, !self.isReplica {
            return Finding(
                .fail, check, "\(found), none up to date, and min-replicas-to-write is set: Redis refuses writes",
                fix: "start a replica; until it is up to date, CONFIG SET min-replicas-to-write 0")
        }
        if self.replicas < Int64(self.jobReplicas) {
            return Finding(
                .fail, check, "\(found), and JOB_REPLICAS is \(self.jobReplicas): jobs are refused",
                fix: "start replicas, or lower JOB_REPLICAS")
        }
        guard self.replicas > 0 || self.hasFailover else { return nil }
        guard self.goodReplicas != nil else {
            return Finding(
                .warn, check, "\(found); a master that lost them goes on to take jobs, which a failover loses",
                fix: "CONFIG SET min-replicas-to-write 1, and the same in redis.conf of each server")
        }
        return Finding(.ok, check, found)
    }

    private var evictionFinding: Finding {
        let check = "redis eviction"
        let remedy = "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf"
        switch (self.evictionPolicy, self.maximumMemory) {
        case ("noeviction", _): return Finding(.ok, check, "noeviction")
        case ("", _): return Finding(.warn, check, "unknown: INFO does not report maxmemory_policy", fix: remedy)
        case (let policy, 0):
            return Finding(.warn, check, "\(policy) would evict jobs once maxmemory is set", fix: remedy)
        case (let policy, _):
            return Finding(.fail, check, "\(policy) evicts jobs when memory is full", fix: remedy)
        }
    }

    private var persistenceFinding: Finding {
        let check = "redis persistence"
        guard self.isLastWriteGood else {
            return Finding(
                .fail, check, "the last write to disk failed",
                fix: "see Redis's log for the reason, such as a full disk or a folder it cannot write to")
        }
        if self.usesAppendOnlyFile { return Finding(.ok, check, "append-only file") }
        let found =
            self.savesSnapshots
            ? "snapshots only: a crash loses the jobs appended since the last one"
            : "no append-only file: a crash loses every job that no dispatcher has stored"
        return Finding(
            .warn, check, found,
            fix: "CONFIG SET appendonly yes, then the same with appendfsync everysec in redis.conf")
    }

    private var memoryFinding: Finding {
        guard let limit = self.memoryLimit else {
            return Finding(.ok, "redis memory", Self.megabytes(self.usedMemory))
        }
        let name = self.maximumMemory > 0 ? "maxmemory" : "the machine's memory"
        let share = Double(self.usedMemory) / Double(limit)
        let found = "\(Self.megabytes(self.usedMemory)) of \(Self.megabytes(limit)), \(name)"
        let remedy =
            "check the backlog with `dispatcher lag`, start dispatchers, or give Redis more memory; "
            + "a full Redis refuses jobs"
        if share >= Self.fullness.fail { return Finding(.fail, "redis memory", found, fix: remedy) }
        if share >= Self.fullness.warn { return Finding(.warn, "redis memory", found, fix: remedy) }
        return Finding(.ok, "redis memory", found)
    }

    private var clientsFinding: Finding? {
        guard self.maximumClients > 0 else { return nil }
        let found = "\(self.clients) of \(self.maximumClients)"
        guard Double(self.clients) < Self.fullness.warn * Double(self.maximumClients) else {
            return Finding(.warn, "redis connections", found, fix: "raise maxclients in redis.conf")
        }
        return Finding(.ok, "redis connections", found)
    }

    private static func megabytes(_ bytes: Int64) -> String { "\(bytes / 1_048_576) MB" }
}
