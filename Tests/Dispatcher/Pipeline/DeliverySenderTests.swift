// Carillon · DeliverySenderTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import FoundationEssentials
import Logging
import Support
import Synchronization
import Testing

@testable import Core
@testable import Pipeline
@testable import Providers
@testable import Storage

/// Sending, up to the provider's call.
@Suite(.timeLimit(.minutes(10)))
struct DeliverySenderTests {
    private static let first = TestDispatcher.notification(1).id
    private static let second = TestDispatcher.notification(2).id
    private static let device = TestDispatcher.phone().id

    private static func store(in pool: PostgresPool) async throws {
        try await TestDispatcher.storePushes(2, in: pool)
    }

    /// Sends the first notification to the device, as the entry `1-0`.
    @discardableResult
    private static func send(by dispatcher: Dispatcher, isRetraction: Bool = false) async throws -> Settled {
        let work = DeliveryWork(
            notification: Self.first, device: Self.device, user: "ada", attempt: 0, isRepeat: false,
            isRetraction: isRetraction)
        let entry = StreamEntry(id: "1-0", fields: [(DeliveryWork.field, work.bytes[...])])
        let group = dispatcher.group(dispatcher.keys.deliveries(.fcm, .normal))
        let sender = DeliverySender(dispatcher: dispatcher, provider: .fcm, calls: 512)
        return Settled(try await sender.sendAlone(LaneBatch(lane: .normal, group: group, entries: [entry])))
    }

    @Test("a push whose process ends before the gate stays pending")
    func endsBeforeTheGate() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                try await Self.store(in: database.pool)
                let pool = try PostgresPool(database.configuration(), logger: TestLog.logger)
                let keys = Keyspace(prefix: prefix)
                let work = Mutex<Task<Void, any Error>?>(nil)
                let time = Mutex(ContinuousClock.now)
                // During the first call, the looked-up facts get old, PostgreSQL fails, and the
                // process receives SIGTERM.
                let channel = FakeChannel.accepting { _ in
                    time.withLock { $0 += .seconds(2) }
                    pool.close()
                    work.withLock { $0?.cancel() }
                }
                let dispatcher = try TestDispatcher.make(
                    pool, redis, keys, [channel], instant: { time.withLock { $0 } })
                dispatcher.leaseClock.hold()
                let stream = keys.deliveries(.fcm, .normal)
                let entries = [Self.first, Self.second].enumerated().map { number, id in
                    let work = DeliveryWork(
                        notification: id, device: Self.device, user: "ada", attempt: 0, isRepeat: false)
                    return StreamEntry(
                        id: "\(number + 1)-0", fields: [(DeliveryWork.field, work.bytes[...])])
                }
                dispatcher.inFlight.take(entries.map(\.id), of: stream)
                let sender = DeliverySender(dispatcher: dispatcher, provider: .fcm, calls: 512)
                let batch = LaneBatch(lane: .normal, group: dispatcher.group(stream), entries: entries)
                let settled = Settled()
                let task = Task { settled.add(try await sender.sendAlone(batch)) }
                work.withLock { $0 = task }
                try await task.value
                #expect(settled.entries == ["1-0"])
                // The second entry stays pending for a takeover, and is no longer in flight.
                #expect(dispatcher.inFlight.contains("1-0", of: stream))
                #expect(!dispatcher.inFlight.contains("2-0", of: stream))
            }
        }
    }

    @Test("a service whose lookups fail ends when it is cancelled, with a batch that waits")
    func endsDuringAnOutage() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let pool = try PostgresPool(database.configuration(), logger: TestLog.logger)
                pool.close()
                let keys = Keyspace(prefix: prefix)
                let dispatcher = try TestDispatcher.make(pool, redis, keys, [FakeChannel.accepting()])
                dispatcher.leaseClock.hold()
                let stream = keys.deliveries(.fcm, .normal)
                try await dispatcher.group(stream).create()
                for _ in 0..<20 {
                    let work = DeliveryWork(
                        notification: Self.first, device: Self.device, user: "ada", attempt: 0, isRepeat: false)
                    try await redis.send("XADD", .text(stream), "*", .text(DeliveryWork.field), .bytes(work.bytes))
                }
                // Two calls at most, so batches of one.
                let service = DeliveriesService(
                    dispatcher: dispatcher, provider: .fcm, calls: 2, readers: [PartLane(keys, .normal, redis)])
                let isOver = Mutex(false)
                let run = Task {
                    try? await service.run()
                    isOver.withLock { $0 = true }
                }
                try await eventually("one is looked up and another waits") {
                    dispatcher.inFlight.count(of: stream) >= 2
                }
                run.cancel()
                try await eventually("the service has ended") { isOver.withLock { $0 } }
            }
        }
    }

    @Test(
        "a push ends without a call when its device signs out or gets another user",
        arguments: [
            (nil, "sent no_device"), ("eve", "failed device_inactive"),
        ] as [(String?, String)])
    func signedOut(newUser: String?, end: String) async throws {
        let calls = Mutex(0)
        let channel = FakeChannel.accepting { _ in calls.withLock { $0 += 1 } }
        try await TestDispatcher.with(channel) { dispatcher, database in
            let redis = dispatcher.redis
            try await Self.store(in: database.pool)
            let stream = dispatcher.keys.deliveries(.fcm, .normal)
            let group = dispatcher.group(stream)
            try await group.create()
            let work = DeliveryWork(
                notification: Self.first, device: Self.device, user: "ada", attempt: 0, isRepeat: false)
            try await redis.send("XADD", .text(stream), "*", .text(DeliveryWork.field), .bytes(work.bytes))
            let devices = dispatcher.database.devices
            if let newUser {
                _ = try await devices.register(
                    Device(
                        id: NotificationID.random(), user: newUser, platform: .android, provider: .fcm,
                        app: "default", environment: .production, token: "phone",
                        registeredAt: TestDispatcher.now))
            } else {
                #expect(try await devices.remove(user: "ada", id: Self.device))
            }
            let entries = try await group.readWaiting(count: 10)
            #expect(entries.count == 1)
            let service = DeliveriesService(dispatcher: dispatcher, provider: .fcm, calls: 8, readers: [])
            try await service.sendAlone(
                LaneBatch(
                    lane: .normal, group: group, entries: entries, term: try #require(dispatcher.leaseClock.term)))
            #expect(calls.withLock { $0 } == 0)
            #expect(try await redis.send("XLEN", .text(stream)).integer() == 0)
            let attempts = try await database.pool.query(
                "SELECT outcome || ' ' || reason FROM carillon.delivery_attempts WHERE kind = 'push'")
            #expect(try attempts.map { try $0.text(0) } == ["skipped device_inactive"])
            let stored = try await database.pool.query(
                "SELECT status || ' ' || status_reason FROM carillon.notifications WHERE id = $1",
                .uuid(Self.first.halves))
            #expect(try stored.map { try $0.text(0) } == [end])
            #expect(try await database.pool.query("SELECT FROM carillon.dead_letters").isEmpty)
        }
    }

    @Test("mail whose user has lost the address since it was queued ends without a call")
    func lostAddress() async throws {
        try await TestDispatcher.with(FakeChannel(provider: .email)) { dispatcher, database in
            try await Self.store(in: database.pool)
            try await database.pool.query(
                "UPDATE carillon.notifications SET channels = \(Channels.email.rawValue)")
            try await dispatcher.database.preferences.set(
                user: "ada", preferences: ["news": TypePreference(email: true)])
            let stream = dispatcher.keys.deliveries(.email, .normal)
            let group = dispatcher.group(stream)
            try await group.create()
            let work = DeliveryWork(
                notification: Self.first, device: Device.emailAddress, user: "ada", attempt: 0, isRepeat: false)
            try await dispatcher.redis.send("XADD", .text(stream), "*", .text(DeliveryWork.field), .bytes(work.bytes))
            let entries = try await group.readWaiting(count: 10)
            let service = DeliveriesService(dispatcher: dispatcher, provider: .email, calls: 8, readers: [])
            try await service.sendAlone(
                LaneBatch(
                    lane: .normal, group: group, entries: entries, term: try #require(dispatcher.leaseClock.term)))
            let attempts = try await database.pool.query(
                "SELECT kind || ' ' || outcome || ' ' || reason FROM carillon.delivery_attempts")
            #expect(try attempts.map { try $0.text(0) } == ["email skipped no_address"])
            let stored = try await database.pool.query(
                "SELECT status || ' ' || status_reason FROM carillon.notifications WHERE id = $1",
                .uuid(Self.first.halves))
            #expect(try stored.map { try $0.text(0) } == ["failed no_address"])
        }
    }

    @Test(
        "a push that quiet hours meet in the queue waits for their end, or ends if its type is not pushed in them",
        arguments: [
            (QuietPolicy.defer, [.inApp, .push], "skipped quiet_hours", "deferred quiet_hours"),
            (.inAppOnly, [.inApp, .push], "skipped not_in_quiet_hours", "sent quiet_hours"),
            (.drop, [.inApp, .push], "skipped not_in_quiet_hours", "sent quiet_hours"),
            (.drop, [.push], "skipped not_in_quiet_hours", "suppressed quiet_hours"),
        ] as [(QuietPolicy, Channels, String, String)])
    func quietHours(policy: QuietPolicy, channels: Channels, attempt: String, end: String) async throws {
        let calls = Mutex(0)
        let channel = FakeChannel.accepting { _ in calls.withLock { $0 += 1 } }
        var type = NotificationType(name: "news")
        type.quietHours = policy
        try await TestDispatcher.with(channel, types: [type]) { dispatcher, database in
            try await Self.store(in: database.pool)
            try await database.pool.query("UPDATE carillon.notifications SET channels = \(channels.rawValue)")
            var settings = UserSettings()
            // Quiet all day except for a minute.
            settings.quietHours = QuietHours(start: 1, end: 0)
            try await dispatcher.database.preferences.set(user: "ada", settings: settings)
            let stream = dispatcher.keys.deliveries(.fcm, .normal)
            let group = dispatcher.group(stream)
            try await group.create()
            let work = DeliveryWork(
                notification: Self.first, device: Self.device, user: "ada", attempt: 0, isRepeat: false)
            try await dispatcher.redis.send("XADD", .text(stream), "*", .text(DeliveryWork.field), .bytes(work.bytes))
            let entries = try await group.readWaiting(count: 10)
            let service = DeliveriesService(dispatcher: dispatcher, provider: .fcm, calls: 8, readers: [])
            try await service.sendAlone(
                LaneBatch(
                    lane: .normal, group: group, entries: entries, term: try #require(dispatcher.leaseClock.term)))
            #expect(calls.withLock { $0 } == 0)
            let attempts = try await database.pool.query(
                "SELECT outcome || ' ' || reason FROM carillon.delivery_attempts WHERE kind = 'push'")
            #expect(try attempts.map { try $0.text(0) } == [attempt])
            let stored = try await database.pool.query(
                "SELECT status || ' ' || status_reason FROM carillon.notifications WHERE id = $1",
                .uuid(Self.first.halves))
            #expect(try stored.map { try $0.text(0) } == [end])
            let followUps = try await database.pool.query("SELECT FROM carillon.follow_ups")
            #expect(followUps.count == (policy == .defer ? 1 : 0))
        }
    }

    @Test(
        "a push of a type that only the new files have is decided by them and by its category's preferences",
        arguments: [true, false])
    func newerCatalog(isWanted: Bool) async throws {
        let folder = try TemporaryDirectory()
        let path = folder.file("catalog.yaml")
        let news = "{severity: alert, category: alarms, quiet_hours: ignore, push_priority: normal}"
        try Data("types: {known: {}, news: \(news)}".utf8).write(to: URL(filePath: path))
        let priorities = Mutex<[PushPriority]>([])
        let channel = FakeChannel.accepting { message in priorities.withLock { $0.append(message.priority) } }
        let known = [NotificationType(name: "known")]
        try await TestDispatcher.with(channel, types: known, catalogPath: path) { dispatcher, database in
            try await Self.store(in: database.pool)
            try await database.pool.query("UPDATE carillon.notifications SET severity = 'alert'")
            var settings = UserSettings()
            settings.quietHours = QuietHours(start: 1, end: 0)
            let preferences = dispatcher.database.preferences
            try await preferences.set(user: "ada", settings: settings)
            try await preferences.set(
                user: "ada", preferences: [PreferenceKey.category("alarms"): TypePreference(push: isWanted)])
            try await Self.send(by: dispatcher)
            #expect(priorities.withLock { $0 } == (isWanted ? [.normal] : []))
        }
    }

    @Test("a push of a summary, which needs no type, does not make the dispatcher read new files")
    func summary() async throws {
        let folder = try TemporaryDirectory()
        let path = folder.file("catalog.yaml")
        try Data("types: {known: {}, summary: {}}".utf8).write(to: URL(filePath: path))
        let calls = Mutex(0)
        let channel = FakeChannel.accepting { _ in calls.withLock { $0 += 1 } }
        let known = [NotificationType(name: "known")]
        try await TestDispatcher.with(channel, types: known, catalogPath: path) { dispatcher, database in
            try await Self.store(in: database.pool)
            try await database.pool.query("UPDATE carillon.notifications SET type = 'summary'")
            try await Self.send(by: dispatcher)
            #expect(calls.withLock { $0 } == 1)
            #expect(dispatcher.catalog.all.map(\.name) == ["known"])
        }
    }

    @Test("of two entries of one delivery, taken by two dispatchers at once, one is sent")
    func twins() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                try await Self.store(in: database.pool)
                let keys = Keyspace(prefix: prefix)
                let work = DeliveryWork(
                    notification: Self.first, device: Self.device, user: "ada", attempt: 0, isRepeat: false)
                var batches: [LaneBatch] = []
                let calls = Mutex(0)
                let others = Settled()
                let rival = Mutex<(@Sendable () async throws -> Void)?>(nil)
                let channel = FakeChannel.accepting { _ in
                    calls.withLock { $0 += 1 }
                    let once = rival.withLock { rival in
                        defer { rival = nil }
                        return rival
                    }
                    try? await once?()
                }
                var senders: [DeliverySender] = []
                for _ in 0..<2 {
                    let dispatcher = try TestDispatcher.make(database.pool, redis, keys, [channel])
                    dispatcher.leaseClock.hold()
                    let stream = keys.deliveries(.fcm, .normal)
                    let id = try await redis.send(
                        "XADD", .text(stream), "*", .text(DeliveryWork.field), .bytes(work.bytes)
                    ).string()
                    let entry = StreamEntry(
                        id: id ?? "", fields: [(DeliveryWork.field, work.bytes[...])])
                    batches.append(LaneBatch(lane: .normal, group: dispatcher.group(stream), entries: [entry]))
                    senders.append(DeliverySender(dispatcher: dispatcher, provider: .fcm, calls: 512))
                }
                // The other dispatcher takes its entry during the first one's call.
                let (second, batch) = (senders[1], batches[1])
                rival.withLock { $0 = { others.add(try await second.sendAlone(batch)) } }
                let settled = Settled(try await senders[0].sendAlone(batches[0]))
                #expect(calls.withLock { $0 } == 1)
                #expect(settled.entries == batches[0].entries.map(\.id))
                #expect(settled.twins.isEmpty)
                #expect(others.twins == batches[1].entries.map(\.id))
            }
        }
    }

    @Test(
        "a push carries the unread count, or the badge of its type",
        arguments: [
            (BadgeRule.unseen, false, 7), (.unseen, true, 6), (.absent, false, nil), (.number(1), false, 1),
            (.number(1), true, 1),
        ] as [(BadgeRule, Bool, Int64?)])
    func badge(rule: BadgeRule, isOneOpened: Bool, expected: Int64?) async throws {
        var type = NotificationType(name: "news")
        type.badge = rule
        let badges = Mutex<[Int64?]>([])
        let channel = FakeChannel.accepting { message in badges.withLock { $0.append(message.badge) } }
        try await TestDispatcher.with(channel, types: [type]) { dispatcher, database in
            try await Self.store(in: database.pool)
            try await database.pool.query(
                "INSERT INTO carillon.inboxes (user_id, version, unread, total) VALUES ('ada', 2, 7, 7)")
            if isOneOpened {
                let opened = try await dispatcher.database.inboxes.markOpened(
                    user: "ada", id: Self.second, at: Timestamp(seconds: 1_795_168_800))
                #expect(opened?.changed != nil)
            }
            let settled = try await Self.send(by: dispatcher)
            #expect(settled.entries == ["1-0"])
            #expect(badges.withLock { $0 } == [expected])
        }
    }

    @Test(
        "a push to an FCM topic carries the badge of its job or type, but not its user's unread count",
        arguments: [
            (BadgeRule.unseen, nil, nil), (.unseen, 5, 5), (.number(1), nil, 1),
        ] as [(BadgeRule, Int64?, Int64?)])
    func topicBadge(rule: BadgeRule, own: Int64?, expected: Int64?) async throws {
        var type = NotificationType(name: "news")
        type.badge = rule
        let messages = Mutex<[PushMessage]>([])
        let channel = FakeChannel.accepting { message in messages.withLock { $0.append(message) } }
        try await TestDispatcher.with(channel, types: [type]) { dispatcher, database in
            try await Self.store(in: database.pool)
            try await database.pool.query("UPDATE carillon.devices SET token = '/topics/news'")
            try await database.pool.query(
                "INSERT INTO carillon.inboxes (user_id, version, unread, total) VALUES ('ada', 2, 7, 7)")
            if let own {
                try await database.pool.query(
                    "UPDATE carillon.notifications SET extras = '{\"badge\":\(own)}'::jsonb")
            }
            try await Self.send(by: dispatcher)
            let sent = messages.withLock { $0 }
            #expect(sent.map(\.badge) == [expected])
            #expect(sent.map(\.badgeVersion) == [nil])
        }
    }

    @Test(
        "a foreign token switches its device off only once the provider has accepted another device's push",
        arguments: [(Provider.fcm, "SENDER_ID_MISMATCH"), (.apns, "BadDeviceToken")])
    func foreignToken(provider: Provider, reason: String) async throws {
        let channel = FakeChannel(provider: provider) { _, device in
            guard device.token == "phone" else { return .answered(.accepted(id: "1")) }
            return .answered(.deadToken(reason: reason, evidence: nil))
        }
        try await TestDispatcher.with(channel) { dispatcher, database in
            try await Self.store(in: database.pool)
            let tablet = try await dispatcher.database.devices.register(TestDispatcher.phone(4, token: "tablet"))
            try await database.pool.query(
                "UPDATE carillon.devices SET provider = $1, registered_at = $2", .text(provider.rawValue),
                .timestamptz((TestDispatcher.now + .seconds(-60)).microseconds))
            let group = dispatcher.group(dispatcher.keys.deliveries(provider, .normal))
            try await group.create()
            let service = DeliveriesService(dispatcher: dispatcher, provider: provider, calls: 8, readers: [])
            func send(_ notification: NotificationID, to device: DeviceID) async throws {
                let work = DeliveryWork(
                    notification: notification, device: device, user: "ada", attempt: 0, isRepeat: false)
                try await dispatcher.redis.send(
                    "XADD", .text(group.stream), "*", .text(DeliveryWork.field), .bytes(work.bytes))
                let entries = try await group.readWaiting(count: 10)
                #expect(entries.count == 1)
                try await service.sendAlone(
                    LaneBatch(
                        lane: .normal, group: group, entries: entries, term: try #require(dispatcher.leaseClock.term)))
            }
            func activeTokens() async throws -> [String] {
                let rows = try await database.pool.query(
                    "SELECT token FROM carillon.devices WHERE active ORDER BY token")
                return try rows.map { try $0.text(0) }
            }
            try await send(Self.first, to: Self.device)
            let doubted = try await activeTokens()
            #expect(doubted == ["phone", "tablet"])
            let retries = try await dispatcher.live.retries.count(provider: provider, lane: .normal)
            #expect(retries == 1)
            try await send(Self.first, to: tablet.device.id)
            try await send(Self.second, to: Self.device)
            let left = try await activeTokens()
            #expect(left == ["tablet"])
            let attempts = try await database.pool.query(
                "SELECT concat_ws(' ', outcome, reason) FROM carillon.delivery_attempts WHERE kind = 'push' ORDER BY 1")
            #expect(try attempts.map { try $0.text(0) } == ["accepted", "failed \(reason)", "retry \(reason)"])
        }
    }

    @Test(
        "priority comes from the job, then the type, then the lane",
        arguments: [
            (nil, nil, PushPriority.high), (nil, PushPriority.normal, .normal), (PushPriority.high, .normal, .high),
            (.normal, .high, .normal),
        ] as [(PushPriority?, PushPriority?, PushPriority)])
    func priority(job: PushPriority?, type own: PushPriority?, expected: PushPriority) async throws {
        var type = NotificationType(name: "news")
        type.pushPriority = own
        let priorities = Mutex<[PushPriority]>([])
        let channel = FakeChannel.accepting { message in priorities.withLock { $0.append(message.priority) } }
        try await TestDispatcher.with(channel, types: [type]) { dispatcher, database in
            try await Self.store(in: database.pool)
            if let job {
                try await database.pool.query(
                    "UPDATE carillon.notifications SET extras = jsonb_build_object('push_priority', $1::text)",
                    .text(job.rawValue))
            }
            try await Self.send(by: dispatcher)
            #expect(priorities.withLock { $0 } == [expected])
        }
    }

    @Test("sends the inbox's count, unless the device was sent a newer one")
    func staleBadge() async throws {
        let messages = Mutex<[PushMessage]>([])
        let channel = FakeChannel.accepting { message in messages.withLock { $0.append(message) } }
        try await TestDispatcher.with(channel) { dispatcher, database in
            try await Self.store(in: database.pool)
            try await database.pool.query(
                "INSERT INTO carillon.inboxes (user_id, version, unread) VALUES ('ada', 7, 2)")
            let sender = DeliverySender(dispatcher: dispatcher, provider: .fcm, calls: 512)
            let stream = dispatcher.keys.deliveries(.fcm, .normal)
            for id in [Self.first, Self.second] {
                let work = DeliveryWork(
                    notification: id, device: Self.device, user: "ada", attempt: 0, isRepeat: false)
                let entry = try await dispatcher.redis.send(
                    "XADD", .text(stream), "*", .text(DeliveryWork.field), .bytes(work.bytes)
                ).string()
                let taken = StreamEntry(
                    id: entry ?? "", fields: [(DeliveryWork.field, work.bytes[...])])
                let batch = LaneBatch(lane: .normal, group: dispatcher.group(stream), entries: [taken])
                _ = try await sender.sendAlone(batch)
                // Another push carries a newer count to the device first.
                #expect(dispatcher.badges.record(8, of: "ada", for: Self.device))
            }
            let sent = messages.withLock { $0 }
            #expect(sent.map(\.badge) == [2, nil])
            #expect(sent.map(\.badgeVersion) == [7, nil])
        }
    }

    /// A retraction of a read notification.
    struct Retraction: Sendable {
        var rule = BadgeRule.unseen
        /// The count that the device already has.
        var sent: Int64?
        var retractionsHaveBadge = true
        let badge: Int64?
        /// The version of the count that the device has afterwards.
        let known: Int64
    }

    @Test(
        "a retraction carries the current count if its type shows one, never the job's badge",
        arguments: [
            Retraction(badge: 2, known: 7), Retraction(sent: 7, badge: 2, known: 7),
            Retraction(sent: 8, badge: nil, known: 8), Retraction(rule: .absent, badge: nil, known: 0),
            Retraction(rule: .number(1), sent: 6, badge: nil, known: 6),
            // A retraction without a count leaves the device's count as it is.
            Retraction(sent: 6, retractionsHaveBadge: false, badge: nil, known: 6),
        ])
    func retraction(_ item: Retraction) async throws {
        var type = NotificationType(name: "news")
        type.badge = item.rule
        let messages = Mutex<[PushMessage]>([])
        let channel = FakeChannel.accepting(retractionsHaveBadge: item.retractionsHaveBadge) { message in
            messages.withLock { $0.append(message) }
        }
        try await TestDispatcher.with(channel, types: [type]) { dispatcher, database in
            try await Self.store(in: database.pool)
            try await database.pool.query(
                "UPDATE carillon.notifications SET read_at = now(), extras = '{\"badge\":99}'::jsonb")
            try await database.pool.query(
                "INSERT INTO carillon.inboxes (user_id, version, unread) VALUES ('ada', 7, 2)")
            if let version = item.sent { #expect(dispatcher.badges.record(version, of: "ada", for: Self.device)) }
            try await Self.send(by: dispatcher, isRetraction: true)
            let sent = messages.withLock { $0 }
            #expect(sent.map(\.purpose) == [.retract])
            #expect(sent.map(\.badge) == [item.badge])
            #expect(sent.map(\.badgeVersion) == [item.badge == nil ? nil : 7])
            // An older count is stale; the same one is not.
            #expect(!dispatcher.badges.record(item.known - 1, of: "ada", for: Self.device) || item.known == 0)
            #expect(dispatcher.badges.record(item.known, of: "ada", for: Self.device))
        }
    }

    @Test("holds deliveries back for their app, looking it up only if there are several")
    func heldBack() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                try await Self.store(in: database.pool)
                let keys = Keyspace(prefix: prefix)
                let own = FakeChannel.accepting()
                let work = DeliveryWork(
                    notification: Self.first, device: Self.device, user: "ada", attempt: 0, isRepeat: false)
                let entry = StreamEntry(id: "1-0", fields: [(DeliveryWork.field, work.bytes[...])])
                for isShared in [false, true] {
                    let channels = isShared ? [own, FakeChannel(app: "another")] : [own]
                    let dispatcher = try TestDispatcher.make(database.pool, redis, keys, channels)
                    dispatcher.leaseClock.hold()
                    let sender = DeliverySender(dispatcher: dispatcher, provider: .fcm, calls: 512)
                    let health = sender.health
                    health.hold(
                        ["another", "default"], until: TestDispatcher.now + .seconds(60), now: TestDispatcher.now)
                    let group = dispatcher.group(keys.deliveries(.fcm, .normal))
                    let settled = Settled(
                        try await sender.sendAlone(LaneBatch(lane: .normal, group: group, entries: [entry])))
                    #expect(settled.heldApps == ["default"])
                    #expect(settled.areLookedUp == [isShared])
                }
            }
        }
    }

    @Test("a delivery without a place in our own queue is held back, and is no failure of the provider")
    func noTurn() async throws {
        let lanes = Mutex<[Lane]>([])
        let channel = FakeChannel { message, _ in
            lanes.withLock { $0.append(message.lane) }
            return .noTurn
        }
        try await TestDispatcher.with(channel) { dispatcher, database in
            try await Self.store(in: database.pool)
            let sender = DeliverySender(dispatcher: dispatcher, provider: .fcm, calls: 512)
            let health = sender.health
            let work = DeliveryWork(
                notification: Self.first, device: Self.device, user: "ada", attempt: 0, isRepeat: false)
            let entry = StreamEntry(id: "1-0", fields: [(DeliveryWork.field, work.bytes[...])])
            let group = dispatcher.group(dispatcher.keys.deliveries(.fcm, .bulk))
            let settled = Settled(
                try await sender.sendAlone(LaneBatch(lane: .bulk, group: group, entries: [entry])))
            #expect(lanes.withLock { $0 } == [.bulk])
            #expect(settled.heldApps == ["default"])
            let overview = health.overviews(of: ["default"], now: TestDispatcher.now)["default"]
            #expect(overview?.inFlight == 0)
        }
    }

    @Test("an app without a rate uses that of its account")
    func accountRate() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                try await Self.store(in: database.pool)
                let keys = Keyspace(prefix: prefix)
                let work = DeliveryWork(
                    notification: Self.first, device: Self.device, user: "ada", attempt: 0, isRepeat: false)
                let entry = StreamEntry(id: "1-0", fields: [(DeliveryWork.field, work.bytes[...])])
                let survey = Live(redis, keys: keys).survey
                let sent = Mutex(0)
                let own = FakeChannel.accepting { _ in sent.withLock { $0 += 1 } }
                for other in ["another", "default"] {
                    let another = FakeChannel(app: "another", account: other)
                    let dispatcher = try TestDispatcher.make(database.pool, redis, keys, [own, another])
                    dispatcher.channels.replace(with: ChannelDirectory.Entry(another, messagesPerSecond: 1))
                    dispatcher.leaseClock.hold()
                    let group = dispatcher.group(keys.deliveries(.fcm, .normal))
                    let sender = DeliverySender(dispatcher: dispatcher, provider: .fcm, calls: 512)
                    // Uses the rate up for two seconds; Redis takes more for a step of its clock.
                    let start = try await survey.time()
                    try await redis.send(
                        "SET", .text("\(prefix)rate:send:{fcm:default}"), .integer((start + .seconds(2)).milliseconds))
                    let settled = Settled(
                        try await sender.sendAlone(LaneBatch(lane: .normal, group: group, entries: [entry])))
                    #expect(settled.entries == ["1-0"])
                    // On a slow machine, a turn may have come.
                    guard try await survey.time() - start < .milliseconds(1_900) else { continue }
                    #expect(settled.heldApps == (other == "default" ? ["default"] : []))
                    #expect(sent.withLock { $0 } == 1)
                }
            }
        }
    }

    @Test("a delivery that was set aside and has expired ends, although its only app is out of use")
    func expiredInAnOutage() async throws {
        let calls = Mutex(0)
        let channel = FakeChannel.accepting { _ in calls.withLock { $0 += 1 } }
        try await TestDispatcher.with(channel) { dispatcher, database in
            let redis = dispatcher.redis
            try await Self.store(in: database.pool)
            try await database.pool.query(
                "UPDATE carillon.notifications SET expires_at = $1 WHERE id = $2",
                .timestamptz((TestDispatcher.now + .seconds(-1)).microseconds), .uuid(Self.first.halves))
            let stream = dispatcher.keys.deliveries(.fcm, .normal)
            let group = dispatcher.group(stream)
            try await group.create()
            for id in [Self.first, Self.second] {
                let work = DeliveryWork(
                    notification: id, device: Self.device, user: "ada", attempt: 0, isRepeat: true,
                    since: TestDispatcher.now + .seconds(-600))
                try await redis.send("XADD", .text(stream), "*", .text(DeliveryWork.field), .bytes(work.bytes))
            }
            let entries = try await group.readWaiting(count: 10)
            let service = DeliveriesService(dispatcher: dispatcher, provider: .fcm, calls: 8, readers: [])
            service.health.hold(
                ["default"], until: TestDispatcher.now + .seconds(60), now: TestDispatcher.now)
            try await service.sendAlone(
                LaneBatch(
                    lane: .normal, group: group, entries: entries, term: try #require(dispatcher.leaseClock.term)))
            #expect(calls.withLock { $0 } == 0)
            let attempts = try await database.pool.query(
                "SELECT notification_id, outcome || ' ' || reason FROM carillon.delivery_attempts")
            #expect(try attempts.map { try $0.text(1) } == ["skipped expired"])
            #expect(try attempts.map { NotificationID(try $0.uuid(0)) } == [Self.first])
            let held = try await dispatcher.live.retries
                .count(provider: .fcm, lane: .normal, scope: BreakerScope("default"))
            #expect(held == 1, "the other one waits on")
        }
    }

    @Test("deliveries wait for an unavailable push service, and only probes return once its pause is over")
    func unavailableService() async throws {
        let passed = Mutex(Duration.zero)
        let calls = Mutex(0)
        var channel = FakeChannel.accepting { _ in calls.withLock { $0 += 1 } }
        channel.service = "https://dead.example"
        try await TestDispatcher.with(channel, now: { TestDispatcher.now + passed.withLock { $0 } }) {
            dispatcher, database in
            try await TestDispatcher.storePushes(20, in: database.pool)
            let stream = dispatcher.keys.deliveries(.fcm, .critical)
            let group = dispatcher.group(stream)
            try await group.create()
            for number in 1...20 as ClosedRange<UInt64> {
                let work = DeliveryWork(
                    notification: TestDispatcher.notification(number).id, device: Self.device, user: "ada", attempt: 0,
                    isRepeat: false)
                try await dispatcher.redis.send(
                    "XADD", .text(stream), "*", .text(DeliveryWork.field), .bytes(work.bytes))
            }
            let entries = try await group.readWaiting(count: 20)
            let service = DeliveriesService(dispatcher: dispatcher, provider: .fcm, calls: 8, readers: [])
            service.health.hold(
                ["default"], service: channel.service, until: TestDispatcher.now + .seconds(60),
                now: TestDispatcher.now)
            try await service.sendAlone(
                LaneBatch(
                    lane: .critical, group: group, entries: entries, term: try #require(dispatcher.leaseClock.term)))
            #expect(calls.withLock { $0 } == 0)
            let mover = RetryService(dispatcher: dispatcher, deliveries: [service])
            // Jitter adds up to a second.
            for (seconds, count) in [(59, 0), (62, 4)] as [(Int, Int64)] {
                passed.withLock { $0 = .seconds(seconds) }
                await mover.move(service, in: dispatcher.live)
                let length = try await dispatcher.redis.send("XLEN", .text(stream)).integer()
                #expect(length == count, "after \(seconds) s")
            }
        }
    }

    /// The entries whose outcomes were settled.
    private final class Settled: Sendable {
        private let outcomes: Mutex<[DeliveryOutcome]>

        init(_ outcomes: [DeliveryOutcome] = []) {
            self.outcomes = Mutex(outcomes)
        }

        func add(_ outcomes: [DeliveryOutcome]) {
            self.outcomes.withLock { $0 += outcomes }
        }

        var entries: [String] { self.outcomes.withLock { $0.map(\.entry.id) } }
        var areLookedUp: [Bool] { self.outcomes.withLock { $0.map { $0.facts != nil } } }
        var heldApps: [String] {
            self.outcomes.withLock { outcomes in
                outcomes.compactMap { outcome -> String? in
                    guard case .heldBack(_, _, let scope) = outcome.result else { return nil }
                    return scope.app
                }
            }
        }
        var twins: [String] {
            self.outcomes.withLock { outcomes in
                outcomes.filter { if case .refused(.underWay) = $0.result { true } else { false } }.map(\.entry.id)
            }
        }
    }
}
