// Carillon · StandbyTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@testable import Core
@testable import Storage

/// Calls whose commits wait for a synchronous standby.
@Suite(.timeLimit(.minutes(10)))
struct StandbyTests {
    /// A call, and a condition that holds once the primary has what the call commits.
    private struct Step: Sendable {
        let isDone: String
        let call: @Sendable (Database) async throws -> Void
    }

    private static func pool(_ server: PostgresServer, timeout: Duration = fixturePatience) throws -> PostgresPool {
        var configuration = TestDatabase.patientConfiguration(url: server.url)
        configuration.sessionSettings = StoreSession.settings
        configuration.timeout = timeout
        return try PostgresPool(configuration, logger: TestLog.logger)
    }

    private static func schedule(_ number: Int) -> Schedule {
        let digest = EntryDigest(stream: "jobs", entry: "\(1_795_000_000_000 + number)-0", fields: [])
        return Schedule(
            id: NotificationID(origin: digest, user: ""), fields: [], dueAt: Samples.start, createdAt: Samples.start)
    }

    private static func broadcast(_ job: String) -> Broadcast {
        Broadcast(
            id: Samples.notification(1, user: job).id, org: "", jobID: job, entry: "jobs/\(job)", stream: "jobs",
            fields: [], topic: nil, lane: .normal, createdAt: Samples.start)
    }

    private static let opened = Samples.notification(4, user: "fay")
    private static let delivered = Samples.notification(5, user: "fay")
    private static let letter = DeadLetter(stream: "jobs", entry: "1-0", reason: "bad", at: Samples.start, fields: [])
    private static let webhook = Webhook(
        id: Samples.notification(1, user: "").id, org: nil, url: "https://app.test", kinds: nil, secret: "s",
        createdAt: Samples.start)

    private static let steps: [String: Step] = [
        "notifications.store": Step(isDone: "EXISTS (SELECT FROM carillon.notifications WHERE user_id = 'ada')") {
            _ = try await $0.notifications.store([Samples.notification(1, user: "ada", job: "j")], areRepeats: true)
        },
        "schedules.add": Step(isDone: "EXISTS (SELECT FROM carillon.schedules WHERE content = 1)") {
            var schedule = Self.schedule(1)
            schedule.content = 1
            _ = try await $0.schedules.add([schedule])
        },
        "schedules.put": Step(isDone: "EXISTS (SELECT FROM carillon.schedules WHERE content = 2)") {
            var schedule = Self.schedule(2)
            schedule.content = 2
            _ = try await $0.schedules.put(schedule, limit: 10)
        },
        "schedules.cancel": Step(isDone: "NOT EXISTS (SELECT FROM carillon.schedules WHERE content = 0)") {
            _ = try await $0.schedules.cancel(Self.schedule(3).id)
        },
        "broadcasts.add": Step(isDone: "EXISTS (SELECT FROM carillon.broadcasts WHERE job_id = 'added')") {
            _ = try await $0.broadcasts.add([Self.broadcast("added")])
        },
        "broadcasts.transition": Step(isDone: "EXISTS (SELECT FROM carillon.broadcasts WHERE state = 'paused')") {
            _ = try await $0.broadcasts.transition(Self.broadcast("paused"), to: .paused, from: [.counting])
        },
        "digests.gather": Step(isDone: "EXISTS (SELECT FROM carillon.digest_items WHERE job_id IS NULL)") {
            let item = Samples.notification(2, user: "bob")
            let rule = DigestRule(window: .seconds(60))
            _ = try await $0.digests.gather([.init(notification: item, key: "k", rule: rule)], now: Samples.start)
        },
        "digests.gather a job": Step(isDone: "EXISTS (SELECT FROM carillon.digest_items WHERE job_id = 'd')") {
            let item = Samples.notification(3, user: "cat", job: "d")
            let rule = DigestRule(window: .seconds(60))
            _ = try await $0.digests.gather([.init(notification: item, key: "k", rule: rule)], now: Samples.start)
        },
        "inboxes.markOpened": Step(isDone: "EXISTS (SELECT FROM carillon.notifications WHERE opened_at IS NOT NULL)") {
            _ = try await $0.inboxes.markOpened(user: "fay", id: Self.opened.id, at: Samples.start)
        },
        "inboxes.markDelivered": Step(
            isDone: "EXISTS (SELECT FROM carillon.notifications WHERE delivered_at IS NOT NULL)"
        ) {
            _ = try await $0.inboxes.markDelivered(
                user: "fay", id: Self.delivered.id, at: Samples.start, via: "client")
        },
        "preferences.optIn": Step(isDone: "NOT EXISTS (SELECT FROM carillon.user_settings WHERE opted_out)") {
            try await $0.preferences.optIn(user: "gus")
        },
        "deadLetters.add": Step(isDone: "EXISTS (SELECT FROM carillon.dead_letters WHERE reason = 'bad')") {
            _ = try await $0.deadLetters.add([Self.letter])
        },
        "deadLetters.discard": Step(isDone: "NOT EXISTS (SELECT FROM carillon.dead_letters WHERE reason = 'old')") {
            var letters = $0.deadLetters
            letters.patience = .seconds(1)
            var filter = DeadLetterStore.Filter()
            filter.reason = "old"
            _ = try await letters.discard(filter)
        },
        "devices.remove": Step(isDone: "NOT EXISTS (SELECT FROM carillon.devices)") {
            _ = try await $0.devices.remove(user: "dan", token: "phone")
        },
        "topics.unsubscribe": Step(isDone: "NOT EXISTS (SELECT FROM carillon.subscriptions)") {
            _ = try await $0.topics.unsubscribe(user: "eve", topic: "news")
        },
        "webhooks.remove": Step(isDone: "NOT EXISTS (SELECT FROM carillon.webhooks)") {
            _ = try await $0.webhooks.remove(Self.webhook.id)
        },
    ]

    @Test("a repeat does not succeed until the standby has what the first call committed")
    func repeats() async throws {
        let primary = try await PostgresServer.start()
        let patient = try Self.pool(primary)
        defer { patient.close() }
        try await Migrations.apply(to: patient, logger: TestLog.logger)
        let database = Database(patient)
        #expect(try await database.schedules.add([Self.schedule(3)]) == [.stored])
        #expect(try await database.broadcasts.add([Self.broadcast("paused")]) == [.stored])
        _ = try await database.devices.register(Samples.device(user: "dan", token: "phone"))
        _ = try await database.topics.subscribe(user: "eve", topic: "news")
        #expect(try await database.webhooks.register(Self.webhook) == .made)
        _ = try await database.deadLetters.add([
            DeadLetter(stream: "jobs", entry: "2-0", reason: "old", at: Samples.start, fields: [])
        ])
        _ = try await database.notifications.store([Self.opened, Self.delivered], areRepeats: false)
        var settings = UserSettings()
        settings.isOptedOut = true
        try await database.preferences.set(user: "gus", settings: settings)

        let standby = try await primary.startStandby()
        try await primary.waitForStandby()
        try await standby.stall()
        try await eventually("commits wait") {
            let hasty = try Self.pool(primary, timeout: .seconds(1))
            defer { hasty.close() }
            return (try? await hasty.query("SELECT pg_logical_emit_message(true, 'test', '')")) == nil
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for (name, step) in Self.steps {
                group.addTask {
                    let hasty = try Self.pool(primary, timeout: .seconds(1))
                    defer { hasty.close() }
                    try await eventually("\(name): the primary has it") {
                        try? await step.call(Database(hasty))
                        return try await patient.query("SELECT \(step.isDone)").first?.bool(0) == true
                    }
                    await #expect(throws: PostgresError.self, "\(name)") { try await step.call(Database(hasty)) }
                }
            }
            try await group.waitForAll()
        }
        standby.resume()
        for (name, step) in Self.steps {
            try await eventually("\(name) succeeds") { (try? await step.call(database)) != nil }
        }
    }
}
