// Carillon · CPUCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Crypto
import Foundation
import NIOPosix
import Support
import Synchronization

/// Measures a dispatcher's CPU time per job, and that of a decision alone.
struct CPUCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cpu",
        abstract: "Measures CPU time per job with every rule in use, and per decision; yardstick: a hash."
    )

    @Option(help: "Online users.")
    var users = 1_000
    @Option var jobs = 100_000
    @Option(help: "Warm-up jobs.")
    var warmUp = 5_000
    @Option(help: "Decisions of each kind.")
    var decisions = 1_000_000
    @Flag(help: "Use no templates, preferences, quiet hours or caps.")
    var plain = false
    @OptionGroup var programs: ProgramOptions

    func validate() throws {
        for (name, value) in [("users", self.users), ("jobs", self.jobs), ("decisions", self.decisions)] {
            guard value >= 1 else { throw ValidationError("--\(name): less than 1") }
        }
        guard self.warmUp >= 0 else { throw ValidationError("--warm-up: less than 0") }
    }

    func run() async throws {
        try self.measureDecisions()
        try await ScratchStack.use(self.programs) { stack in
            let settings = self.plain ? [:] : try EveryRule.settings(in: stack.folder)
            let (gateway, port) = try await stack.gateway(settings: settings)
            let dispatcher = try await stack.dispatcher(settings: settings)
            let sockets = SocketLoad(group: MultiThreadedEventLoopGroup(numberOfThreads: 1))
            sockets.isTimed.store(false, ordering: .relaxed)
            let names = (0..<self.users).map { "cpu-\($0)" }
            try await sockets.connect(port: port, users: try LoadUser.named(names))
            if !self.plain { try await EveryRule.prepare(names, in: stack.database.pool) }
            let jobs = JobLoad(
                redis: stack.redis.connection,
                stream: "carillon:jobs",
                type: self.plain ? "payment_received" : EveryRule.type,
                variables: self.plain ? nil : EveryRule.variables
            )
            try await jobs.append(self.warmUp, to: names, rate: 5_000, batch: 8)
            try await sockets.frames.reach(self.warmUp)

            let used = CoreShare.seconds(of: dispatcher.identifier)
            let start = ContinuousClock.now
            try await jobs.append(self.jobs, to: names)
            let elapsed = try await sockets.frames.reach(self.warmUp + self.jobs) - start
            let process = CoreShare.seconds(of: dispatcher.identifier) - used
            await sockets.close()
            try await dispatcher.stop()
            try await gateway.stop()

            var report = Report("cpu")
            report.add("jobs", self.jobs)
            report.add("users", self.users)
            report.add("rules", self.plain ? "plain" : "every")
            report.add("per_second", Double(self.jobs) / elapsed.inSeconds)
            report.add("process_us", process * 1_000_000 / Double(self.jobs))
            report.add("yardstick_hash_us", DecisionLoad(count: self.decisions).hashMicroseconds())
            try report.print()
        }
    }

    private func measureDecisions() throws {
        let load = DecisionLoad(count: self.decisions)
        var report = Report("decisions")
        report.add("count", self.decisions)
        for kind in DecisionLoad.Kind.allCases { report.add("\(kind.rawValue)_us", try load.microseconds(kind)) }
        report.add("yardstick_hash_us", load.hashMicroseconds())
        try report.print()
    }
}

/// A type and users for which every rule has something to check but holds nothing back.
///
/// It uses templates in the user's language, a cap, preferences, and quiet hours that are not
/// active.
enum EveryRule {
    static let type = "every_rule"

    /// The template variables of a job.
    static let variables = #"{"payer":"Ada","amount":"EUR 40","invoice":{"number":"i9"}}"#

    private static let catalog = """
        types:
          \(Self.type):
            severity: info
            category: billing
            delivery: push
            quiet_hours: defer
            cap: {count: 10000, per: 1h}
            templates:
              en: {title: "{{amount}} from {{payer}}", body: "Invoice {{invoice.number}}{{#note}}: {{note}}{{/note}}"}
              de: {title: "{{amount}} von {{payer}}", body: "Rechnung {{invoice.number}}{{#note}}: {{note}}{{/note}}"}
        """

    /// Writes the catalog and returns the settings of services that use it.
    static func settings(in folder: String) throws -> [String: String] {
        let path = folder + "/every-rule.yaml"
        try Self.catalog.write(toFile: path, atomically: true, encoding: .utf8)
        return ["CATALOG": path]
    }

    /// Stores the users' settings and preferences; quiet hours begin in about six hours.
    static func prepare(_ users: [String], in pool: PostgresPool) async throws {
        let minutes = Int32(Date.now.timeIntervalSince1970 / 60) % 1_440
        try await pool.run([
            PostgresStatement(
                """
                INSERT INTO carillon.user_settings (user_id, zone, locale, quiet_start, quiet_end)
                SELECT unnest($1), 'Europe/Berlin', 'de', $2::int4, $3::int4
                """,
                [
                    .array(PostgresArray(texts: users)), .int4((minutes + 360) % 1_440), .int4((minutes + 480) % 1_440),
                ]
            ),
            PostgresStatement(
                """
                INSERT INTO carillon.preferences (user_id, type, in_app, push, email)
                SELECT unnest($1), '\(Self.type)', true, true, false
                """,
                [.array(PostgresArray(texts: users))]
            ),
        ])
    }
}

/// Runs the pure rules in a loop on one thread.
struct DecisionLoad {
    /// The facts to decide on.
    enum Kind: String, CaseIterable {
        case arrived, offline, online
        /// Within quiet hours, in a zone with daylight saving time.
        case quiet
    }

    private static let now = Timestamp(seconds: 1_795_168_800)

    let count: Int

    /// Returns the microseconds of one decision.
    func microseconds(_ kind: Kind) throws -> Double {
        // As many as a batch, so that facts do not stay in registers between decisions.
        let facts = try (0..<256).map { try Self.facts(kind, $0) }
        var steps = 0
        let start = ContinuousClock.now
        for index in 0..<self.count { steps += decide(facts[index & 255]).count }
        let elapsed = ContinuousClock.now - start
        guard steps >= self.count else { throw ValidationError("\(kind.rawValue): a decision had no steps") }
        return elapsed.inSeconds * 1_000_000 / Double(self.count)
    }

    /// Returns the microseconds that SHA-256 of a job's bytes takes, as a yardstick.
    func hashMicroseconds() -> Double {
        let bytes = Data(repeating: 0x61, count: 256)
        let start = ContinuousClock.now
        for _ in 0..<self.count { Self.use(SHA256.hash(data: bytes)) }
        let elapsed = ContinuousClock.now - start
        return elapsed.inSeconds * 1_000_000 / Double(self.count)
    }

    /// Keeps the compiler from removing an unused value.
    @inline(never)
    private static func use<Value>(_ value: Value) {}

    private static func facts(_ kind: Kind, _ number: Int) throws -> DecisionFacts {
        var notification = Notification(
            id: NotificationID(high: 1, low: UInt64(number)), user: "user-\(number)", type: "payment_received",
            createdAt: self.now)
        notification.delivery = .push
        notification.channels = kind == .arrived ? .all : [.inApp, .push]
        notification.expiresAt = self.now + .seconds(60)
        var facts = DecisionFacts(
            notification: notification,
            type: NotificationType(name: "payment_received"),
            progress: kind == .arrived ? .arrived : .stored,
            now: self.now
        )
        facts.deviceCount = 1
        facts.presence = .offline
        if kind == .online {
            facts.presence = .online([
                ConnectionPresence(
                    connection: "c\(number)", node: "n", dialect: .native, state: .active, since: self.now)
            ])
        }
        if kind == .quiet {
            let zones = SystemZones()
            guard let zone = zones.rules("Europe/Berlin") else {
                throw ValidationError("no time zone data; install tzdata")
            }
            facts.zone = zone
            let minute = zone.local(at: self.now).seconds / 60
            facts.settings.quietHours = QuietHours(
                start: (minute + 1_380) % 1_440, end: (minute + 60) % 1_440)
        }
        return facts
    }
}
