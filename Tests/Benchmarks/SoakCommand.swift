// Carillon · SoakCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import NIOPosix
import Support
import Synchronization

/// Load while dispatchers and gateways are killed at random moments: counts what was lost and what came twice.
struct SoakCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "soak",
        abstract: "What is lost or repeated under random kills.",
        discussion: """
            Starts gateways and dispatchers of its own. Half of the users are offline and have a device; of the jobs every
            other one has an id, and of those every tenth is enqueued twice. Ends with 1 if anything was lost. With
            --attack clients flood the first gateway all the time, and it also ends with 1 if that gateway grows by more
            than 64 MB.
            """
    )

    @Argument(help: "How long jobs are appended.")
    var seconds = 60.0
    @Option(help: "How many jobs; by the rate if not given.")
    var jobs: Int?
    @Option(help: "Jobs a second, if their number is not given.")
    var rate = 400.0
    @Option(help: "How many kills; one in six seconds if not given.")
    var kills: Int?
    @Option var users = 1_000
    @Option var gateways = 2
    @Option var dispatchers = 2
    @Option(help: "How long to wait for what is missing, in seconds.")
    var patience = 240
    @Option(help: "How long to wait for late repeats, in seconds.")
    var aftermath = 45
    @Flag(help: "Attacks the first gateway; with `--kills 0`, as its memory is measured.")
    var attack = false
    @OptionGroup var programs: ProgramOptions

    /// Bytes by which a gateway may grow under attack.
    private static let largestGrowth = 64 * 1024 * 1024

    func validate() throws {
        guard !self.attack || self.kills == 0 else { throw ValidationError("--attack goes with --kills 0") }
    }

    func run() async throws {
        try await ScratchStack.use(self.programs) { stack in
            let services = SoakServices(stack: stack, gateways: self.gateways, dispatchers: self.dispatchers)
            let (summary, growth) = try await self.soak(stack, services)
            try await services.stop()
            try await self.report(summary, services, growth)
            guard summary.lost.isEmpty, (growth ?? 0) <= Self.largestGrowth else { throw ExitCode(1) }
        }
    }

    /// - Returns: The fate of the jobs, and the bytes by which an attacked gateway grew.
    private func soak(_ stack: ScratchStack, _ services: SoakServices) async throws -> (SoakLedger.Summary, Int?) {
        let tag = String(UInt32.random(in: .min ... .max), radix: 36)
        let names = (0..<self.users).map { "soak-\(tag)-\($0)" }
        let ledger = SoakLedger(users: self.users, offline: self.users / 2)
        let sandbox = try SandboxControl()
        let firstPush = try await sandbox.count("fcm").next
        try await OfflineUsers.register(names, in: stack.database.pool)
        try await services.start()
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let clients = (self.users / 2..<self.users).map { user in
            SoakClient(user: user, name: names[user], group: group, ledger: ledger) {
                services.ports.withLock { $0 }
            }
        }
        let growth = try await withThrowingTaskGroup(of: Void.self, returning: Int?.self) { tasks in
            for client in clients { tasks.addTask { try await client.run() } }
            tasks.addTask { try await Self.watch(services) }
            tasks.addTask { try await Self.collect(sandbox, since: firstPush, prefix: "soak-\(tag)-", into: ledger) }
            let deadline = ContinuousClock.now + .seconds(60)
            while !clients.allSatisfy(\.isReady) {
                guard ContinuousClock.now < deadline else { throw ValidationError("the clients do not connect") }
                // Clients note their sync where nobody waits for it, so they are asked.
                try await Task.sleep(for: .milliseconds(50))
            }
            let growth = try await withThrowingTaskGroup(of: Void.self, returning: Int?.self) { load in
                load.addTask { try await self.append(stack.redis.connection, names, ledger) }
                let growth = try await self.attack ? self.attackFirstGateway(of: services) : nil
                for _ in 0..<(self.kills ?? max(1, Int(self.seconds / 6))) {
                    let moment = Double.random(in: 0.02...0.98) * self.seconds
                    load.addTask {
                        // The moment of the kill, anywhere in the time of the load.
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

    /// Attacks the first gateway as long as jobs are appended.
    ///
    /// - Returns: The bytes by which it grew at the most.
    private func attackFirstGateway(of services: SoakServices) async throws -> Int {
        guard let (pid, port) = await services.firstGateway else { throw ValidationError("there is no gateway") }
        let attack = DoorAttack(port: port, token: try Environment.token(user: "attacker"))
        let before = ProcessTable.memory(of: pid)
        let summary = await attack.run(for: .seconds(self.seconds))
        let after = ProcessTable.memory(of: pid)
        let words = "attack: \(summary.connects) connects, \(summary.bytes) bytes; \(after.resident) bytes stayed\n"
        FileHandle.standardError.write(Data(words.utf8))
        return max(0, after.peak - before.resident)
    }

    private func append(_ redis: RedisConnection, _ names: [String], _ ledger: SoakLedger) async throws {
        let jobs = self.jobs ?? Int(self.rate * self.seconds)
        let start = ContinuousClock.now
        for job in 0..<jobs {
            let due = start + .seconds(self.seconds * Double(job) / Double(jobs))
            // The load is spread evenly over its time.
            if due > .now { try await Task.sleep(until: due, tolerance: .zero) }
            ledger.append(1)
            var fields: [RedisArgument] = [
                "XADD", "carillon:jobs:critical", "*", "user", .text(names[ledger.user(ofJob: job)]), "type",
                "payment_received", "title", "Payment received", "body", "EUR 40 from Ada", "data",
                .text(#"{"n":\#(job)}"#),
            ]
            // Users take turns, so that both kinds go to each.
            let hasID = (job / self.users + job) % 2 == 0
            if hasID { fields += ["id", .text("job-\(job)")] }
            try await redis.send(fields, timeout: .seconds(30))
            if hasID, job % 10 < 2 { try await redis.send(fields, timeout: .seconds(30)) }
        }
    }

    /// Waits until nothing is missing, and then for late repeats: the work of the dead is taken over within 30 s.
    private func settle(_ ledger: SoakLedger) async throws {
        let deadline = ContinuousClock.now + .seconds(self.patience)
        while ledger.missing > 0, ContinuousClock.now < deadline {
            // The ledger is filled by many and tells nobody when it is complete.
            try await Task.sleep(for: .milliseconds(200))
        }
        // That nothing comes twice shows only in time.
        try await Task.sleep(for: .seconds(self.aftermath))
    }

    private static func watch(_ services: SoakServices) async throws {
        while true {
            try await services.look()
            // How often memory and life are looked at.
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
            // The sandbox is asked again when it had nothing new.
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
