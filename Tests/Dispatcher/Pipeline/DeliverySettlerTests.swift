// Carillon · DeliverySettlerTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Providers
import Support
import Testing

@testable import Pipeline
@testable import Storage

/// The settlement of outcomes.
@Suite(.timeLimit(.minutes(10)))
struct DeliverySettlerTests {
    private static let notification = TestDispatcher.notification().id
    private static let device = TestDispatcher.phone().id

    private static func outcome(
        _ result: DeliveryOutcome.Result,
        attempt: Int,
        _ dispatcher: Dispatcher,
        lane: Lane = .normal,
        app: String? = "default",
        facts: DeliveryStore.Facts? = nil,
        isRepeat: Bool = false,
        isRetraction: Bool = false,
        callsForAttention: Bool = false,
        unknowns: Int = 0,
        since: Timestamp? = nil
    ) -> DeliveryOutcome {
        let work = DeliveryWork(
            notification: Self.notification, device: Self.device, user: "ada", attempt: attempt, isRepeat: isRepeat,
            callsForAttention: callsForAttention, unknowns: unknowns, isRetraction: isRetraction, since: since)
        return DeliveryOutcome(
            entry: StreamEntry(
                id: "\(attempt + 1)-0", fields: [(DeliveryWork.field, work.bytes[...])]),
            group: dispatcher.group(dispatcher.keys.deliveries(.webpush, lane)),
            lane: lane,
            term: LeaseClock.Term(),
            work: work,
            facts: facts,
            app: app,
            sentAt: TestDispatcher.now,
            result: result,
            duration: .milliseconds(5)
        )
    }

    private static func settler(_ dispatcher: Dispatcher, of provider: Provider = .webpush) -> DeliverySettler {
        DeliverySettler(dispatcher: dispatcher, provider: provider, metrics: PipelineMetrics.Deliveries(provider))
    }

    /// Stores a notification and a phone, and returns the facts of their delivery.
    private static func facts(_ dispatcher: Dispatcher, expiresAt: Timestamp? = nil) async throws -> DeliveryStore.Facts
    {
        var notification = TestDispatcher.notification(channels: [.inApp, .push])
        notification.expiresAt = expiresAt
        _ = try await dispatcher.database.notifications.store([notification], areRepeats: false)
        let phone = try await dispatcher.database.devices.register(TestDispatcher.phone()).device
        let delivery = (key: notification.key, device: phone.id, isRepeat: false)
        return try #require(try await dispatcher.database.deliveries.facts([delivery])[0])
    }

    /// Stores a pending notification, settles an outcome of it, and returns it as it is then.
    private static func settled(
        _ channels: Channels,
        _ reason: String?,
        of provider: Provider = .webpush,
        _ outcome: (Dispatcher) -> DeliveryOutcome
    ) async throws -> Notification? {
        try await TestDispatcher.with { dispatcher, _ in
            let notification = TestDispatcher.notification(channels: channels)
            let store = dispatcher.database.notifications
            _ = try await store.store([notification], areRepeats: false)
            try await store.mark([(notification.key, .pending, reason, nil)])
            try await Self.settler(dispatcher, of: provider).settle([outcome(dispatcher)])
            return try await store.load([notification.key]).first
        }
    }

    @Test("a configuration that one device's service rejects retries with growing delays until its tries are used up")
    func partialConfiguration() async throws {
        try await TestDispatcher.with { dispatcher, database in
            let settler = Self.settler(dispatcher)
            let set = dispatcher.live.retries
            let stream = RedisArgument.text(dispatcher.keys.deliveries(.webpush, .normal))
            let refused = DeliveryOutcome.Result.answered(.configuration(reason: "HTTP_403", concernsAll: false))
            // The eighth attempt of the normal lane is the last.
            for (attempt, minutes) in [1, 2, 4, 8, 16, 30, 30].enumerated() {
                try await settler.settle([Self.outcome(refused, attempt: attempt, dispatcher)])
                let due = TestDispatcher.now + .seconds(60 * Int64(minutes))
                let early = try await set.moveDue(
                    provider: .webpush, lane: .normal, now: due + .milliseconds(-1), limit: 10)
                #expect(early == 0, "after \(attempt + 1) tries")
                let late = try await set.moveDue(
                    provider: .webpush, lane: .normal, now: due + .seconds(600), limit: 10)
                #expect(late == 1, "after \(attempt + 1) tries")
            }
            #expect(try await dispatcher.redis.send("XLEN", stream).integer() == 7)
            try await settler.settle([Self.outcome(refused, attempt: 7, dispatcher)])
            #expect(try await set.count(provider: .webpush, lane: .normal) == 0)
            let letters = try await database.pool.query("SELECT reason FROM carillon.dead_letters")
            #expect(try letters.map { try $0.text(0) } == ["gave up after 8 tries: HTTP_403"])
        }
    }

    @Test("a message for which the account has to pause waits no longer than the pause")
    func longPause() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let answer = DeliveryOutcome.Result.answered(.slowDown(reason: "HTTP_429", after: .seconds(86_400)))
            try await Self.settler(dispatcher).settle([Self.outcome(answer, attempt: 0, dispatcher)])
            let set = dispatcher.live.retries
            let end = TestDispatcher.now + AccountPauses.longest
            let early = try await set.moveDue(
                provider: .webpush, lane: .normal, now: end + .milliseconds(-1), limit: 10)
            #expect(early == 0)
            let late = try await set.moveDue(
                provider: .webpush, lane: .normal, now: end + .seconds(60), limit: 10)
            #expect(late == 1)
        }
    }

    @Test(
        "a dead letter names the provider, and its app unless that is the default one",
        arguments: [("default", "webpush"), ("shop", "webpush of app shop")])
    func place(app: String, name: String) async throws {
        try await TestDispatcher.with { dispatcher, database in
            let results: [DeliveryOutcome.Result] = [
                .answered(.refused(reason: "HTTP_400")), .unsendable(reason: "too_large"),
            ]
            for (attempt, result) in results.enumerated() {
                try await Self.settler(dispatcher).settle([
                    Self.outcome(result, attempt: attempt, dispatcher, app: app)
                ])
            }
            let letters = try await database.pool.query("SELECT reason FROM carillon.dead_letters ORDER BY reason")
            #expect(
                try letters.map { try $0.text(0) } == [
                    "\(name) cannot send it: too_large", "\(name) refused it: HTTP_400",
                ])
        }
    }

    @Test("settling a held-back delivery twice queues it once")
    func heldBack() async throws {
        try await TestDispatcher.with { dispatcher, database in
            var settler = Self.settler(dispatcher)
            settler.spread = { .zero }
            let due = TestDispatcher.now + .seconds(30)
            for (attempt, app) in [(0, "shop"), (0, "shop"), (1, "news")] {
                let result = DeliveryOutcome.Result.heldBack(until: due, reason: "rate", scope: BreakerScope(app))
                try await settler.settle([Self.outcome(result, attempt: attempt, dispatcher, app: nil)])
            }
            let set = dispatcher.live.retries
            #expect(
                try await set.heldScopes(provider: .webpush, lane: .normal).map(\.app).sorted() == ["news", "shop"])
            for app in ["news", "shop"] {
                #expect(try await set.count(provider: .webpush, lane: .normal, scope: BreakerScope(app)) == 1)
            }
            #expect(try await set.count(provider: .webpush, lane: .normal) == 0)
            let early = try await set.moveDue(
                provider: .webpush, lane: .normal, scope: BreakerScope("shop"), now: due + .milliseconds(-1), limit: 10)
            #expect(early == 0)
            let late = try await set.moveDue(
                provider: .webpush, lane: .normal, scope: BreakerScope("shop"), now: due, limit: 10)
            #expect(late == 1)
            #expect(try await database.pool.query("SELECT 1 FROM carillon.delivery_attempts").isEmpty)
        }
    }

    @Test("schedules a retry again if Redis came back without it before the acknowledgement")
    func lostRetry() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let (redis, keys) = (dispatcher.redis, dispatcher.keys)
            let stream = RedisArgument.text(keys.deliveries(.webpush, .normal))
            let retries = RedisArgument.text(keys.retries(.webpush, .normal))
            // The acknowledgement fails, because this is no stream.
            try await redis.send("SET", stream, "x")
            let failed = DeliveryOutcome.Result.answered(.retry(reason: "HTTP_503", after: nil))
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask {
                    try await Self.settler(dispatcher).settle([Self.outcome(failed, attempt: 0, dispatcher)])
                }
                try await eventually("it is scheduled") { try await redis.send("ZCARD", retries).integer() == 1 }
                try await redis.send("DEL", retries)
                let session = redis.session
                let identifier = try await redis.send("CLIENT", "ID").integer()
                _ = try? await redis.send("CLIENT", "KILL", "ID", .integer(identifier), "SKIPME", "no")
                try await eventually("the connection reopens") { redis.session != session }
                try await redis.send("DEL", stream)
                try await group.waitForAll()
            }
            #expect(try await redis.send("ZCARD", retries).integer() == 1)
        }
    }

    @Test("schedules a retry only after its claim is released, also if Redis has forgotten its scripts")
    func releasedFirst() async throws {
        // A new Redis knows no script.
        let server = try await RedisServer.start()
        try await TestRedis.with(try server.configuration()) { redis in
            try await TestDatabase.with { database in
                let dispatcher = try TestDispatcher.make(database.pool, redis, Keyspace())
                dispatcher.leaseClock.hold()
                try await redis.send("CONFIG", "SET", "slowlog-log-slower-than", "0")
                let failed = DeliveryOutcome.Result.answered(.retry(reason: "HTTP_503", after: nil))
                try await Self.settler(dispatcher).settle([Self.outcome(failed, attempt: 0, dispatcher)])
                // The newest comes first.
                var entries = try #require(try await redis.send("SLOWLOG", "GET", "-1").cursor())
                var commands: [String] = []
                for _ in 0..<(try entries.array() ?? 0) {
                    let rest = (try entries.array() ?? 0) - 4
                    for _ in 0..<3 { try entries.skip() }
                    let count = try entries.array() ?? 0
                    commands.append(try entries.string() ?? "")
                    for _ in 0..<(count - 1 + rest) { try entries.skip() }
                }
                #expect(commands.reversed().filter { $0 == "EVAL" || $0 == "ZADD" } == ["EVAL", "ZADD", "EVAL"])
            }
        }
    }

    @Test("reports the events of a settlement that Redis refuses at first")
    func refusedEvents() async throws {
        let lines = LogRecorder(from: .warning) { "\($0.metadata?["step"] ?? "")" }
        let server = try await RedisServer.start()
        try await TestRedis.with(try server.configuration()) { redis in
            try await TestDatabase.with { database in
                let dispatcher = try TestDispatcher.make(
                    database.pool, redis, Keyspace(), eventsLength: 100, logger: lines.logger)
                dispatcher.leaseClock.hold()
                let facts = try await Self.facts(dispatcher)
                try await redis.send("CONFIG", "SET", "min-replicas-to-write", "1")
                try await withThrowingTaskGroup(of: Void.self) { group in
                    group.addTask {
                        let accepted = DeliveryOutcome.Result.answered(.accepted(id: "1"))
                        try await Self.settler(dispatcher).settle([
                            Self.outcome(accepted, attempt: 0, dispatcher, facts: facts)
                        ])
                    }
                    try await eventually("Redis has refused it") { lines.all.contains("settle deliveries") }
                    try await redis.send("CONFIG", "SET", "min-replicas-to-write", "0")
                    try await group.waitForAll()
                }
                let events = try await redis.entries(of: dispatcher.keys.events).compactMap { $0.texts["event"] }
                #expect(events == ["sent"])
            }
        }
    }

    @Test(
        "a takeover does not requeue a waiting delivery",
        arguments: [
            .noCredential(reason: "invalid_grant"), .answered(.configuration(reason: "HTTP_403")),
            .postponed(until: TestDispatcher.now + .seconds(60)),
        ] as [DeliveryOutcome.Result])
    func takenOver(result: DeliveryOutcome.Result) async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let settler = Self.settler(dispatcher)
            for isRepeat in [false, true] {
                try await settler.settle([Self.outcome(result, attempt: 0, dispatcher, isRepeat: isRepeat)])
            }
            let set = dispatcher.live.retries
            #expect(try await set.count(provider: .webpush, lane: .normal) == 1)
        }
    }

    @Test(
        "a delivery whose next try would come too late waits until it expires, without a dead letter",
        arguments: [
            (.answered(.retry(reason: "UNAVAILABLE", after: .seconds(60))), "UNAVAILABLE"),
            (.noCredential(reason: "invalid_grant"), "invalid_grant"),
        ] as [(DeliveryOutcome.Result, String)])
    func outOfTime(result: DeliveryOutcome.Result, reason: String) async throws {
        try await TestDispatcher.with { dispatcher, database in
            let expiry = TestDispatcher.now + .seconds(20)
            let facts = try await Self.facts(dispatcher, expiresAt: expiry)
            try await Self.settler(dispatcher).settle([Self.outcome(result, attempt: 0, dispatcher, facts: facts)])
            let set = dispatcher.live.retries
            let early = try await set.moveDue(
                provider: .webpush, lane: .normal, now: expiry + .milliseconds(-1), limit: 10)
            #expect(early == 0)
            let late = try await set.moveDue(provider: .webpush, lane: .normal, now: expiry, limit: 10)
            #expect(late == 1)
            let attempts = try await database.pool.query(
                "SELECT outcome, reason FROM carillon.delivery_attempts WHERE kind = 'push'")
            #expect(try attempts.map { try [$0.text(0), $0.text(1)] } == [["retry", reason]])
            #expect(try await database.pool.query("SELECT FROM carillon.dead_letters").isEmpty)
        }
    }

    @Test("a held-back delivery whose turn comes too late waits until it expires")
    func heldBackTooLong() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let expiry = TestDispatcher.now + .seconds(20)
            let facts = try await Self.facts(dispatcher, expiresAt: expiry)
            let result = DeliveryOutcome.Result.heldBack(
                until: expiry + .seconds(60), reason: "rate", scope: BreakerScope("default"))
            try await Self.settler(dispatcher).settle([Self.outcome(result, attempt: 0, dispatcher, facts: facts)])
            let set = dispatcher.live.retries
            let early = try await set.moveDue(
                provider: .webpush, lane: .normal, scope: BreakerScope("default"), now: expiry + .milliseconds(-1),
                limit: 10)
            #expect(early == 0)
            let late = try await set.moveDue(
                provider: .webpush, lane: .normal, scope: BreakerScope("default"), now: expiry, limit: 10)
            #expect(late == 1)
        }
    }

    @Test(
        "repeats a delivery after an unknown outcome once, a critical push 40 times, whatever its other tries",
        arguments: [
            (.webpush, .normal, 3, 0, true), (.webpush, .normal, 3, 1, false),
            (.webpush, .critical, 60, 1, true), (.webpush, .critical, 60, 40, false),
            (.email, .critical, 60, 0, true), (.email, .critical, 60, 1, false),
        ] as [(Provider, Lane, Int, Int, Bool)])
    func unknown(provider: Provider, lane: Lane, attempt: Int, unknowns: Int, isRepeated: Bool) async throws {
        try await TestDispatcher.with { dispatcher, database in
            let facts = try await Self.facts(dispatcher, expiresAt: TestDispatcher.now + .seconds(86_400))
            let result = DeliveryOutcome.Result.unanswered(reason: "timeout", mayHaveBeenSent: true)
            try await Self.settler(dispatcher, of: provider).settle([
                Self.outcome(
                    result, attempt: attempt, dispatcher, lane: lane, facts: facts, unknowns: unknowns,
                    since: TestDispatcher.now)
            ])
            let waiting = try await dispatcher.live.retries.count(provider: provider, lane: lane)
            #expect(waiting == (isRepeated ? 1 : 0))
            let letters = try await database.pool.query("SELECT FROM carillon.dead_letters")
            #expect(letters.count == (isRepeated ? 0 : 1))
        }
    }

    @Test(
        "a critical delivery whose provider refuses it for a day ends after its tries, long before it expires",
        arguments: [(0, true), (1, false)] as [(Int64, Bool)])
    func refusedForLong(days: Int64, isRetried: Bool) async throws {
        try await TestDispatcher.with { dispatcher, database in
            let facts = try await Self.facts(dispatcher, expiresAt: TestDispatcher.now + .seconds(30 * 86_400))
            let result = DeliveryOutcome.Result.answered(.retry(reason: "HTTP_503", after: nil))
            let since = TestDispatcher.now - .seconds(days * 86_400)
            try await Self.settler(dispatcher).settle([
                Self.outcome(result, attempt: 60, dispatcher, lane: .critical, facts: facts, since: since)
            ])
            let waiting = try await dispatcher.live.retries.count(provider: .webpush, lane: .critical)
            #expect(waiting == (isRetried ? 1 : 0))
            let letters = try await database.pool.query("SELECT reason FROM carillon.dead_letters")
            #expect(try letters.map { try $0.text(0) } == (isRetried ? [] : ["gave up after 61 tries: HTTP_503"]))
        }
    }

    @Test(
        "a delivery that cannot be sent has the cause as its reason",
        arguments: [
            (.gone, false, "device_inactive"), (.gone, true, "device_inactive"),
            (.noCredential(reason: "invalid_grant"), false, "invalid_grant"),
            (.noCredential(reason: "invalid_grant"), true, "invalid_grant"),
            (.heldBack(until: TestDispatcher.now, reason: "rate", scope: BreakerScope("default")), true, "rate"),
            (.noProvider, true, "no_provider"),
        ] as [(DeliveryOutcome.Result, Bool, String)])
    func cause(result: DeliveryOutcome.Result, isRetraction: Bool, reason: String) async throws {
        try await TestDispatcher.with { dispatcher, database in
            try await database.pool.query("INSERT INTO carillon.users (user_id) VALUES ('ada')")
            try await Self.settler(dispatcher).settle([
                Self.outcome(result, attempt: 0, dispatcher, isRetraction: isRetraction)
            ])
            let attempts = try await database.pool.query("SELECT reason FROM carillon.delivery_attempts")
            #expect(try attempts.map { try $0.text(0) } == [reason])
        }
    }

    @Test("a message that our rules forbid becomes a dead letter without a call")
    func unsendable() async throws {
        try await TestDispatcher.with { dispatcher, database in
            let settler = Self.settler(dispatcher)
            let result = DeliveryOutcome.Result.unsendable(reason: "no_subscription")
            try await settler.settle([Self.outcome(result, attempt: 0, dispatcher)])
            #expect(settler.tally.all.isEmpty)
            let letters = try await database.pool.query("SELECT reason FROM carillon.dead_letters")
            #expect(try letters.map { try $0.text(0) } == ["webpush cannot send it: no_subscription"])
            let attempts = try await database.pool.query(
                "SELECT outcome, reason FROM carillon.delivery_attempts")
            #expect(try attempts.map { try [$0.text(0), $0.text(1)] } == [["failed", "no_subscription"]])
            let set = dispatcher.live.retries
            #expect(try await set.count(provider: .webpush, lane: .normal) == 0)
        }
    }

    /// Returns the kinds of the events in the events' stream.
    private static func told(_ redis: RedisClient, _ keys: Keyspace) async throws -> [String] {
        try await redis.entries(of: keys.events).compactMap { $0.texts["event"] }
    }

    @Test(
        "reports a dead token once, unless it was registered after the evidence", arguments: [false, true])
    func deadToken(isRetraction: Bool) async throws {
        try await TestDispatcher.with(eventsLength: 1_000) { dispatcher, database in
            let (redis, keys) = (dispatcher.redis, dispatcher.keys)
            try await TestDispatcher.storePushes(in: database.pool)
            let delivery = (
                key: NotificationKey(user: "ada", id: Self.notification), device: Self.device, isRepeat: false
            )
            let facts = try #require(try await dispatcher.database.deliveries.facts([delivery])[0])
            let settler = Self.settler(dispatcher)
            func dead(_ attempt: Int, evidence: Duration) -> DeliveryOutcome {
                let answer = ProviderAnswer.deadToken(
                    reason: "Unregistered", evidence: TestDispatcher.now + evidence)
                return Self.outcome(
                    .answered(answer), attempt: attempt, dispatcher, facts: facts, isRetraction: isRetraction)
            }
            let isActive = "SELECT 1 FROM carillon.devices WHERE active"
            // A retraction that fails says nothing about its notification.
            let failure: [String] = isRetraction ? [] : ["failed"]
            try await settler.settle([dead(0, evidence: .seconds(-1))])
            #expect(try await Self.told(redis, keys) == failure)
            #expect(try await database.pool.query(isActive).count == 1)
            try await settler.settle([dead(1, evidence: .seconds(1)), dead(2, evidence: .seconds(1))])
            #expect(try await Self.told(redis, keys) == failure + ["token_invalid"] + failure + failure)
            #expect(try await database.pool.query(isActive).isEmpty)
            try await settler.settle([dead(3, evidence: .seconds(1))])
            let told = try await Self.told(redis, keys)
            #expect(told.filter { $0 == "token_invalid" }.count == 1)
        }
    }

    @Test(
        "a token that is rejected a day after its registration is dead, however old the evidence",
        arguments: [(.seconds(2 * 86_400), false), (.seconds(3_600), true)] as [(Duration, Bool)], [false, true])
    func oldEvidence(registration: (age: Duration, stays: Bool), isRetraction: Bool) async throws {
        try await TestDispatcher.with { dispatcher, database in
            let facts = try await Self.facts(dispatcher)
            try await database.pool.query(
                "UPDATE carillon.devices SET registered_at = $1",
                .timestamptz((TestDispatcher.now - registration.age).microseconds))
            let answer = ProviderAnswer.deadToken(
                reason: "Unregistered", evidence: Timestamp(seconds: 1_577_836_800))
            try await Self.settler(dispatcher).settle([
                Self.outcome(.answered(answer), attempt: 0, dispatcher, facts: facts, isRetraction: isRetraction)
            ])
            let active = try await database.pool.query("SELECT FROM carillon.devices WHERE active")
            #expect(active.count == (registration.stays ? 1 : 0))
        }
    }

    @Test("postpones a notification once whose pushes to several devices reach the gate in quiet hours")
    func postponed() async throws {
        try await TestDispatcher.with(eventsLength: 1_000) { dispatcher, database in
            let notification = TestDispatcher.notification(channels: [.inApp, .push])
            _ = try await dispatcher.database.notifications.store([notification], areRepeats: false)
            let phone = try await dispatcher.database.devices.register(TestDispatcher.phone()).device
            let delivery = (key: notification.key, device: phone.id, isRepeat: false)
            let facts = try #require(try await dispatcher.database.deliveries.facts([delivery])[0])
            let result = DeliveryOutcome.Result.postponed(until: TestDispatcher.now + .seconds(3_600))
            func reach(_ attempts: ClosedRange<Int>) async throws {
                try await Self.settler(dispatcher).settle(
                    attempts.map { Self.outcome(result, attempt: $0, dispatcher, facts: facts) })
            }
            try await reach(0...1)
            // As the batch of another provider does.
            try await reach(2...2)
            #expect(try await Self.told(dispatcher.redis, dispatcher.keys) == ["deferred"])
            let steps = try await database.pool.query(
                "SELECT FROM carillon.delivery_attempts WHERE outcome = 'deferred'")
            #expect(steps.count == 1)
        }
    }

    @Test("a delivery of an erased user leaves no audit row", arguments: [false, true])
    func erased(isRetraction: Bool) async throws {
        try await TestDispatcher.with { dispatcher, database in
            let settler = Self.settler(dispatcher)
            let audit = "SELECT attempt FROM carillon.delivery_attempts"
            try await settler.settle([Self.outcome(.gone, attempt: 0, dispatcher, isRetraction: isRetraction)])
            #expect(try await database.pool.query(audit).isEmpty)
            // Only the notification or the device of a known user is gone.
            try await database.pool.query("INSERT INTO carillon.users (user_id) VALUES ('ada')")
            try await settler.settle([Self.outcome(.gone, attempt: 1, dispatcher, isRetraction: isRetraction)])
            let attempts = try await database.pool.query(audit)
            #expect(try attempts.map { try $0.int4(0) } == [2])
        }
    }

    @Test("counts a call for the app whose credentials it used")
    func app() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let settler = Self.settler(dispatcher)
            let accepted = DeliveryOutcome.Result.answered(.accepted(id: nil))
            try await settler.settle([
                Self.outcome(accepted, attempt: 0, dispatcher, app: "relay"),
                Self.outcome(.gone, attempt: 1, dispatcher, app: nil),
            ])
            #expect(settler.tally.all.map(\.app) == ["relay"])
        }
    }

    @Test(
        "mail that killed its dispatchers ends a notification that waits for nothing else",
        arguments: [([.email], .failed), ([.push, .email], .failed), ([.inApp, .push, .email], .sent)]
            as [(Channels, NotificationStatus)])
    func poisonedMail(channels: Channels, status: NotificationStatus) async throws {
        let stored = try await Self.settled(channels, "queued", of: .email) { Self.outcome(.poison, attempt: 1, $0) }
        #expect(stored?.status == status)
        #expect(stored?.statusReason == "dispatchers_died")
    }

    @Test(
        "a failed call for attention leaves a notification that a socket may prove, and ends one that is queued",
        arguments: [.gone, .answered(.deadToken(reason: "UNREGISTERED", evidence: TestDispatcher.now))]
            as [DeliveryOutcome.Result],
        [(nil, .pending), ("queued", .sent)] as [(String?, NotificationStatus)])
    func failedAttention(result: DeliveryOutcome.Result, row: (reason: String?, end: NotificationStatus)) async throws {
        let stored = try await Self.settled([.inApp, .push], row.reason) { dispatcher in
            Self.outcome(result, attempt: 0, dispatcher, callsForAttention: true)
        }
        #expect(stored?.status == row.end)
    }

    @Test(
        "a push that expires or is no longer wanted at the gate ends its notification as anywhere else",
        arguments: [
            (.expired, [.inApp, .push], .expired), (.expired, [.push], .expired), (.optedOut, [.inApp, .push], .sent),
            (.optedOut, [.push], .suppressed),
        ] as [(GateRefusal, Channels, NotificationStatus)])
    func refused(refusal: GateRefusal, channels: Channels, status: NotificationStatus) async throws {
        let stored = try await Self.settled(channels, "queued") { dispatcher in
            Self.outcome(.refused(refusal), attempt: 0, dispatcher)
        }
        #expect(stored?.status == status)
        #expect(stored?.statusReason == refusal.rawValue)
    }

    @Test("a repeat of mail that went out does not end a notification that waits for proof")
    func repeatedMail() async throws {
        let stored = try await Self.settled([.inApp, .email], nil, of: .email) { dispatcher in
            Self.outcome(.refused(.alreadyAccepted), attempt: 0, dispatcher, isRepeat: true)
        }
        #expect(stored?.status == .pending)
    }

    @Test("a push that is no longer needed ends its notification, with an event")
    func needless() async throws {
        try await TestDispatcher.with(eventsLength: 100) { dispatcher, _ in
            let notification = TestDispatcher.notification(channels: [.inApp, .push])
            _ = try await dispatcher.database.notifications.store([notification], areRepeats: false)
            try await dispatcher.database.notifications.mark([(notification.key, .pending, "queued", nil)])
            let settler = Self.settler(dispatcher)
            try await settler.settle([Self.outcome(.gone, attempt: 1, dispatcher)])
            let stored = try await dispatcher.database.notifications.load([notification.key])
            #expect(stored.map(\.status) == [.sent])
            #expect(stored.map(\.statusReason) == ["no_device"])
            let events = try await dispatcher.redis.entries(of: dispatcher.keys.events).map(\.texts)
            #expect(events.map { $0["event"] } == ["sent"])
            #expect(events.map { $0["reason"] } == ["no_device"])
        }
    }
}
