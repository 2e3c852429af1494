// Carillon · DeliveriesCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Foundation
import Storage
import Support

/// Measures pushes a second from the deliveries stream to the provider's recorded answer.
struct DeliveriesCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "deliveries",
        abstract: "Measures pushes a second from the deliveries stream to the recorded answer."
    )

    private static let providers: [Provider] = [.fcm, .apns, .webpush]

    @Option(help: "Pushes to each provider.")
    var pushes = 50_000
    @Option var users = 10_000
    @Option(help: "Warm-up pushes before each measurement.")
    var warmUp = 2_000
    @Option(help: "Measure only this provider.")
    var provider: String?
    @Option(help: "Path of the compiled Yardsticks/transfer.c.")
    var yardstick: String
    @OptionGroup var programs: ProgramOptions

    func validate() throws {
        let known = Self.providers.map(\.rawValue)
        if let provider, !known.contains(provider) {
            throw ValidationError("--provider: not one of \(known.joined(separator: ", "))")
        }
    }

    func run() async throws {
        try await ScratchStack.use(self.programs) { stack in
            // The dispatcher creates the tables.
            let dispatcher = try await stack.dispatcher()
            _ = try await dispatcher.waitForLine("ready ")
            for provider in Self.providers where self.provider ?? provider.rawValue == provider.rawValue {
                try await self.measure(provider, dispatcher, stack)
            }
            try await dispatcher.stop()
        }
    }

    private func measure(_ provider: Provider, _ dispatcher: ChildProcess, _ stack: ScratchStack) async throws {
        let count = self.warmUp + self.pushes
        let sandbox = try SandboxControl()
        let key = try provider == .webpush ? Self.applicationKey() : ""
        var load = try await DeliveryLoad(
            provider.rawValue, provider: provider, users: self.users, count: count, in: stack
        ) { number in
            let name = "deliveries-\(number)"
            if provider == .webpush { return try await sandbox.subscription(name, key: key) }
            guard provider == .apns else { return name }
            let digits = String(number, radix: 16)
            return String(repeating: "0", count: 64 - digits.count) + digits
        }
        let first = try await sandbox.count(provider.rawValue).accepted
        try await load.append(self.warmUp)
        try await load.drain(by: dispatcher)
        let used = CoreShare.seconds(of: dispatcher.identifier)
        let start = ContinuousClock.now
        try await load.append(self.pushes)
        try await load.drain(by: dispatcher)
        let elapsed = (ContinuousClock.now - start).inSeconds
        let spent = CoreShare.seconds(of: dispatcher.identifier) - used
        let seen = (try await sandbox.count(provider.rawValue).accepted - first, try await load.accepted())
        guard seen == (count, count) else {
            throw ValidationError("\(seen.0) pushes arrived and \(seen.1) are recorded instead of \(count)")
        }
        // Measured in the same run, because machines differ and change.
        let plain = try await LibcurlYardstick.rate(program: self.yardstick)
        let rate = Double(self.pushes) / elapsed
        var report = Report("deliveries")
        report.add("provider", provider.rawValue)
        report.add("pushes", self.pushes)
        report.add("settled_per_second", rate)
        report.add("yardstick_libcurl_per_second", plain)
        report.add("ratio", rate / plain)
        report.add("dispatcher_cpu_us", spent * 1_000_000 / Double(self.pushes))
        try report.print()
    }

    /// Returns the VAPID public key for the subscriptions.
    private static func applicationKey() throws -> String {
        try VAPIDKey(file: Array(try Data(contentsOf: URL(filePath: Environment.require("VAPID_KEY"))))).publicKey
    }
}

/// Measures how much a hanging provider slows down another.
struct HangingCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "hanging",
        abstract: "Measures pushes a second to FCM alone, and while APNs does not answer in time."
    )

    @Option(help: "Pushes to FCM in each round.")
    var pushes = 30_000
    @Option(help: "Pushes to the hanging APNs.")
    var hanging = 20_000
    @Option(help: "Rounds of each kind.")
    var rounds = 3
    @Option var users = 5_000
    @OptionGroup var programs: ProgramOptions

    func run() async throws {
        try await ScratchStack.use(self.programs) { stack in
            // Longer than a dispatcher waits for an answer.
            let sandbox = try await stack.sandbox(slow: 60_000)
            let dispatcher = try await stack.dispatcher(settings: sandbox.settings)
            _ = try await dispatcher.waitForLine("ready ")
            let total = self.pushes * (1 + 2 * self.rounds)
            var fcm = try await DeliveryLoad("fcm", provider: .fcm, users: self.users, count: total, in: stack) {
                "deliveries-\($0)"
            }
            // Tokens that make the sandbox answer late.
            var apns = try await DeliveryLoad(
                "apns", provider: .apns, users: self.users, count: self.hanging, in: stack
            ) { number in
                let digits = String(number, radix: 16)
                return "deade100" + String(repeating: "0", count: 56 - digits.count) + digits
            }
            // The first round fills caches and connections.
            _ = try await self.rate(&fcm, dispatcher)
            var alone: [Double] = []
            for _ in 0..<self.rounds { alone.append(try await self.rate(&fcm, dispatcher)) }
            let before = dispatcher.residentMemory
            try await apns.append(self.hanging)
            var duringHang: [Double] = []
            var memory = before
            for _ in 0..<self.rounds {
                duringHang.append(try await self.rate(&fcm, dispatcher))
                memory = max(memory, dispatcher.residentMemory)
            }
            try await dispatcher.stop(by: SIGKILL)
            try await sandbox.program.stop()
            let (sent, answered) = (try await fcm.accepted(), try await apns.accepted())
            let waiting = try await apns.waiting()
            // A few may be between the stream and a set.
            guard sent == total, answered == 0, waiting >= self.hanging * 9 / 10 else {
                throw ValidationError(
                    "FCM accepted \(sent) of \(total) pushes, APNs \(answered); \(waiting) of \(self.hanging) wait")
            }
            var report = Report("hanging")
            report.add("pushes", self.pushes)
            report.add("alone_per_second", median(alone))
            report.add("beside_per_second", median(duringHang))
            report.add("ratio", median(duringHang) / median(alone))
            report.add("dispatcher_growth_mb", Double(memory - before) / 1_048_576)
            try report.print()
        }
    }

    private func rate(_ load: inout DeliveryLoad, _ dispatcher: ChildProcess) async throws -> Double {
        let start = ContinuousClock.now
        try await load.append(self.pushes)
        try await load.drain(by: dispatcher)
        return Double(self.pushes) / (ContinuousClock.now - start).inSeconds
    }
}

/// Deliveries of one provider, stored and appended to its stream as the routing stage does.
struct DeliveryLoad {
    let provider: Provider
    let stack: ScratchStack
    private var works: ArraySlice<DeliveryWork>

    /// Registers users with one device each and stores `count` notifications for them.
    ///
    /// - Parameters:
    ///   - name: the prefix of the users' names.
    ///   - token: returns the token of a device by its number.
    init(
        _ name: String,
        provider: Provider,
        users: Int,
        count: Int,
        in stack: ScratchStack,
        token: (Int) async throws -> String
    ) async throws {
        let pool = stack.database.pool
        var devices: [OfflineUsers.Device] = []
        for number in 0..<users {
            devices.append(OfflineUsers.Device(user: "\(name)-\(number)", token: try await token(number)))
        }
        let platform = provider == .apns ? "ios" : provider == .webpush ? "web" : "android"
        try await OfflineUsers.register(devices, platform: platform, provider: provider.rawValue, in: pool)
        let stored = try await pool.query(
            Self.notifications, .text(name), .int4(Int32(clamping: count)), .int4(Int32(clamping: users)),
            timeout: .seconds(120))
        try await pool.query(Self.inboxes, .text(name))
        let found = try await pool.query(
            "SELECT user_id, id FROM carillon.devices WHERE user_id LIKE $1 || '-%'", .text(name))
        try await pool.withScriptConnection { try $0.execute("VACUUM ANALYZE") }
        self.provider = provider
        self.stack = stack
        self.works = try Self.works(stored, found)[...]
    }

    private static func works(_ stored: PostgresResult, _ devices: PostgresResult) throws -> [DeliveryWork] {
        var byUser: [String: NotificationID] = [:]
        for row in devices { byUser[try row.text(0)] = NotificationID(try row.uuid(1)) }
        var works: [DeliveryWork] = []
        for row in stored {
            let user = try row.text(0)
            guard let device = byUser[user] else { throw ValidationError("\(user) has no device") }
            works.append(
                DeliveryWork(
                    notification: NotificationID(try row.uuid(1)), device: device, user: user, attempt: 0,
                    isRepeat: false))
        }
        return works
    }

    private var stream: String { Keyspace().deliveries(self.provider, .normal) }

    /// Appends the next `count` deliveries.
    mutating func append(_ count: Int) async throws {
        var rest = self.works.prefix(count)
        self.works = self.works.dropFirst(count)
        while !rest.isEmpty {
            var batch = RedisBatch()
            for work in rest.prefix(256) {
                batch.append("XADD", .text(self.stream), "*", .text(DeliveryWork.field), .bytes(work.bytes))
            }
            rest = rest.dropFirst(256)
            for reply in try await self.stack.redis.connection.send(batch, timeout: .seconds(30)) {
                _ = try reply.checked()
            }
        }
    }

    /// Waits until the stream and the sets of held deliveries are empty, so that all are recorded.
    func drain(by dispatcher: ChildProcess) async throws {
        let deadline = ContinuousClock.now + .seconds(180)
        while true {
            // Read twice: one read misses a held delivery that returns to the stream meanwhile.
            let waiting = try await self.waiting()
            if waiting == 0, try await self.waiting() == 0 { return }
            guard dispatcher.exit == nil, ContinuousClock.now < deadline else {
                throw ValidationError("\(waiting) pushes are not recorded: \(dispatcher.tail())")
            }
            // Poll, because Redis does not signal an empty stream.
            try await Task.sleep(for: .milliseconds(20))
        }
    }

    /// Returns the number of deliveries in the stream and in the sets of held deliveries.
    func waiting() async throws -> Int {
        Int(try await Live(self.stack.redis.connection).waitingDeliveries(of: [self.provider], lane: .normal))
    }

    /// Returns the number of deliveries recorded as accepted.
    func accepted() async throws -> Int {
        let rows = try await self.stack.database.pool.query(
            "SELECT count(*) FROM carillon.delivery_attempts WHERE provider = $1 AND outcome = 'accepted'",
            .text(self.provider.rawValue))
        return Int(try rows.first?.int8(0) ?? 0)
    }

    private static let notifications = """
        INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, type, severity, delivery, lane,
            channels, title, body, data, status, created_at)
        SELECT $1 || '-' || n % $3::int4, gen_random_uuid(), 1 + n / $3::int4, 'x', '', 'payment_received', 'info', 'push',
            'normal', 3, 'Payment received', 'EUR 40 from Ada', '{"sent_us":1,"invoice":"i9"}'::jsonb, 'pending', now()
        FROM generate_series(0, $2::int4 - 1) n
        RETURNING user_id, id
        """

    private static let inboxes = """
        INSERT INTO carillon.inboxes (user_id, version, unread, total)
        SELECT user_id, count(*), count(*), count(*) FROM carillon.notifications WHERE user_id LIKE $1 || '-%'
        GROUP BY user_id
        """
}
