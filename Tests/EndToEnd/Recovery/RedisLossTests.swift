// Carillon · RedisLossTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Glibc
import Sandbox
import Support
import Testing

@testable import HTTP

/// Redis loses data while work waits.
@Suite(.timeLimit(.minutes(10)))
struct RedisLossTests {
    private static let catalog = """
        types:
          news: {severity: info, delivery: push}
          comment: {severity: info, delivery: push, digest: {window: 1h}}
        """

    @Test("deferred, scheduled, recurring and digest notifications survive an emptied Redis and arrive once")
    func emptied() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let environment = try stack.catalog(Self.catalog)
            let gateway = try await stack.startGateway(environment: environment)
            _ = try await stack.startDispatcher(name: "first", environment: environment)
            for user in ["asleep", "later", "daily", "gathered"] {
                try await gateway.register(user: user, platform: "android", token: "\(user)-phone")
            }
            try await gateway.set(QuietNow.settings, of: "asleep")
            for title in ["one", "two"] {
                try await stack.append([("user", "asleep"), ("type", "news"), ("title", title)])
                try await stack.append([
                    ("user", "gathered"), ("type", "comment"), ("title", title), ("digest", "post"),
                ])
            }
            let due = Schedules.later(.seconds(3_600))
            try await stack.append([("user", "later"), ("type", "news"), ("title", "later"), ("deliver_at", due)])
            let moment = Schedules.lastMinute()
            let created = try await gateway.call(
                .post, "/v1/schedules", token: Stack.token(user: "app", scope: .service),
                json: Schedules.daily(at: moment, job: #"{"user":"daily","type":"news","title":"daily"}"#))
            #expect(created.status == 201)
            try await eventually("all of them wait") {
                let asleep = try await stack.statuses(user: "asleep")
                let gathered = try await stack.query("SELECT 1 FROM carillon.digest_items")
                let scheduled = try await Schedules.count(stack)
                return asleep == ["one": "deferred", "two": "deferred"] && gathered.count == 2 && scheduled == 2
            }
            try await stack.connection.send("FLUSHALL")

            try await Schedules.makeDue(stack, daily: moment)
            try await stack.closeDigests()
            try await gateway.set(QuietNow.over, of: "asleep")
            let expected = [
                "asleep-phone": ["one", "two"], "later-phone": ["later"], "daily-phone": ["daily"],
                "gathered-phone": ["2 notifications"],
            ]
            try await eventually("all of them have arrived") { stack.pushed().mapValues { $0.sorted() } == expected }
            try await eventually("all of them are recorded") {
                try await stack.query(
                    "SELECT 1 FROM carillon.notifications WHERE status = 'sent' AND sent_via = 'fcm'"
                ).count == 5
            }

            // Emptied again, the sweep looks at everything, and nothing arrives twice.
            try await stack.makeOlder()
            try await stack.connection.send("FLUSHALL")
            _ = try await stack.startDispatcher(name: "second", environment: environment)
            try await stack.waitForSweep()
            try await stack.waitForPushes()
            #expect(stack.pushed().mapValues { $0.sorted() } == expected)
            let left = try await stack.query(
                "SELECT (SELECT count(*) FROM carillon.follow_ups) + (SELECT count(*) FROM carillon.digests)")
            #expect(try left.first?.int8(0) == 0)
        }
    }

    @Test("after a restart with an empty disk, groups and scripts return, and waiting work arrives")
    func restartedEmpty() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let environment = try stack.catalog(Self.catalog)
            let gateway = try await stack.startBoth(environment: environment)
            for user in ["asleep", "later", "gathered", "mute"] {
                try await gateway.register(user: user, platform: "android", token: "\(user)-phone")
            }
            try await gateway.register(user: "stuck", platform: "android", token: "unavailable-3x-phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            try await gateway.set(QuietNow.settings, of: "asleep")
            try await stack.append([("user", "asleep"), ("type", "news"), ("title", "dawn")])
            for title in ["one", "two"] {
                try await stack.append([
                    ("user", "gathered"), ("type", "comment"), ("title", title), ("digest", "post"),
                ])
            }
            let due = Schedules.later(.seconds(3_600))
            try await stack.append([("user", "later"), ("type", "news"), ("title", "later"), ("deliver_at", due)])
            try await eventually("all of them wait") {
                let asleep = try await stack.statuses(user: "asleep")
                let gathered = try await stack.query("SELECT 1 FROM carillon.digest_items")
                let scheduled = try await Schedules.count(stack)
                return asleep == ["dawn": "deferred"] && gathered.count == 2 && scheduled == 1
            }
            try await stack.append([("user", "stuck"), ("type", "news"), ("title", "stuck")])
            try await eventually("a push waits for its retry") {
                try await stack.query("SELECT 1 FROM carillon.delivery_attempts WHERE outcome = 'retry'").count > 0
            }

            try await stack.redis.kill()
            try stack.redis.wipe()
            try await stack.redis.start()
            try await eventually("the gateway is ready again") {
                try await gateway.call(.get, "/readyz", token: nil).status == 200
            }
            try await eventually("Redis is back and empty") {
                (try? await stack.connection.send("XLEN", "carillon:jobs").integer()) == 0
            }
            try await eventually("the open socket is registered") {
                (try? await stack.connection.send("HLEN", "carillon:presence:{ada}").integer()) == 1
            }
            try await stack.makeOlder()
            try await eventually("the waiting push is found in PostgreSQL") {
                try await stack.makeDue(.fcm)
                return stack.pushed()["unavailable-3x-phone"]?.contains("stuck") == true
            }
            try await Schedules.makeDue(stack)
            try await stack.closeDigests()
            try await gateway.set(QuietNow.over, of: "asleep")
            try await eventually("the delayed notifications have arrived") {
                let pushed = stack.pushed()
                return pushed["asleep-phone"] == ["dawn"] && pushed["later-phone"] == ["later"]
                    && pushed["gathered-phone"] == ["2 notifications"]
            }
            // A new job needs the group; the fallback push needs a script.
            let mute = try await TestSocket.synced(
                port: gateway.port, user: "mute", behaviour: TestSocket.Behaviour(answersPings: false))
            for user in ["ada", "mute"] {
                try await stack.append([("user", user), ("type", "news"), ("title", "after")])
            }
            try await eventually("both sockets have it") {
                socket.titles.contains("after") && mute.titles.contains("after")
            }
            try await eventually("the unconfirmed notification is pushed") {
                stack.pushed()["mute-phone"] == ["after"]
            }
            #expect(socket.closeCode == nil)
        }
    }

    /// The part of the dispatcher that enqueued the lost delivery.
    enum Origin: CaseIterable, Sendable {
        case job, broadcast, schedule, quietHours, sweep, proof, digest, attention, email

        static let catalog = """
            types:
              news: {severity: info, delivery: push}
              comment: {severity: info, delivery: push, digest: {window: 1h}}
              memo: {severity: info, delivery: push, attention_delay: 1h}
              letter: {channels: [in_app, email], email_after: 1h}
            """

        var type: String {
            switch self {
            case .job, .broadcast, .schedule, .quietHours, .sweep, .proof: "news"
            case .digest: "comment"
            case .attention: "memo"
            case .email: "letter"
            }
        }

        /// The title of the notification, and its status once the delivery has come.
        var expected: (title: String, status: String) {
            switch self {
            case .job, .broadcast, .schedule, .quietHours, .sweep, .proof, .email: ("lost", "sent")
            case .digest: ("2 notifications", "sent")
            case .attention: ("lost", "delivered")
            }
        }
    }

    @Test("a delivery that was queued in the seconds that Redis lost arrives once", arguments: Origin.allCases)
    func lostSeconds(from origin: Origin) async throws {
        try await Stack.with(sandbox: .withLateRetries, settings: Stack.shortLease) { stack in
            var environment = try stack.catalog(Origin.catalog)
            if origin == .email { environment.merge(stack.mailSettings()) { $1 } }
            let gateway = try await stack.startBoth(environment: environment)
            let phone = "unavailable-3x-phone"
            let address = "busy-3x-ada@example.com"
            try await gateway.register(user: "ada", platform: "android", token: phone)
            if origin == .email { try await stack.setAddress(address, of: "ada", wanting: origin.type, by: gateway) }
            let (title, status) = origin.expected
            func hasArrived() async throws -> Bool {
                try await stack.makeDue(origin == .email ? .email : .fcm)
                guard origin == .email else { return stack.pushed() == [phone: [title]] }
                return try stack.mails().map(\.recipient) == [address]
            }
            let socket = try await Self.prepare(origin, stack, gateway)
            try stack.redis.remember()

            try await Self.enqueue(origin, stack, gateway)
            // The sweep runs every 5 s.
            try await eventually("it was attempted and waits for its retry in Redis") {
                try await !stack.query("SELECT 1 FROM carillon.delivery_attempts WHERE outcome = 'retry'").isEmpty
            }
            #expect(stack.pushed().isEmpty)
            try await stack.redis.kill()
            try stack.redis.goBack()
            try await stack.redis.start()
            // The test's own connection may notice the kill with its next command only.
            try await eventually("Redis is back") { (try? await stack.connection.send("PING")) != nil }
            // After the next sweep and more failed attempts.
            try await eventually("it has come") { try await hasArrived() }
            try await eventually("it has its status") {
                try await stack.statuses(user: "ada") == [title: status]
            }
            try await stack.waitForPushes()
            #expect(try await hasArrived())
            await socket?.close()
        }
    }

    /// Brings Ada's notification to where it waits, as far as it waits at all.
    ///
    /// - Returns: her socket if she has one.
    private static func prepare(_ origin: Origin, _ stack: Stack, _ gateway: Gateway) async throws -> TestSocket? {
        let job = [("user", "ada"), ("type", origin.type), ("title", "lost")]
        var socket: TestSocket?
        switch origin {
        case .job, .broadcast: break
        case .schedule:
            try await stack.append(job + [("deliver_at", Schedules.later(.seconds(3_600)))])
            try await eventually("the schedule waits") { try await Schedules.count(stack) == 1 }
        case .quietHours, .sweep:
            try await gateway.set(QuietNow.settings, of: "ada")
            try await stack.append(job)
            try await eventually("quiet hours hold it back") {
                try await stack.statuses(user: "ada") == ["lost": "deferred"]
            }
            // As if it had been deferred in the evening.
            try await stack.query("UPDATE carillon.notifications SET stored_at = now() - interval '8 hours'")
        case .proof:
            socket = try await TestSocket.synced(
                port: gateway.port, user: "ada", behaviour: TestSocket.Behaviour(answersPings: false))
            try await stack.append(job)
            try await eventually("its proof is missing") { try await stack.proofDeadlines().count == 1 }
            try await stack.setProofDeadlines(to: Schedules.now() + .seconds(3_600))
        case .digest:
            for _ in 0..<2 { try await stack.append(job + [("digest", "post")]) }
            try await eventually("both are in the digest") {
                try await stack.query("SELECT 1 FROM carillon.digest_items").count == 2
            }
        case .attention:
            let idle = try await TestSocket.synced(port: gateway.port, user: "ada")
            try await stack.makeIdle(idle, user: "ada")
            try await stack.append(job)
            try await eventually("her socket has it, and the attention call waits") {
                let isWaiting = try await stack.query("SELECT 1 FROM carillon.follow_ups").count == 1
                return try await stack.statuses(user: "ada") == ["lost": "delivered"] && isWaiting
            }
            socket = idle
        case .email:
            try await stack.append(job)
            try await eventually("its mail waits") {
                try await stack.query("SELECT 1 FROM carillon.follow_ups").count == 1
            }
        }
        return socket
    }

    /// Makes the dispatcher enqueue the delivery.
    private static func enqueue(_ origin: Origin, _ stack: Stack, _ gateway: Gateway) async throws {
        let job = [("type", origin.type), ("title", "lost")]
        switch origin {
        case .job: try await stack.append([("user", "ada")] + job, stream: "carillon:jobs:critical")
        case .broadcast: try await stack.append([("all", "true")] + job, stream: "carillon:jobs:critical")
        case .schedule: try await Schedules.makeDue(stack)
        case .quietHours: try await gateway.set(QuietNow.over, of: "ada")
        case .sweep:
            try await stack.query("DELETE FROM carillon.follow_ups")
            try await gateway.set(QuietNow.over, of: "ada")
            try await stack.query("UPDATE carillon.notifications SET status = 'pending', status_reason = NULL")
            try await stack.query("UPDATE carillon.sweep SET swept_until = now() - interval '1 day'")
        case .proof: try await stack.setProofDeadlines(to: Schedules.now())
        case .digest: try await stack.closeDigests()
        case .attention, .email: try await stack.query("UPDATE carillon.follow_ups SET due_at = now()")
        }
    }

    @Test("an intact restart of Redis repeats no push")
    func intact() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let environment = try stack.catalog(Self.catalog)
            let gateway = try await stack.startBoth(environment: environment)
            func memory() async throws -> String? {
                try await stack.connection.send("GET", "carillon:memory").string()
            }
            let users = (0..<20).map { "u\($0)" }
            for user in users {
                try await gateway.register(user: user, platform: "android", token: "\(user)-phone")
                try await stack.append([("user", user), ("type", "news"), ("title", "once")])
            }
            try await eventually("all have it") { stack.pushed().count == users.count }
            let before = try await memory()?.split(separator: " ").first
            try await stack.redis.kill()
            try await stack.redis.start()
            try await eventually("the restart was noticed") {
                guard let after = try? await memory()?.split(separator: " ").first else { return false }
                return after != before
            }
            try await stack.waitForPushes()
            #expect(stack.pushed() == Dictionary(uniqueKeysWithValues: users.map { ("\($0)-phone", ["once"]) }))
        }
    }

    @Test("a push that Redis forgot was sent is not sent again")
    func forgottenSend() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let environment = try stack.catalog(Self.catalog)
            let gateway = try await stack.startGateway(environment: environment)
            let dispatcher = try await stack.startDispatcher(environment: environment)
            let device = try await gateway.register(user: "ada", platform: "android", token: "phone")
            try await stack.append([("user", "ada"), ("type", "news"), ("title", "once")])
            try await eventually("it counts as sent") {
                try await stack.statuses(user: "ada") == ["once": "sent"]
            }
            try await stack.waitForPushes()
            dispatcher.send(SIGTERM)
            try await dispatcher.waitForExit()
            // The stream's entry as it was before it was taken.
            let row = try #require(try await stack.query("SELECT id::text FROM carillon.notifications").first)
            let work = "1 \(try row.text(0)) \(device) 0 - ada"
            try await stack.connection.send("XADD", "carillon:{fcm}:deliveries:normal", "*", "d", .text(work))
            try await stack.redis.kill()
            try await stack.redis.start()
            _ = try await stack.startDispatcher(name: "second", environment: environment)
            try await eventually("it is looked up and dropped") {
                try await stack.query(
                    "SELECT 1 FROM carillon.delivery_attempts WHERE reason = 'already_accepted'"
                ).count >= 1
            }
            try await stack.waitForPushes()
            #expect(stack.pushed() == ["phone": ["once"]])
        }
    }
}

/// Notifications in PostgreSQL are sent even if Redis has forgotten them.
@Suite(.timeLimit(.minutes(10)))
struct SweepTests {
    private static let title = "Paid"

    @Test(
        "notifications stored before Redis lost their jobs are sent once",
        arguments: [["FLUSHALL"], ["DEL", "carillon:jobs"]] as [[RedisArgument]]
    )
    func forgottenJobs(command: [RedisArgument]) async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let gateway = try await stack.startGateway()
            try await gateway.register(user: "offline", platform: "android", token: "phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "online")
            try await Self.storeUnowned(["online", "offline"], in: stack)
            try await stack.connection.send(command)
            try await eventually("the open socket is registered") {
                try await stack.connection.send("HLEN", "carillon:presence:{online}").integer() == 1
            }
            try await stack.makeOlder()

            _ = try await stack.startDispatcher(name: "second")
            try await eventually("each has its status") {
                let online = try await stack.statuses(user: "online")
                let offline = try await stack.statuses(user: "offline")
                return online == [Self.title: "delivered"] && offline == [Self.title: "sent"]
            }
            try await stack.waitForSweep()
            #expect(socket.titles == [Self.title])
            #expect(stack.pushed() == ["phone": [Self.title]])
        }
    }

    @Test("when Redis is emptied, only the device that was still waiting gets the push")
    func forgottenForOneDevice() async throws {
        try await Stack.with(sandbox: .withLateRetries, settings: Stack.shortLease) { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher()
            try await gateway.register(user: "offline", platform: "android", token: "phone")
            let tablet = "unavailable-3x-tablet"
            try await gateway.register(user: "offline", platform: "android", token: tablet, name: "tablet")
            try await stack.append([("user", "offline"), ("type", "payment_received"), ("title", Self.title)])
            try await eventually("one device has it, and the retry for the other is planned") {
                let tried = try await stack.query("SELECT 1 FROM carillon.delivery_attempts WHERE outcome = 'retry'")
                let statuses = try await stack.statuses(user: "offline")
                return !tried.isEmpty && statuses == [Self.title: "sent"]
            }
            #expect(stack.pushed() == ["phone": [Self.title]])
            try await stack.loseRedis(killing: dispatcher)

            _ = try await stack.startDispatcher(name: "second")
            try await eventually("both devices have an accepted attempt") {
                try await stack.makeDue(.fcm)
                return try await stack.query(
                    "SELECT DISTINCT device_id FROM carillon.delivery_attempts WHERE outcome = 'accepted'"
                ).count == 2
            }
            try await stack.waitForPushes()
            #expect(stack.pushed() == ["phone": [Self.title], tablet: [Self.title]])
        }
    }

    @Test("waiting mail and attention pushes are still sent after Redis is emptied")
    func forgottenMailAndAttention() async throws {
        try await Stack.with(sandbox: .withLateRetries, settings: Stack.shortLease) { stack in
            let environment = try stack.catalog(
                """
                types:
                  letter: {channels: [in_app, email]}
                  memo: {severity: info, delivery: push, lane: critical, attention_delay: 1s}
                """
            ).merging(stack.mailSettings()) { $1 }
            let gateway = try await stack.startGateway(environment: environment)
            let dispatcher = try await stack.startDispatcher(environment: environment)
            let address = "busy-3x-ada@example.com"
            try await stack.setAddress(address, of: "ada", wanting: "letter", by: gateway)
            try await gateway.register(user: "idle", platform: "android", token: "unavailable-3x-phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "idle")
            try await stack.makeIdle(socket, user: "idle")
            try await stack.append([("user", "ada"), ("type", "letter"), ("title", "Mail")])
            try await stack.append([("user", "idle"), ("type", "memo"), ("title", "Push")])
            try await eventually("the first attempts of both have failed, and their notifications are settled") {
                let tried = try await stack.query(
                    "SELECT DISTINCT user_id FROM carillon.delivery_attempts WHERE outcome = 'retry'")
                let (ada, idle) = (try await stack.statuses(user: "ada"), try await stack.statuses(user: "idle"))
                return tried.count == 2 && ada == ["Mail": "sent"] && idle == ["Push": "delivered"]
            }
            #expect(stack.pushed().isEmpty)
            #expect(try stack.mails().isEmpty)
            try await stack.loseRedis(killing: dispatcher)

            _ = try await stack.startDispatcher(name: "second", environment: environment)
            try await eventually("both have come") {
                for provider in [Provider.email, .fcm] { try await stack.makeDue(provider) }
                let mails = try stack.mails().map(\.recipient)
                return mails == [address] && stack.pushed()["unavailable-3x-phone"] == ["Push"]
            }
            try await eventually("no follow-up is left") {
                try await stack.query("SELECT 1 FROM carillon.follow_ups").isEmpty
            }
        }
    }

    /// Makes a dispatcher store a notification for each user and die before it enqueues them.
    private static func storeUnowned(_ users: [String], in stack: Stack) async throws {
        let dispatcher = try await stack.startDispatcher(name: "doomed")
        let pool = try #require(stack.database?.pool)
        // The lock holds the whole batch in the database until the dispatcher has stopped.
        try await pool.transaction { transaction in
            try await transaction.query("LOCK TABLE carillon.inboxes IN ACCESS EXCLUSIVE MODE")
            // One job, because two might be taken separately.
            try await stack.append([
                ("users", String(decoding: JSONWriter.bytes(of: .array(users.map { .string($0) })), as: UTF8.self)),
                ("type", "payment_received"), ("title", Self.title),
            ])
            try await eventually("the dispatcher stands still with the job while PostgreSQL has all of its statement") {
                // PostgreSQL commits only what it has got to the end.
                guard try await stack.taken() == 1, try await Self.isStoring(in: stack),
                    ProcessTable.isAsleep(dispatcher.identifier)
                else { return false }
                dispatcher.send(SIGSTOP)
                // The statement may just have reached its time limit.
                let hasStopped = try await Self.isStoring(in: stack)
                if !hasStopped { dispatcher.send(SIGCONT) }
                return hasStopped
            }
        }
        try await eventually("all are stored and without an owner") {
            try await stack.query(
                "SELECT id FROM carillon.notifications WHERE status = 'pending' AND status_reason IS NULL"
            ).count == users.count
        }
        dispatcher.send(SIGKILL)
        try await dispatcher.waitForExit()
    }

    /// Whether a statement that stores notifications waits for a lock.
    private static func isStoring(in stack: Stack) async throws -> Bool {
        // The dispatcher's sweep waits for the lock, too. Other tests' databases are on the same
        // server.
        try await !stack.query(
            """
            SELECT 1 FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'
                AND query LIKE '%INSERT INTO carillon.inboxes%'
            """
        ).isEmpty
    }
}

extension SandboxConfiguration {
    /// Providers whose retries wait until a test makes them due.
    fileprivate static var withLateRetries: SandboxConfiguration {
        var configuration = SandboxConfiguration()
        configuration.retryAfter = 600
        return configuration
    }
}

extension Stack {
    /// Kills a dispatcher and empties Redis.
    fileprivate func loseRedis(killing dispatcher: ChildProcess) async throws {
        dispatcher.send(SIGKILL)
        try await dispatcher.waitForExit()
        try await self.connection.send("FLUSHALL")
    }
}
