// Carillon · SoakCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import NIOPosix
import Support
import Synchronization

/// Runs a load while dispatchers and gateways are killed at random moments; counts losses and
/// duplicates.
struct SoakCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "soak",
        abstract: "Counts losses and duplicates under random kills.",
        discussion: """
            Starts its own gateways and dispatchers. Half of the users are offline and have a device. Every other job
            has an id, and every tenth of those is enqueued twice. The exit code is 1 if a job was lost, was stored
            twice or reached another user, or if a service ended that was not killed; without kills and failovers
            also if anything arrived twice. With --attack, clients flood the first gateway, and the exit code is
            also 1 if that gateway grows by more than 64 MB or no client reaches it. With --failovers, Redis has two
            replicas and three Sentinels, and its master is killed while the replicas stand still; each job waits
            for a replica and has an id. With --cluster, it is one of three masters of a cluster.
            """
    )

    @Argument(help: "Duration of the load in seconds.")
    var seconds = 60.0
    @Option(help: "Number of jobs; by default the rate times the duration.")
    var jobs: Int?
    @Option(help: "Jobs a second, unless --jobs is given.")
    var rate = 400.0
    @Option(help: "Number of kills; by default one every six seconds.")
    var kills: Int?
    @Option(help: "How often Redis's master is killed, spread over the time.")
    var failovers = 0
    @Flag(help: "With --failovers: a Redis Cluster instead of Sentinels.")
    var cluster = false
    @Option var users = 1_000
    @Option var gateways = 2
    @Option var dispatchers = 2
    @Option(help: "Longest wait for missing jobs, in seconds.")
    var patience = 240
    @Option(help: "Wait for late duplicates, in seconds.")
    var aftermath = 45
    @Flag(help: "Attack the first gateway; requires `--kills 0`, because its memory is measured.")
    var attack = false
    @OptionGroup var programs: ProgramOptions

    /// The largest allowed growth of a gateway under attack, in bytes.
    private static let largestGrowth = 64 * 1024 * 1024

    func validate() throws {
        guard !self.cluster || self.failovers > 0 else { throw ValidationError("--cluster: requires --failovers") }
        guard !self.attack || self.kills == 0 else { throw ValidationError("--attack: requires --kills 0") }
    }

    func run() async throws {
        try await ScratchStack.use(self.programs) { stack in
            let servers = try await self.servers()
            let services = SoakServices(
                stack: stack, gateways: self.gateways, dispatchers: self.dispatchers,
                settings: servers?.settings ?? [:])
            let (summary, growth) = try await self.soak(stack, services, servers)
            try await services.stop()
            try await self.report(summary, services, growth)
            guard self.passes(summary, deaths: await services.deaths, growth) else { throw ExitCode(1) }
        }
    }

    /// Whether the exit code is 0.
    ///
    /// - Parameter growth: nil if no gateway was attacked to the end.
    private func passes(_ summary: SoakLedger.Summary, deaths: [String], _ growth: Int?) -> Bool {
        guard summary.lost.isEmpty, summary.storedTwice == 0, summary.strange == 0, deaths.isEmpty else { return false }
        // A process that dies between a write and its record may repeat it.
        let mayRepeat = self.kills != 0 || self.failovers > 0
        guard mayRepeat || summary.repeatedBySocket + summary.repeatedByPush == 0 else { return false }
        return growth.map { $0 <= Self.largestGrowth } ?? !self.attack
    }

    private var jobCount: Int { self.jobs ?? Int(self.rate * self.seconds) }

    /// Starts the servers whose master is killed; nil if none is.
    private func servers() async throws -> SoakRedis? {
        guard self.failovers > 0 else { return nil }
        return self.cluster
            ? .cluster(try await TestCluster.start()) : .sentinel(try await SentinelGroup.start(replicas: 2))
    }

    /// - Returns: the counts of the jobs, and the growth of an attacked gateway in bytes.
    private func soak(
        _ stack: ScratchStack,
        _ services: SoakServices,
        _ servers: SoakRedis?
    ) async throws -> (SoakLedger.Summary, Int?) {
        let tag = String(UInt32.random(in: .min ... .max), radix: 36)
        let names = (0..<self.users).map { "soak-\(tag)-\($0)" }
        let ledger = SoakLedger(jobs: self.jobCount, users: self.users, offline: self.users / 2)
        let sandbox = try SandboxControl()
        let firstPush = try await sandbox.count("fcm").next
        try await OfflineUsers.register(names, in: stack.database.pool)
        try await services.start()
        let eventLoops = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let redis = try servers.map { try Environment.redis(url: $0.url) } ?? stack.redis.connection
        let clients = (self.users / 2..<self.users).map { user in
            SoakClient(user: user, name: names[user], group: eventLoops, ledger: ledger) {
                services.ports.withLock { $0 }
            }
        }
        let growth = try await withThrowingTaskGroup(of: Void.self, returning: Int?.self) { tasks in
            for client in clients { tasks.addTask { try await client.run() } }
            tasks.addTask { try await Self.watch(services) }
            tasks.addTask { try await Self.collect(sandbox, since: firstPush, prefix: "soak-\(tag)-", into: ledger) }
            let deadline = ContinuousClock.now + .seconds(60)
            while !clients.allSatisfy(\.isReady) {
                guard ContinuousClock.now < deadline else { throw ValidationError("clients did not connect") }
                // Poll, because clients do not signal their first sync.
                try await Task.sleep(for: .milliseconds(50))
            }
            let growth = try await withThrowingTaskGroup(of: Void.self, returning: Int?.self) { load in
                load.addTask { try await self.append(redis, names, ledger, servers) }
                if let servers { load.addTask { try await self.failOver(servers, names, ledger) } }
                let growth = try await self.attack ? self.attackFirstGateway(of: services) : nil
                for _ in 0..<(self.kills ?? max(1, Int(self.seconds / 6))) {
                    let moment = Double.random(in: 0.02...0.98) * self.seconds
                    load.addTask {
                        // A random moment during the load.
                        try await Task.sleep(for: .seconds(moment))
                        try await services.killOne()
                    }
                }
                try await load.waitForAll()
                return growth
            }
            try await self.settle(ledger)
            tasks.cancelAll()
            do {
                try await tasks.waitForAll()
            } catch is CancellationError {}
            return growth
        }
        return (ledger.summary, growth)
    }

    /// Attacks the first gateway while jobs are appended.
    ///
    /// - Returns: its largest growth in bytes; nil if it ended, or if no client connected.
    private func attackFirstGateway(of services: SoakServices) async throws -> Int? {
        guard let (pid, port) = await services.firstGateway else { throw ValidationError("no first gateway") }
        let attack = ConnectionAttack(port: port, token: try Environment.token(user: "attacker"))
        let before = ProcessTable.memory(of: pid)
        let summary = await attack.run(for: .seconds(self.seconds))
        let after = ProcessTable.memory(of: pid)
        let resident = after.map { "\($0.resident) bytes resident" } ?? "the gateway has ended"
        let words = "attack: \(summary.connects) connects, \(summary.bytes) bytes; \(resident)\n"
        FileHandle.standardError.write(Data(words.utf8))
        guard let before, let after, summary.connects > 0, await services.firstGateway?.pid == pid else { return nil }
        return max(0, after.peak - before.resident)
    }

    private func append(
        _ redis: RedisClient,
        _ names: [String],
        _ ledger: SoakLedger,
        _ servers: SoakRedis?
    ) async throws {
        let start = ContinuousClock.now
        // Each user has a producer, as one whose master is away must not hold up the others.
        try await withThrowingTaskGroup(of: Void.self) { producers in
            for user in 0..<self.users {
                producers.addTask {
                    for job in stride(from: user, to: self.jobCount, by: self.users) {
                        let due = start + .seconds(self.seconds * Double(job) / Double(self.jobCount))
                        // Spread the jobs evenly over the time.
                        if due > .now { try await Task.sleep(until: due, tolerance: .zero) }
                        ledger.append(job, due: due)
                        try await self.append(job, of: names[user], redis, servers)
                    }
                }
            }
            try await producers.waitForAll()
        }
    }

    private func append(_ job: Int, of user: String, _ redis: RedisClient, _ servers: SoakRedis?) async throws {
        var fields: [RedisArgument] = [
            "XADD", .text(servers?.stream(of: user) ?? "carillon:jobs:critical"), "*", "user", .text(user), "type",
            "payment_received", "title", "Payment received", "body", "EUR 40 from Ada", "data",
            .text(#"{"n":\#(job)}"#),
        ]
        // Alternate per user, so that each user gets jobs with and without an id.
        let hasID = self.failovers > 0 || (job / self.users + job) % 2 == 0
        if hasID { fields += ["id", .text("job-\(job)")] }
        try await self.append(fields, redis)
        if hasID, job % 10 < 2 { try await self.append(fields, redis) }
    }

    /// Appends a job; repeats it until a replica has it, if there are failovers.
    private func append(_ fields: [RedisArgument], _ redis: RedisClient) async throws {
        guard self.failovers > 0 else {
            try await redis.send(fields, timeout: .seconds(30))
            return
        }
        var batch = RedisBatch()
        batch.append(fields)
        batch.append("WAIT", "1", "1000")
        while true {
            if let replies = try? await redis.send(batch), let count = try? replies.last?.integer(), count > 0,
                case .bytes = replies[0]
            {
                return
            }
            // As a producer would, after an error.
            try await Task.sleep(for: .milliseconds(20))
        }
    }

    /// Kills a master in equal steps of the time; prints how long earlier jobs then take to arrive.
    private func failOver(_ servers: SoakRedis, _ names: [String], _ ledger: SoakLedger) async throws {
        for number in 0..<self.failovers {
            // The load goes on for a while before, between and after.
            try await Task.sleep(for: .seconds(self.seconds / Double(self.failovers + 1)))
            let start = ContinuousClock.now
            try await servers.failOver(of: names[number])
            let end = ContinuousClock.now
            while ledger.missing(before: end) > 0 {
                guard .now - end < .seconds(self.patience) else { break }
                // Poll, because the ledger does not signal completion.
                try await Task.sleep(for: .milliseconds(200))
            }
            let seconds = (.now - end).inSeconds
            let missing = ledger.missing(before: end)
            ledger.noteFailover(start..<ContinuousClock.now)
            FileHandle.standardError.write(
                Data("failover done; after \(seconds) s \(missing) of the earlier jobs were missing\n".utf8))
        }
    }

    /// Waits until no job is missing, then for late duplicates; takeovers happen within 30 s.
    private func settle(_ ledger: SoakLedger) async throws {
        let deadline = ContinuousClock.now + .seconds(self.patience)
        while ledger.missing > 0, ContinuousClock.now < deadline {
            // Poll, because the ledger does not signal completion.
            try await Task.sleep(for: .milliseconds(200))
        }
        // Late duplicates show only with time.
        try await Task.sleep(for: .seconds(self.aftermath))
    }

    private static func watch(_ services: SoakServices) async throws {
        while true {
            try await services.look()
            // The interval of the checks.
            try await Task.sleep(for: .milliseconds(500))
        }
    }

    private static func collect(
        _ sandbox: SandboxControl,
        since: Int,
        prefix: String,
        into ledger: SoakLedger
    ) async throws {
        var next = since
        while true {
            let (pushes, following) = try await sandbox.pushes(since: next)
            for push in pushes where push.token.hasPrefix(prefix) {
                guard let user = Int(push.token.dropFirst(prefix.count)), let job = push.data["n"].flatMap({ Int($0) })
                else { continue }
                ledger.notePush(job: job, user: user, id: push.notification)
            }
            // Poll again after a delay when there was nothing new.
            if following == next { try await Task.sleep(for: .milliseconds(500)) }
            next = following
        }
    }

    private func report(_ summary: SoakLedger.Summary, _ services: SoakServices, _ growth: Int?) async throws {
        let kills = await services.kills
        let deaths = await services.deaths
        var report = Report("soak")
        report.add("jobs", summary.jobs)
        report.add("reached", summary.jobs - summary.lost.count)
        report.add("lost", summary.lost.count)
        report.add("socket_arrivals", summary.bySocket)
        report.add("push_arrivals", summary.byPush)
        report.add("repeated_on_sockets", summary.repeatedBySocket)
        report.add("repeated_pushes", summary.repeatedByPush)
        report.add("stored_twice", summary.storedTwice)
        report.add("fell_back_to_push", summary.fellBack)
        report.add("strange", summary.strange)
        report.add("socket_p50_ms", percentile(0.5, summary.delays) * 1_000)
        report.add("socket_p99_ms", percentile(0.99, summary.delays) * 1_000)
        report.add("socket_longest_ms", (summary.delays.last ?? .nan) * 1_000)
        if !summary.failoverDelays.isEmpty {
            report.add("failover_jobs", summary.failoverDelays.count)
            report.add("failover_p50_ms", percentile(0.5, summary.failoverDelays) * 1_000)
            report.add("failover_p99_ms", percentile(0.99, summary.failoverDelays) * 1_000)
        }
        report.add("gateway_kills", kills["gateway"] ?? 0)
        report.add("dispatcher_kills", kills["dispatcher"] ?? 0)
        report.add("deaths", deaths.count)
        if let growth { report.add("gateway_growth_bytes", growth) }
        try report.print()
        for death in deaths { FileHandle.standardError.write(Data("\(death)\n".utf8)) }
        if !summary.lost.isEmpty {
            let sample = summary.lost.prefix(20).map { String($0) }.joined(separator: " ")
            FileHandle.standardError.write(Data("lost jobs: \(sample)\n".utf8))
        }
    }
}
