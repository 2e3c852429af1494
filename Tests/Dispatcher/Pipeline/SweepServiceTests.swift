// Carillon · SweepServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Providers
import Support
import Testing

@testable import Pipeline
@testable import Storage

/// Deliveries that are enqueued again when Redis restarted since the last sweep.
@Suite(.timeLimit(.minutes(10)))
struct SweepServiceTests {
    /// A dispatcher with a notification that waits for a provider, and the phone of its user.
    private struct Scene {
        let dispatcher: Dispatcher
        let pool: PostgresPool
        let redis: RedisClient
        let keys: Keyspace
        let notification: Notification
        let phone: Device

        var sweeper: SweepService { SweepService(dispatcher: self.dispatcher) }

        /// Returns the deliveries in the stream.
        func appended() async throws -> [DeliveryWork] {
            try await self.redis.entries(of: self.keys.deliveries(.fcm, .normal))
                .map { try DeliveryWork($0[DeliveryWork.field] ?? []) }
        }

        /// Makes the last sweep one of another Redis process, so many seconds ago.
        func forget(beat seconds: Int64) async throws {
            let now = try await self.dispatcher.database.clock()
            let beat = (now + .seconds(-seconds)).milliseconds
            try await self.redis.send("SET", .text(self.keys.runNote), .text("another \(beat)"))
            try await self.redis.send("DEL", .text(self.keys.sweepTurn))
        }

        /// The id of the notification of this number; ``notification`` has 1.
        static func id(_ number: UInt64) -> NotificationID {
            NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0000 + number)
        }

        /// Records that the push has failed on the phone, while a tablet waits for it.
        func failOnPhone() async throws -> Device {
            let tablet = try await Database(self.pool).devices.register(TestDispatcher.phone(4, token: "tablet"))
            try await self.pool.query("UPDATE carillon.devices SET pushed_since = now() - interval '1 hour'")
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [
                DeliveryStore.Attempt(
                    at: TestDispatcher.now, user: "ada", notification: self.notification.id, device: self.phone.id,
                    provider: .fcm, kind: "push", attempt: 8, outcome: .failed, reason: "UNAVAILABLE")
            ]
            settlement.failed = [(self.notification.key, "UNAVAILABLE", true)]
            try await self.dispatcher.database.deliveries.settle(settlement)
            return tablet.device
        }

        /// Stores another notification for the phone, without an owner.
        func store(_ number: UInt64) async throws -> Notification {
            var notification = Notification(
                id: Self.id(number), user: "ada", type: "news", createdAt: TestDispatcher.now)
            notification.channels = [.inApp, .push]
            notification.jobEntry = "jobs/\(number)-0"
            _ = try await self.dispatcher.database.notifications.store([notification], areRepeats: false)
            return notification
        }

        /// Returns the batch of its job, which is taken again.
        func repeated(version: Int64) -> StoredBatch {
            var batch = StoredBatch(
                group: self.dispatcher.group(self.keys.jobs(.normal)), catalog: self.dispatcher.catalog,
                fence: self.dispatcher.fence())
            let known = NotificationStore.Outcome.known(
                version: version, unread: 1, status: .pending, isOwned: true)
            batch.toRedo = [RoutedNotification(self.notification, .arrived).toRedo(after: known)].compactMap(\.self)
            return batch
        }

        func work(attempt: Int, unknowns: Int = 0) -> DeliveryWork {
            DeliveryWork(
                notification: self.notification.id, device: self.phone.id, user: "ada", attempt: attempt,
                isRepeat: true, unknowns: unknowns)
        }
    }

    private static func with(
        logger: Logger = TestLog.logger,
        _ body: (Scene) async throws -> Void
    ) async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: prefix)
                let dispatcher = try TestDispatcher.make(database.pool, redis, keys, [FakeChannel()], logger: logger)
                let phone = try await Database(database.pool).devices.register(TestDispatcher.phone())
                var notification = TestDispatcher.notification(channels: [.inApp, .push])
                notification.jobEntry = "jobs/1-0"
                _ = try await dispatcher.database.notifications.store([notification], areRepeats: false)
                try await dispatcher.database.notifications.mark([(notification.key, .pending, "queued", nil)])
                try await body(
                    Scene(
                        dispatcher: dispatcher, pool: database.pool, redis: redis, keys: keys,
                        notification: notification, phone: phone.device))
            }
        }
    }

    @Test("claims an emptied Redis for its database again, but none that another has claimed")
    func installation() async throws {
        try await Self.with { scene in
            let identity = try #require(try await scene.dispatcher.database.layout.identity())
            let key = RedisArgument.text(scene.keys.installation)
            try await scene.sweeper.sweep()
            #expect(try await scene.redis.send("GET", key).string() == identity)
            try await scene.redis.send("SET", key, "another")
            try await scene.redis.send("DEL", .text(scene.keys.sweepTurn))
            try await scene.sweeper.sweep()
            #expect(try await scene.redis.send("GET", key).string() == "another")
        }
    }

    @Test("deliveries since the last heartbeat are enqueued again, once, as repeats")
    func queued() async throws {
        try await Self.with { scene in
            try await scene.forget(beat: 20)
            try await scene.sweeper.sweep()
            #expect(try await scene.appended() == [scene.work(attempt: 0)])
            let stored = try await scene.dispatcher.database.notifications.load([scene.notification.key])
            #expect(stored.first?.status == .pending)
            // The process that the last sweep saw: nothing is lost.
            try await scene.redis.send("DEL", .text(scene.keys.sweepTurn))
            try await scene.sweeper.sweep()
            #expect(try await scene.appended().count == 1)
        }
    }

    @Test("repairs slice by slice, and enqueues each delivery once", arguments: [1, 2, 3])
    func repairSlices(size: Int) async throws {
        try await Self.with { scene in
            for number in 2...4 as ClosedRange<UInt64> { _ = try await scene.store(number) }
            try await scene.dispatcher.database.notifications.mark(
                (1...4 as ClosedRange<UInt64>).map {
                    (NotificationKey(user: "ada", id: Scene.id($0)), .pending, "queued", nil)
                })
            // Two at the same moment, and one that was handed on long after it was stored.
            try await scene.pool.query(
                """
                UPDATE carillon.notifications SET handed_at = NULL,
                    stored_at = now() - interval '20 seconds' + right(id::text, 1)::int / 2 * interval '1 second'
                """)
            try await scene.pool.query(
                """
                UPDATE carillon.notifications
                SET stored_at = now() - interval '1 hour', handed_at = now() - interval '15 seconds'
                WHERE id::text LIKE '%4'
                """)
            try await scene.forget(beat: 20)
            try await scene.sweeper.sweep(repairSize: size)
            let appended = try await scene.appended().map(\.notification)
            #expect(appended.sorted() == (1...4 as ClosedRange<UInt64>).map { Scene.id($0) })
        }
    }

    @Test("repairs at once, and routes unowned notifications in the same sweep")
    func repairFirst() async throws {
        let lines = LogRecorder(from: .info) { "\($0.message), \($0.metadata?["count"]?.description ?? "-")" }
        try await Self.with(logger: lines.logger) { scene in
            let unowned = try await scene.store(2)
            try await scene.pool.query(
                """
                UPDATE carillon.notifications SET stored_at = now() - interval '10 minutes'
                WHERE status_reason IS NULL
                """)
            try await scene.pool.query("UPDATE carillon.sweep SET swept_until = now() - interval '1 hour'")
            try await scene.forget(beat: 20)
            try await scene.sweeper.sweep()
            #expect(
                lines.all.filter { $0.hasPrefix("found ") } == [
                    "found queued notifications; enqueued them again, 1",
                    "found unowned notifications; routed them again, 1",
                ])
            #expect(try await scene.appended().map(\.notification) == [scene.notification.id, unowned.id])
        }
    }

    @Test("reports what it enqueues again, but not in-app notifications that no socket proved")
    func reported() async throws {
        let lines = LogRecorder(from: .info) { "\($0.message), \($0.metadata?["count"]?.description ?? "-")" }
        func found() -> [String] { lines.all.filter { $0.hasPrefix("found ") } }
        try await Self.with(logger: lines.logger) { scene in
            var inApp = TestDispatcher.notification(2, channels: [.inApp])
            inApp.jobEntry = "jobs/2-0"
            var mailed = TestDispatcher.notification(3, channels: [.inApp, .email])
            mailed.jobEntry = "jobs/3-0"
            _ = try await scene.dispatcher.database.notifications.store([inApp, mailed], areRepeats: false)
            try await scene.pool.query(
                "UPDATE carillon.notifications SET status_reason = NULL, stored_at = now() - interval '10 minutes'")
            try await scene.pool.query("UPDATE carillon.sweep SET swept_until = now() - interval '1 hour'")
            try await scene.forget(beat: 20)
            try await scene.sweeper.sweep()
            let stored = try await scene.dispatcher.database.notifications.load([inApp.key])
            #expect(stored.first?.status == .sent)
            #expect(found() == ["found unowned notifications; routed them again, 2"])
            try await scene.forget(beat: 20)
            try await scene.sweeper.sweep()
            #expect(found().dropFirst() == ["found queued notifications; enqueued them again, 1"])
        }
    }

    @Test("sweeps although a dump keeps the audit's partitions from being created")
    func dump() async throws {
        try await Self.with { scene in
            let days = try await scene.pool.query(
                "SELECT max(relname::text) FROM pg_class WHERE relname ~ '^delivery_attempts_[0-9]{8}$'")
            let last = try #require(try days.first?.text(0))
            try await scene.pool.query("DROP TABLE carillon.\(last)")
            try await scene.forget(beat: 20)
            try await scene.pool.transaction { transaction in
                try await transaction.query("LOCK TABLE carillon.delivery_attempts IN ACCESS SHARE MODE")
                let sweeper = scene.sweeper
                let run = Task { try await sweeper.run() }
                defer { run.cancel() }
                try await eventually("the sweep enqueues it again") { try await scene.appended().count == 1 }
                run.cancel()
                _ = await run.result
            }
        }
    }

    @Test("ends the database session of a stalled process, and logs it")
    func stalledSession() async throws {
        let lines = LogRecorder(from: .warning) { "\($0.message), \($0.metadata?["session"]?.description ?? "-")" }
        try await TestDispatcher.with(logger: lines.logger) { dispatcher, database in
            let client = try PostgresPool(
                database.configuration(applicationName: "carillon-gateway"), logger: TestLog.logger)
            defer { client.close() }
            let (connection, process) = try await client.withScriptConnection { connection in
                let process = try connection.query("SELECT pg_backend_pid()")
                try connection.execute("BEGIN; LOCK TABLE carillon.inboxes")
                return (connection, process.first ?? "-")
            }
            defer { withExtendedLifetime(connection) {} }
            try await SessionService(dispatcher: dispatcher, limit: .seconds(3_600)).endStalled()
            #expect(lines.all.isEmpty)
            let sessions = SessionService(dispatcher: dispatcher, limit: .zero)
            let run = Task { try await sessions.run() }
            defer { run.cancel() }
            let line = "a process stalled in a transaction; ended its database session"
            try await eventually("the session is ended") {
                lines.all.contains("\(line), carillon-gateway, process \(process)")
            }
            // Waits until the lock is free.
            try await database.pool.query("SELECT FROM carillon.inboxes")
            run.cancel()
            _ = await run.result
        }
    }

    @Test("takes over a turn that would last too long, because Redis's clock has stepped back")
    func steppedBack() async throws {
        try await Self.with { scene in
            try await scene.forget(beat: 20)
            let turn = RedisArgument.text(scene.keys.sweepTurn)
            try await scene.redis.send("SET", turn, "another", "PX", 19_000)
            try await scene.sweeper.sweep()
            #expect(try await scene.appended().isEmpty)
            try await scene.redis.send("SET", turn, "another", "PX", 3_600_000)
            try await scene.sweeper.sweep()
            #expect(try await scene.appended().count == 1)
            #expect(try await scene.redis.send("PTTL", turn).integer() <= 19_000)
        }
    }

    @Test("creates the audit's partitions only in its turn")
    func parts() async throws {
        try await Self.with { scene in
            let names = "SELECT relname::text FROM pg_class WHERE relname ~ '^delivery_attempts_[0-9]{8}$' ORDER BY 1"
            let days = try await scene.pool.query(names).map { try $0.text(0) }
            let last = try #require(days.last)
            try await scene.pool.query("DROP TABLE carillon.\(last)")
            let turn = RedisArgument.text(scene.keys.sweepTurn)
            let sweeper = scene.sweeper
            try await scene.redis.send("SET", turn, "another", "PX", 60_000)
            try await sweeper.sweep()
            #expect(try await !scene.pool.query(names).map { try $0.text(0) }.contains(last))
            try await scene.redis.send("DEL", turn)
            try await sweeper.sweep()
            #expect(try await scene.pool.query(names).map { try $0.text(0) }.contains(last))
        }
    }

    @Test("no dispatcher creates the audit's partitions for ten minutes after one could not")
    func partsPause() async throws {
        try await Self.with { scene in
            let names = "SELECT relname::text FROM pg_class WHERE relname ~ '^delivery_attempts_[0-9]{8}$' ORDER BY 1"
            let days = try await scene.pool.query(names).map { try $0.text(0) }
            let last = try #require(days.last)
            try await scene.pool.query("DROP TABLE carillon.\(last)")
            let turn = RedisArgument.text(scene.keys.sweepTurn)
            let failure = RedisArgument.text(scene.keys.partsFailure)
            try await scene.pool.transaction { transaction in
                try await transaction.query("LOCK TABLE carillon.delivery_attempts IN ACCESS SHARE MODE")
                try await scene.sweeper.sweep()
            }
            // The second pause would last too long, because Redis's clock has stepped back.
            for (pause, isCreated) in [(600_000, false), (3_600_000, true)] as [(Int64, Bool)] {
                #expect(try await scene.redis.send("PEXPIRE", failure, .integer(pause)).integer() == 1)
                try await scene.redis.send("DEL", turn)
                try await scene.sweeper.sweep()
                #expect(try await scene.pool.query(names).map { try $0.text(0) }.contains(last) == isCreated)
            }
        }
    }

    @Test("renews its turn while it routes unowned notifications")
    func renewedTurn() async throws {
        try await Self.with { scene in
            try await scene.pool.query(
                "UPDATE carillon.notifications SET status_reason = NULL, stored_at = now() - interval '10 minutes'")
            try await scene.pool.query("UPDATE carillon.sweep SET swept_until = now() - interval '1 hour'")
            try await scene.forget(beat: 20)
            let turn = RedisArgument.text(scene.keys.sweepTurn)
            let sweeper = scene.sweeper
            try await withThrowingTaskGroup(of: Void.self) { group in
                try await scene.pool.transaction { transaction in
                    // The sweep cannot mark the notification.
                    try await transaction.query("SELECT FROM carillon.notifications FOR UPDATE")
                    group.addTask { try await sweeper.sweep() }
                    try await eventually("it is appended") { try await scene.appended().count == 1 }
                    // Longer than a turn, so that the renewal shows.
                    try await scene.redis.send("SET", turn, .text(scene.dispatcher.name), "PX", 3_600_000)
                }
                try await group.waitForAll()
            }
            #expect(try await scene.redis.send("PTTL", turn).integer() <= 19_000)
        }
    }

    @Test("advances its watermark slice by slice, so that a sweep that is far behind need not start over")
    func slices() async throws {
        try await Self.with { scene in
            for number in 2...4 as ClosedRange<UInt64> {
                var inApp = TestDispatcher.notification(number, channels: [.inApp])
                inApp.jobEntry = "jobs/\(number)-0"
                _ = try await scene.dispatcher.database.notifications.store([inApp], areRepeats: false)
            }
            try await scene.pool.query(
                """
                UPDATE carillon.notifications SET status_reason = NULL,
                    stored_at = now() - interval '1 hour' + right(id::text, 1)::int * interval '1 minute'
                """)
            try await scene.pool.query("UPDATE carillon.sweep SET swept_until = now() - interval '2 hours'")
            try await scene.forget(beat: 20)
            let sweeper = scene.sweeper
            try await withThrowingTaskGroup(of: Void.self) { group in
                try await scene.pool.transaction { transaction in
                    // The sweep cannot mark the second slice.
                    try await transaction.query(
                        "SELECT FROM carillon.notifications WHERE id::text LIKE '%4' FOR UPDATE")
                    group.addTask { try await sweeper.sweep(sliceSize: 2) }
                    try await eventually("the watermark is at the end of the first slice") {
                        try await transaction.query(
                            """
                            SELECT FROM carillon.sweep WHERE swept_until = (
                                SELECT stored_at FROM carillon.notifications WHERE id::text LIKE '%2')
                            """
                        ).count == 1
                    }
                }
                try await group.waitForAll()
            }
            let left = try await scene.pool.query(
                "SELECT FROM carillon.notifications WHERE status = 'pending' AND status_reason IS NULL")
            #expect(left.isEmpty)
        }
    }

    @Test("counts from the enqueue, not from the insert")
    func window() async throws {
        try await Self.with { scene in
            try await scene.pool.query("UPDATE carillon.notifications SET stored_at = now() - interval '1 hour'")
            try await scene.forget(beat: 20)
            try await scene.sweeper.sweep()
            #expect(try await scene.appended().isEmpty)
            // Stored as long ago, but enqueued now, as when quiet hours end.
            try await scene.dispatcher.database.notifications.mark([
                (scene.notification.key, .pending, "queued", nil)
            ])
            try await scene.forget(beat: 20)
            try await scene.sweeper.sweep()
            #expect(try await scene.appended().count == 1)
        }
    }

    @Test(
        "repairs, once, what was enqueued before the clock of PostgreSQL stepped back since the last sweep",
        arguments: ["130 seconds", "-1 hour"])
    func postgresSteppedBack(storedIn: String) async throws {
        try await Self.with { scene in
            let now = try await scene.dispatcher.database.clock()
            // Enqueued after the last sweep or long before it.
            try await scene.pool.query("UPDATE carillon.notifications SET stored_at = now() + interval '\(storedIn)'")
            let mail = FollowUpStore.Item(user: "ada", notification: scene.notification.id, kind: .email)
            let (followUps, until) = (scene.dispatcher.database.followUps, now + .seconds(250))
            try await followUps.expect([mail], until: until)
            try await followUps.remember([mail], claimedUntil: until, now: now + .seconds(130))
            try await scene.forget(beat: -120)
            try await scene.sweeper.sweep()
            #expect(try await scene.appended() == [scene.work(attempt: 0)])
            let later = try await scene.dispatcher.database.clock()
            let due = try await followUps.claim(now: later, until: until, limit: 10)
            #expect(due.map(\.item) == [mail])
        }
    }

    @Test("a process that becomes master again counts as another")
    func promoted() async throws {
        let server = try await RedisServer.start()
        try await TestRedis.with(try server.configuration()) { redis in
            let before = try #require(try await RedisRun.ask(redis, note: "no-note").id)
            try await redis.send("REPLICAOF", "127.0.0.1", "1")
            try await redis.send("REPLICAOF", "NO", "ONE")
            let after = try #require(try await RedisRun.ask(redis, note: "no-note").id)
            #expect(before != after)
            #expect(before.split(separator: "-").first == after.split(separator: "-").first)
        }
        try await server.kill()
    }

    @Test("repairs once again after 30 s, as others may have written to the former master")
    func secondRepair() async throws {
        try await Self.with { scene in
            func runNote() async throws -> [String] {
                try await scene.redis.send("GET", .text(scene.keys.runNote)).string()?.split(separator: " ")
                    .map { String($0) } ?? []
            }
            try await scene.forget(beat: 20)
            try await scene.sweeper.sweep()
            for (count, isLater) in [(1, false), (2, true), (2, true)] {
                var note = try await runNote()
                if isLater { note[2] = String(try #require(Int64(note[2])) - 30_000) }
                try await scene.redis.send("SET", .text(scene.keys.runNote), .text(note.joined(separator: " ")))
                try await scene.redis.send("DEL", .text(scene.keys.sweepTurn))
                try await scene.sweeper.sweep()
                #expect(try await scene.appended().count == count)
                let repaired = try await runNote()[3]
                #expect((repaired == "-") == (count != 1))
            }
        }
    }

    @Test("enqueues again all that is queued after PostgreSQL went back to an earlier state")
    func epoch() async throws {
        try await Self.with { scene in
            try await scene.pool.query("UPDATE carillon.notifications SET stored_at = now() - interval '1 hour'")
            try await scene.forget(beat: 20)
            try await scene.sweeper.sweep()
            #expect(try await scene.appended().isEmpty)
            try await scene.pool.query("SELECT carillon.begin_epoch()")
            for _ in 0..<2 {
                try await scene.redis.send("DEL", .text(scene.keys.sweepTurn))
                try await scene.sweeper.sweep()
                #expect(try await scene.appended() == [scene.work(attempt: 0)])
            }
        }
    }

    @Test("keeps the moment at which this Redis was first seen")
    func firstSeen() async throws {
        try await Self.with { scene in
            func look() async throws -> RedisRun {
                try await RedisRun.ask(scene.redis, note: scene.keys.runNote)
            }
            let start = try await look().now
            try await scene.forget(beat: 20)
            #expect(try await look().firstSeen == nil)
            try await scene.sweeper.sweep()
            let run = try await look()
            let first = try #require(run.firstSeen)
            #expect((start...run.now).contains(first))
            // As if it had been first seen earlier.
            let id = try #require(run.id)
            try await scene.redis.send(
                "SET", .text(scene.keys.runNote), .text("\(id) \(first) \(first - 60_000)"))
            try await scene.redis.send("DEL", .text(scene.keys.sweepTurn))
            try await scene.sweeper.sweep()
            #expect(try await look().firstSeen == first - 60_000)
        }
    }

    @Test("takes no moment from a note that is out of range")
    func strangeNote() {
        let run = RedisRun(id: "run", now: 5_000, note: RedisRun.Note("run 1000 \(Int64.min) 2000 7"))
        let found = run.finding(now: Timestamp(seconds: 6), epoch: 7, oldest: Timestamp(seconds: 0))
        #expect(found.lostSince == nil && found.note == "run 6000 5000 2000 7")
    }

    @Test("warns once that Redis hides which process it is")
    func hidden() async throws {
        let server = try await RedisServer.start()
        try await TestRedis.with(try server.configuration()) { redis in
            try await TestDatabase.with { database in
                let keys = Keyspace()
                let warnings = LogRecorder(from: .warning) { "\($0.message)" }
                let dispatcher = try TestDispatcher.make(database.pool, redis, keys, logger: warnings.logger)
                let sweeper = SweepService(dispatcher: dispatcher)
                try await sweeper.sweep()
                #expect(warnings.all == [])
                try await redis.send("ACL", "SETUSER", "default", "-info")
                for _ in 0..<2 {
                    try await redis.send("DEL", .text(keys.sweepTurn))
                    try await sweeper.sweep()
                }
                #expect(warnings.all.map { $0.contains("allow INFO") } == [true])
            }
        }
        try await server.kill()
    }

    @Test("leaves a delivery that waits for a retry", arguments: [1, 7], [0, 2])
    func waiting(attempt: Int, unknowns: Int) async throws {
        try await Self.with { scene in
            let retries = Live(scene.redis, keys: scene.keys).retries
            var batch = RedisBatch()
            let work = scene.work(attempt: attempt, unknowns: unknowns)
            retries.add(work, due: TestDispatcher.now, provider: .fcm, lane: .normal, in: &batch)
            try await scene.redis.run(batch)
            try await scene.forget(beat: 20)
            try await scene.sweeper.sweep()
            #expect(try await scene.appended().isEmpty)
        }
    }

    @Test("leaves a delivery that is held back while PostgreSQL fails over")
    func held() async throws {
        try await Self.with { scene in
            let work = DeliveryWork(
                notification: scene.notification.id, device: scene.phone.id, user: "ada", attempt: 0,
                isRepeat: false, since: TestDispatcher.now)
            var batch = RedisBatch()
            Live(scene.redis, keys: scene.keys).retries.add(
                work, due: TestDispatcher.now, provider: .fcm, lane: .normal, scope: BreakerScope("default"),
                in: &batch)
            try await scene.redis.run(batch)
            try await scene.sweeper.sweep()
            try await scene.pool.query("SELECT carillon.begin_epoch()")
            try await scene.redis.send("DEL", .text(scene.keys.sweepTurn))
            try await scene.sweeper.sweep()
            #expect(try await scene.appended().isEmpty)
        }
    }

    @Test("leaves a delivery that waits for a retry among many others")
    func waitingAmongMany() async throws {
        try await Self.with { scene in
            let retries = Live(scene.redis, keys: scene.keys).retries
            var batch = RedisBatch()
            for number in 0..<10_001 {
                let other = DeliveryWork(
                    notification: NotificationID(high: 1, low: UInt64(number)), device: scene.phone.id,
                    user: "bob", attempt: 1, isRepeat: true)
                retries.add(other, due: TestDispatcher.now, provider: .fcm, lane: .normal, in: &batch)
            }
            retries.add(
                scene.work(attempt: 1), due: TestDispatcher.now, provider: .fcm, lane: .normal, in: &batch)
            try await scene.redis.run(batch)
            try await scene.forget(beat: 20)
            try await scene.sweeper.sweep()
            #expect(try await scene.appended().isEmpty)
        }
    }

    @Test("leaves deliveries of unowned notifications that wait for a retry among many others")
    func unownedAmongMany() async throws {
        try await Self.with { scene in
            let retries = Live(scene.redis, keys: scene.keys).retries
            var batch = RedisBatch()
            for number in 0..<20_000 {
                let other = DeliveryWork(
                    notification: NotificationID(high: 1, low: UInt64(number)), device: scene.phone.id,
                    user: "bob", attempt: 1, isRepeat: true)
                retries.add(other, due: TestDispatcher.now, provider: .fcm, lane: .normal, in: &batch)
            }
            let notifications = (2...21).map { (number: UInt64) in
                var notification = TestDispatcher.notification(number, channels: [.inApp, .push])
                notification.jobEntry = "jobs/\(number)-0"
                return notification
            }
            for notification in [scene.notification] + notifications {
                let work = DeliveryWork(
                    notification: notification.id, device: scene.phone.id, user: "ada", attempt: 1, isRepeat: true)
                retries.add(work, due: TestDispatcher.now, provider: .fcm, lane: .normal, in: &batch)
            }
            try await scene.redis.run(batch)
            _ = try await scene.dispatcher.database.notifications.store(notifications, areRepeats: false)
            try await scene.pool.query(
                "UPDATE carillon.notifications SET status_reason = NULL, stored_at = now() - interval '10 minutes'")
            try await scene.pool.query("UPDATE carillon.sweep SET swept_until = now() - interval '1 hour'")
            try await scene.forget(beat: 20)
            try await scene.sweeper.sweep()
            #expect(try await scene.appended().isEmpty)
            let left = try await scene.pool.query(
                "SELECT FROM carillon.notifications WHERE status = 'pending' AND status_reason IS NULL")
            #expect(left.isEmpty)
        }
    }

    @Test("a repair remembers a bounded number of waiting retries and counts the rest")
    func waitingBound() async throws {
        try await Self.with { scene in
            let retries = Live(scene.redis, keys: scene.keys).retries
            var batch = RedisBatch()
            let works = (0..<5_000).map { number in
                DeliveryWork(
                    notification: NotificationID(high: 1, low: UInt64(number)), device: scene.phone.id,
                    user: "bob", attempt: 1, isRepeat: true)
            }
            for work in works {
                retries.add(work, due: TestDispatcher.now, provider: .fcm, lane: .normal, in: &batch)
            }
            try await scene.redis.run(batch)
            let waiting = WaitingRetries(Live(scene.redis, keys: scene.keys), most: 2_000)
            let known = try await waiting.contain(works, provider: .fcm, lane: .normal).count { $0 }
            #expect((2_000..<5_000).contains(known))
            #expect(await waiting.unread == 5_000 - known)
            // A delivery that has left the set since is in flight; the set is not read again.
            try await scene.redis.send("DEL", .text(scene.keys.retries(.fcm, .normal)))
            #expect(try await waiting.contain(works, provider: .fcm, lane: .normal).count { $0 } == known)
        }
    }

    @Test("enqueues again a push that only one of two devices has, mail, and attention calls")
    func oneOfTwoDevices() async throws {
        try await Self.with { scene in
            let tablet = try await Database(scene.pool).devices.register(TestDispatcher.phone(4, token: "tablet"))
            try await scene.pool.query("UPDATE carillon.devices SET pushed_since = now() - interval '1 hour'")
            let now = try await scene.dispatcher.database.clock()
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [
                DeliveryStore.Attempt(
                    at: now, user: "ada", notification: scene.notification.id, device: scene.phone.id,
                    provider: .fcm, kind: "push", attempt: 1, outcome: .accepted)
            ]
            settlement.accepted = [(scene.notification.key, "fcm", scene.phone.id)]
            try await scene.dispatcher.database.deliveries.settle(settlement)
            let mail = FollowUpStore.Item(user: "ada", notification: scene.notification.id, kind: .email)
            let followUps = scene.dispatcher.database.followUps
            try await followUps.expect([mail], until: now + .seconds(60))
            try await followUps.remember([mail], claimedUntil: now + .seconds(60), now: now)
            try await scene.forget(beat: 20)
            try await scene.sweeper.sweep()
            #expect(try await scene.appended().map(\.device) == [tablet.device.id])
            let later = try await scene.dispatcher.database.clock()
            let due = try await scene.dispatcher.database.followUps.claim(
                now: later, until: later + .seconds(30), limit: 10)
            #expect(due.map(\.item) == [mail])
            #expect(due.allSatisfy { !$0.wasHandedOn })
        }
    }

    @Test("enqueues a lost push again that quiet hours held back until long after another device got its own")
    func releasedToSecondDevice() async throws {
        try await Self.with { scene in
            let database = scene.dispatcher.database
            let tablet = try await database.devices.register(TestDispatcher.phone(4, token: "tablet")).device
            try await scene.pool.query("UPDATE carillon.devices SET pushed_since = now() - interval '1 day'")
            try await scene.pool.query("UPDATE carillon.notifications SET stored_at = now() - interval '4 hours'")
            let now = try await database.clock()
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [
                DeliveryStore.Attempt(
                    at: now + .seconds(-3 * 3_600), user: "ada", notification: scene.notification.id,
                    device: scene.phone.id, provider: .fcm, kind: "push", attempt: 1, outcome: .accepted)
            ]
            settlement.accepted = [(scene.notification.key, "fcm", scene.phone.id)]
            try await database.deliveries.settle(settlement)
            try await scene.dispatcher.postpone([
                Postponement(
                    notification: scene.notification, kind: .release, due: TestDispatcher.now, reason: "delay")
            ])
            #expect(try await FollowUpService(dispatcher: scene.dispatcher).follow() == 1)
            #expect(try await scene.appended().contains { $0.device == tablet.id })
            #expect(try await database.notifications.load([scene.notification.key]).first?.status == .sent)

            try await scene.redis.send("DEL", .text(scene.keys.deliveries(.fcm, .normal)))
            try await scene.forget(beat: 20)
            try await scene.sweeper.sweep()
            #expect(try await scene.appended().contains { $0.device == tablet.id })
            // The gate refuses a repeat for the first device.
            let keys = [scene.phone, tablet].map {
                (key: scene.notification.key, device: $0.id, isRepeat: true)
            }
            #expect(try await database.deliveries.facts(keys).map { $0?.wasAccepted } == [true, false])
        }
    }

    @Test(
        "enqueues a push again for the device that waits for it, and not for one on which it has failed",
        arguments: [false, true])
    func failedOnOne(isRepeatedJob: Bool) async throws {
        try await Self.with { scene in
            let tablet = try await scene.failOnPhone()
            if isRepeatedJob {
                try await Router(dispatcher: scene.dispatcher).routeAndAcknowledge(scene.repeated(version: 1))
            } else {
                try await scene.forget(beat: 20)
                try await scene.sweeper.sweep()
            }
            #expect(try await scene.appended().map(\.device) == [tablet.id])
        }
    }

    @Test(
        "a notification whose push has failed ends when the other device that waits for it was switched off",
        arguments: [false, true])
    func failedOnLast(isRepeatedJob: Bool) async throws {
        try await Self.with { scene in
            _ = try await scene.failOnPhone()
            let waiting = try await scene.dispatcher.database.notifications.load([scene.notification.key])
            #expect(waiting.first?.isQueued == true)
            try await scene.pool.query("UPDATE carillon.devices SET active = false WHERE token = 'tablet'")
            if isRepeatedJob {
                try await Router(dispatcher: scene.dispatcher).routeAndAcknowledge(scene.repeated(version: 1))
            } else {
                try await scene.forget(beat: 20)
                try await scene.sweeper.sweep()
            }
            #expect(try await scene.appended().isEmpty)
            let ended = try await scene.dispatcher.database.notifications.load([scene.notification.key])
            #expect(ended.first?.status == .failed && ended.first?.statusReason == "UNAVAILABLE")
        }
    }

    @Test("appends a push again that was marked only after the connection broke")
    func between() async throws {
        try await Self.with { scene in
            try await scene.pool.query("UPDATE carillon.notifications SET status_reason = NULL")
            let router = Router(dispatcher: scene.dispatcher)
            let open = RoutedNotification(scene.notification, .stored, unread: 1)
            try await withThrowingTaskGroup(of: Void.self) { group in
                try await scene.pool.transaction { transaction in
                    try await transaction.query("SELECT FROM carillon.notifications FOR UPDATE")
                    group.addTask { try await router.route([open]) }
                    try await eventually("it is appended") { try await scene.appended().count == 1 }
                    let session = scene.redis.session
                    let identifier = try await scene.redis.send("CLIENT", "ID").integer()
                    _ = try? await scene.redis.send("CLIENT", "KILL", "ID", .integer(identifier), "SKIPME", "no")
                    try await eventually("the connection reopens") { scene.redis.session != session }
                }
                try await group.waitForAll()
            }
            #expect(try await scene.appended().count == 2)
            #expect(try await scene.appended().last?.isRepeat == true)
        }
    }

    @Test(
        "a repeated job whose acknowledgement got lost has its push enqueued again, also outside the inbox",
        arguments: [1, 0] as [Int64])
    func repeatedJob(version: Int64) async throws {
        try await Self.with { scene in
            let batch = scene.repeated(version: version)
            #expect(batch.toRedo.count == 1)
            try await Router(dispatcher: scene.dispatcher).routeAndAcknowledge(batch)
            #expect(try await scene.appended() == [scene.work(attempt: 0)])
        }
    }
}
