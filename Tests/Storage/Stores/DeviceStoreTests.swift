// Carillon · DeviceStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@testable import Core
@testable import Storage

@Suite(.timeLimit(.minutes(10)))
struct DeviceStoreTests {
    @Test("moves a token to the user who registers it")
    func ownership() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            let first = try await devices.register(Samples.device(user: "a", token: "t")).device
            let second = try await devices.register(Samples.device(user: "b", token: "t", at: 1)).device
            #expect(second.id == first.id)
            #expect(try await devices.list(user: "a").isEmpty)
            #expect(try await devices.list(user: "b").map(\.token) == ["t"])
            #expect(try await devices.remove(user: "a", id: first.id) == false)
            #expect(try await devices.remove(user: "b", token: "t"))
        }
    }

    @Test("keeps a device's token with one user and one app, silenced as before")
    func oneApp() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            func phone(app: String, user: String, at second: Int64) -> Device {
                var device = Samples.device(user: user, token: "t", at: second)
                device.app = app
                return device
            }
            let first = try await devices.register(phone(app: "default", user: "a", at: 0), silenced: true).device
            let second = try await devices.register(phone(app: "news", user: "a", at: 1)).device
            #expect(second.isSilenced && second.createdAt == first.createdAt)
            let ofFirst = try await devices.list(user: "a")
            #expect(ofFirst.map(\.app) == ["news"])

            let moved = try await devices.register(phone(app: "default", user: "b", at: 2)).device
            #expect(moved.getsPushes)
            let lost = try await devices.list(user: "a")
            #expect(lost.isEmpty)
            let ofSecond = try await devices.list(user: "b")
            #expect(ofSecond.map(\.app) == ["default"])
            let audit = try await Self.audit(database)
            let expected = [
                "a registered new", "a registered new", "a removed replaced", "a removed moved", "b registered moved",
            ]
            #expect(audit == expected)
        }
    }

    @Test(
        "lets several users and apps have an FCM topic or a webhook's token, each for itself",
        arguments: [(Platform.android, "/topics/news"), (Platform.webhook, "room")])
    func sharedTokens(platform: Platform, token: String) async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            func device(_ token: String, _ user: String, _ app: String, at second: Int64) -> Device {
                var device = Samples.device(user: user, token: token, at: second)
                device.platform = platform
                device.provider = platform.provider
                device.app = app
                return device
            }
            var ids: Set<NotificationID> = []
            for second: Int64 in [0, 1] {
                for user in ["a", "b"] {
                    for app in ["default", "news"] {
                        ids.insert(try await devices.register(device(token, user, app, at: second)).device.id)
                    }
                }
            }
            #expect(ids.count == 4)
            let other = try await devices.register(device(token + "s", "c", "default", at: 2)).device
            let renamed = try await devices.touch(
                user: "c", id: other.id, change: .init(token: token), at: Samples.start + .seconds(3))
            #expect(renamed?.token == token)
            for user in ["a", "b"] {
                let stored = try await devices.list(user: user)
                #expect(stored.filter(\.isActive).map(\.app).sorted() == ["default", "news"])
            }
            let audit = try await Self.audit(database)
            #expect(!audit.contains { $0.hasSuffix("moved") || $0.contains("removed") })
            // A touch takes a name from a device of the same user and app only.
            let second = try await devices.register(device(token + "s", "a", "news", at: 4)).device
            _ = try await devices.touch(
                user: "a", id: second.id, change: .init(token: token), at: Samples.start + .seconds(5))
            let left = try await devices.list(user: "a")
            #expect(left.map { "\($0.app) \($0.token)" } == ["news \(token)", "default \(token)"])
            #expect(left.first?.id == second.id)
        }
    }

    @Test("replaces a device of the same name and switches the stalest beyond the limit off")
    func limits() async throws {
        try await Samples.withStores { database in
            let devices = database.devices(limits: DeviceLimits(ofApps: ["default": 5]))
            _ = try await devices.register(Samples.device(user: "a", token: "old", name: "phone"))
            _ = try await devices.register(Samples.device(user: "a", token: "new", name: "phone", at: 1))
            #expect(try await devices.list(user: "a").map(\.token) == ["new"])
            for number in 2...5 {
                let registration = try await devices.register(
                    Samples.device(user: "a", token: "t\(number)", at: Int64(number)))
                #expect(registration.switchedOff.isEmpty)
            }
            let last = try await devices.register(Samples.device(user: "a", token: "t6", at: 6))
            #expect(last.device.isActive && last.switchedOff.map(\.token) == ["new"])
            #expect(last.switchedOff.first?.deactivatedReason == "too_many_devices")
            let active = try await database.recipients.activeDevices(["a"])[ExactText("a")]?.map(\.token)
                .sorted()
            #expect(active == ["t2", "t3", "t4", "t5", "t6"])
            let stale = try await devices.list(user: "a").first { $0.token == "new" }
            #expect(stale?.deactivatedReason == "too_many_devices")
        }
    }

    @Test("keeps an APNs token with one user, whatever its letter case")
    func letterCase() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            func phone(_ token: String, user: String, at second: Int64) -> Device {
                var device = Samples.device(user: user, token: token, at: second)
                device.platform = .ios
                device.provider = .apns
                return device
            }
            let first = try await devices.register(phone("AB12", user: "a", at: 0)).device
            #expect(first.token == "ab12")
            let second = try await devices.register(phone("ab12", user: "b", at: 1)).device
            #expect(second.id == first.id)
            #expect(try await devices.list(user: "a").isEmpty)
            #expect(try await devices.remove(user: "b", token: "aB12"))
            // Tokens of other providers are compared exactly.
            _ = try await devices.register(Samples.device(user: "a", token: "Ab", at: 2))
            #expect(try await devices.remove(user: "a", token: "ab") == false)
            #expect(try await devices.remove(user: "a", token: "Ab"))
        }
    }

    @Test("keeps a hundred devices of 200 registrations, and only active ones after 30 days")
    func growth() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            // As a service, which may change tokens as often as it likes.
            for number in 1...200 {
                var record = UserRecord(user: "a")
                record.devices = [Samples.device(user: "a", token: "t\(number)", at: Int64(number))]
                _ = try await database.users(limits: DeviceLimits(standard: 20)).put([record])
            }
            func drop() async throws -> Int {
                let now = try await database.clock()
                return try await database.retention.dropDevices(
                    switchedOffBefore: now + .seconds(-30 * 86_400), limit: 500)
            }
            #expect(try await drop() == 0)
            let kept = try await devices.list(user: "a").map(\.token)
            #expect(kept == (101...200).reversed().map { "t\($0)" })
            let stored = try await database.pool.query("SELECT count(*) FROM carillon.devices")
            #expect(try stored.first?.int8(0) == 100)
            try await database.pool.query(
                "UPDATE carillon.devices SET inactive_since = inactive_since - interval '31 days'")
            #expect(try await drop() == 80)
            let left = try await database.pool.query("SELECT active FROM carillon.devices")
            #expect(try left.map { try $0.bool(0) } == [Bool](repeating: true, count: 20))
        }
    }

    @Test("switches off no FCM topic and no webhook as stale, which register once")
    func stale() async throws {
        try await Samples.withStores { database in
            for (platform, provider, token) in [
                (Platform.android, Provider.fcm, "phone"), (.android, Provider(word: "other"), "watch"),
                (.android, .fcm, "/topics/news"), (.webhook, .webhook, "room"),
            ] {
                var device = Samples.device(user: "a", token: token, name: token)
                device.platform = platform
                device.provider = provider
                _ = try await database.devices.register(device)
            }
            try await database.pool.query("UPDATE carillon.devices SET last_used_at = now() - interval '91 days'")
            let now = try await database.clock()
            let count = try await database.retention.deactivateDevices(
                unseenSince: now + .seconds(-90 * 86_400), now: now, limit: 500)
            #expect(count == 2)
            let off = try await database.pool.query(
                "SELECT token FROM carillon.devices WHERE NOT active ORDER BY token")
            #expect(try off.map { try $0.text(0) } == ["phone", "watch"])
        }
    }

    @Test("finds stale devices behind any number of webhooks, by their index")
    func stalePlan() async throws {
        try await Samples.withStores { database in
            try await database.pool.query(
                """
                INSERT INTO carillon.devices
                    (id, user_id, platform, provider, app, environment, token, registered_at, last_used_at)
                SELECT gen_random_uuid(), 'u' || n, 'webhook', 'webhook', 'default', 'production', 'room' || n,
                    'epoch', 'epoch'
                FROM generate_series(1, 3000) n
                """)
            try await database.pool.query("ANALYZE carillon.devices")
            let lines = try await database.pool.query(
                "EXPLAIN ANALYZE " + RetentionStore.staleDevices, .timestamp(Samples.start), .int4(500)
            ).map { try $0.text(0) }
            #expect(!lines.contains { $0.contains("Rows Removed") }, "\(lines.joined(separator: "\n"))")
        }
    }

    @Test("limits the devices of each app separately")
    func limitsOfApps() async throws {
        try await Samples.withStores { database in
            let devices = database.devices(limits: DeviceLimits(standard: 3, ofApps: ["news": 1]))
            for number in 1...4 {
                for app in ["default", "news"] {
                    var device = Samples.device(user: "a", token: "\(app) t\(number)", at: Int64(number))
                    device.app = app
                    _ = try await devices.register(device)
                }
            }
            let active = try await devices.list(user: "a").filter(\.isActive).map(\.token)
            #expect(active.sorted() == ["default t2", "default t3", "default t4", "news t4"])
            #expect(DeviceLimits().limit(of: "default") == 20)
        }
    }

    @Test("keeps a hundred active devices of a user over all apps, and no more than one inactive one")
    func inventedApps() async throws {
        try await Samples.withStores { database in
            let devices = database.devices(limits: DeviceLimits(standard: 3))
            _ = try await devices.register(Samples.device(user: "b", token: "b", at: 0))
            for number in 1...110 {
                var device = Samples.device(user: "a", token: "t\(number)", at: Int64(number))
                device.app = "app \(number)"
                let registration = try await devices.register(device)
                #expect(registration.switchedOff.map(\.token) == (number > 100 ? ["t\(number - 100)"] : []))
                #expect(registration.switchedOff.allSatisfy { $0.deactivatedReason == "too_many_devices" })
            }
            let kept = try await devices.list(user: "a")
            #expect(kept.map(\.token) == (11...110).reversed().map { "t\($0)" })
            #expect(kept.allSatisfy { $0.isActive })
            let stored = try await database.pool.query("SELECT count(*) FROM carillon.devices WHERE user_id = 'a'")
            #expect(try stored.first?.int8(0) == 101)
            #expect(try await devices.list(user: "b").map(\.isActive) == [true])
        }
    }

    @Test("simultaneous calls together change a user's tokens as often as allowed; a refused one changes nothing")
    func changeLimit() async throws {
        try await Samples.withConcurrentStores { database in
            let devices = database.devices
            _ = try await database.users.put([UserRecord(user: "a")])
            // One change is left.
            try await database.pool.query(
                """
                INSERT INTO carillon.delivery_attempts (at, user_id, provider, kind, attempt, outcome)
                SELECT now(), 'a', 'fcm', 'token', 0, 'registered' FROM generate_series(2, $1)
                """,
                .int4(Int32(DeviceStore.mostChangesPerHour)))
            func phone(_ token: String) -> Device { Samples.device(user: "a", token: token) }
            await #expect(throws: PostgresError.self) { try await devices.register([phone("t1"), phone("t2")]) }
            let calls = try await database.pool.transaction { transaction in
                try await transaction.query("SELECT FROM carillon.users WHERE user_id = 'a' FOR UPDATE")
                let calls = [phone("t3"), phone("t4")].map { phone in
                    Task { try await devices.register(phone) }
                }
                try await eventually("both calls wait") { try await Samples.areWaiting(2, database) }
                return calls
            }
            var outcomes: [String] = []
            for call in calls {
                do {
                    _ = try await call.value
                    outcomes.append("registered")
                } catch {
                    outcomes.append((error as? PostgresError)?.sqlState ?? "")
                }
            }
            #expect(outcomes.sorted() == [DeviceStore.tooManyChanges, "registered"])
            let phones = try await devices.list(user: "a")
            #expect(phones.count == 1)
            let first = try #require(phones.first)
            // A new token of a known device counts, too; another touch does not.
            await #expect(throws: PostgresError.self) {
                try await devices.touch(user: "a", id: first.id, change: .init(token: "t5"), at: Samples.start)
            }
            let seen = try await devices.touch(user: "a", id: first.id, at: Samples.start)
            #expect(seen?.token == first.token)
        }
    }

    @Test("simultaneous calls that register the same tokens in different orders all succeed")
    func oppositeOrders() async throws {
        try await Samples.withConcurrentStores { database in
            // Holds a call after its first token.
            try await Samples.holdInserts(into: "devices", database)
            let devices = database.devices
            let calls = try await database.pool.transaction { transaction in
                try await transaction.query("SELECT pg_advisory_xact_lock(1)")
                let calls = [("a", ["t1", "t2"]), ("b", ["t2", "t1"])].map { user, tokens in
                    Task { try await devices.register(tokens.map { Samples.device(user: user, token: $0) }) }
                }
                try await eventually("both calls wait") { try await Samples.areWaiting(2, database) }
                return calls
            }
            for call in calls { _ = try await call.value }
            let counts = try await [devices.list(user: "a").count, devices.list(user: "b").count]
            #expect(counts.sorted() == [0, 2])
        }
    }

    @Test("two users who exchange their tokens at once both get the other's")
    func exchange() async throws {
        try await Samples.withConcurrentStores { database in
            let devices = database.devices
            for user in ["a", "b"] {
                _ = try await devices.register(Samples.device(user: user, token: "of \(user)", name: "phone"))
            }
            // Holds each call while it has the other's row, before it removes its user's own.
            try await Samples.holdInserts(into: "devices", orUpdates: true, database)
            let calls = try await database.pool.transaction { transaction in
                try await transaction.query("SELECT pg_advisory_xact_lock(1)")
                let calls = [("a", "of b"), ("b", "of a")].map { user, token in
                    Task { try await devices.register(Samples.device(user: user, token: token, name: "phone", at: 1)) }
                }
                try await eventually("both calls wait") { try await Samples.areWaiting(2, database) }
                return calls
            }
            for call in calls { _ = try await call.value }
            #expect(try await devices.list(user: "a").map(\.token) == ["of b"])
            #expect(try await devices.list(user: "b").map(\.token) == ["of a"])
        }
    }

    @Test("a registration finds the rows that it locks by index, also with statistics of the empty table")
    func lockPlan() async throws {
        try await Samples.withStores { database in
            try await database.pool.query("ANALYZE carillon.devices")
            let phone = Samples.device(user: "a", token: "t", name: "phone")
            let lock = try #require(DeviceStore.registration(of: phone, limit: 1).first)
            let plan = try await database.pool.run([PostgresStatement("EXPLAIN " + lock.sql, lock.parameters)])
            let text = try (plan.first.map { Array($0) } ?? []).map { try $0.text(0) }.joined(separator: "\n")
            for index in ["devices_token", "devices_user"] { #expect(text.contains(index), "\(text)") }
        }
    }

    /// The audit entries of tokens, in order.
    private static func audit(_ database: Database) async throws -> [String] {
        let rows = try await database.pool.query(
            """
            SELECT a.user_id, a.outcome, a.reason FROM carillon.delivery_attempts a WHERE a.kind = 'token'
            ORDER BY a.at, a.user_id, a.outcome
            """
        )
        return try rows.map { "\(try $0.text(0)) \(try $0.text(1)) \(try $0.text(2))" }
    }

    @Test("records the change of a token by PostgreSQL's clock if the gateway's is ahead")
    func auditedAhead() async throws {
        try await Samples.withStores { database in
            _ = try await database.devices.register(Samples.device(user: "a", token: "t", at: 4_000_000_000))
            let rows = try await database.pool.query("SELECT at > now() FROM carillon.delivery_attempts")
            #expect(try rows.map { try $0.bool(0) } == [false])
        }
    }

    @Test("registers a device by PostgreSQL's clock if the gateway's is ahead, so that its next token replaces it")
    func registeredAhead() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            let ahead = Timestamp(seconds: 4_000_000_000)
            func phone(_ token: String, at moment: Timestamp) -> Device {
                var device = Samples.device(user: "a", token: token)
                device.deviceID = "phone"
                device.registeredAt = moment
                return device
            }
            let first = try await devices.register(phone("t1", at: ahead)).device
            let seen = try #require(
                try await devices.touch(user: "a", id: first.id, change: .init(token: "t2"), at: ahead))
            let now = try await database.clock()
            for device in [first, seen] {
                #expect(max(device.registeredAt, device.lastUsedAt, device.createdAt) <= now)
            }
            _ = try await devices.register(phone("t3", at: now))
            #expect(try await devices.list(user: "a").map(\.token) == ["t3"])
        }
    }

    @Test("keeps the later of two concurrent registrations, which ended first, even if the gateway's clock is ahead")
    func concurrent() async throws {
        try await Samples.withStoresOfTwoPools { database, second in
            func phone(_ token: String) -> Device {
                var device = Samples.device(user: "a", token: token, at: 4_000_000_000)
                device.deviceID = "phone"
                return device
            }
            let (earlier, later) = (phone("earlier"), phone("later"))
            _ = try await database.devices.register(later)
            let registering = try await database.pool.transaction { transaction in
                try await transaction.query("SELECT FROM carillon.users WHERE user_id = 'a' FOR UPDATE")
                let registering = Task { try await second.devices.register(earlier) }
                try await eventually("the earlier one waits") { try await Samples.areWaiting(1, database) }
                try await transaction.query("UPDATE carillon.devices SET registered_at = clock_timestamp()")
                return registering
            }
            _ = try await registering.value
            #expect(try await database.devices.list(user: "a").map(\.token).contains("later"))
        }
    }

    @Test("records every change of a token in the audit")
    func audited() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            let first = try await devices.register(Samples.device(user: "a", token: "t", name: "phone")).device
            _ = try await devices.register(Samples.device(user: "a", token: "t", name: "phone", at: 1))
            var expected = ["a registered new"]
            #expect(try await Self.audit(database) == expected)

            _ = try await devices.register(Samples.device(user: "b", token: "t", at: 2))
            expected += ["a removed moved", "b registered moved"]
            #expect(try await Self.audit(database) == expected)

            _ = try await devices.register(Samples.device(user: "b", token: "u", name: "x", at: 3))
            _ = try await devices.register(Samples.device(user: "b", token: "v", name: "x", at: 4))
            expected += ["b registered new", "b registered new_token"]
            #expect(try await Self.audit(database) == expected)

            // Touched without a token and with a new one.
            for token in [nil, "t", "w"] {
                _ = try await devices.touch(
                    user: "b", id: first.id, change: .init(token: token), at: Samples.start + .seconds(5))
            }
            expected += ["b registered new_token"]
            #expect(try await Self.audit(database) == expected)
            // Taking the token of the user's other device removes that device.
            _ = try await devices.touch(
                user: "b", id: first.id, change: .init(token: "v"), at: Samples.start + .seconds(6))
            expected += ["b registered new_token", "b removed replaced"]
            #expect(try await Self.audit(database) == expected)

            try await database.pool.query("UPDATE carillon.devices SET active = false")
            _ = try await devices.register(Samples.device(user: "b", token: "v", at: 7))
            expected += ["b registered again"]
            #expect(try await Self.audit(database) == expected)

            #expect(try await devices.remove(user: "a", id: first.id) == false)
            #expect(try await devices.remove(user: "b", id: first.id))
            #expect(try await devices.remove(user: "b", id: first.id) == false)
            #expect(try await Set(Self.audit(database)) == Set(expected + ["b removed unregistered"]))
        }
    }

    @Test("records surplus devices and replaced tokens in the audit")
    func auditOfLimits() async throws {
        try await Samples.withStores { database in
            let devices = database.devices(limits: DeviceLimits(standard: 5))
            for number in 1...6 {
                _ = try await devices.register(Samples.device(user: "a", token: "t\(number)", at: Int64(number)))
            }
            let added = [String](repeating: "a registered new", count: 6)
            #expect(try await Self.audit(database).sorted() == (added + ["a deactivated too_many_devices"]).sorted())

            for (number, token) in ["old", "new"].enumerated() {
                var device = Samples.device(user: "b", token: token, at: Int64(10 + number))
                device.deviceID = "d1"
                _ = try await devices.register(device)
            }
            let ofOther = try await Self.audit(database).filter { $0.hasPrefix("b ") }
            #expect(ofOther == ["b registered new", "b registered new_token"])
        }
    }

    @Test("reads a device whose platform and environment only a newer release knows")
    func newerKind() async throws {
        try await Samples.withStores { database in
            let device = try await database.devices.register(Samples.device(user: "a", token: "t")).device
            try await database.pool.query("UPDATE carillon.devices SET platform = 'watch', environment = 'beta'")
            let devices = try await database.recipients.activeDevices(["a"])[ExactText("a")]
            #expect(devices?.map(\.id) == [device.id])
            #expect(devices?.map(\.platform) == [.android])
            #expect(devices?.map(\.environment) == [.production])
        }
    }

    @Test("switches a dead token off only if the device still has it, registered before the evidence")
    func deadTokens() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            let deliveries = database.deliveries
            let device = try await devices.register(Samples.device(user: "a", token: "t", at: 100)).device
            var settlement = DeliveryStore.Settlement()
            settlement.deadTokens = [(device.id, "t", "Unregistered", Samples.start + .seconds(50))]
            #expect(try await deliveries.settle(settlement).devices.isEmpty)
            #expect(try await devices.list(user: "a").first?.isActive == true)
            // The clock that dates the new token may be behind that of the evidence.
            _ = try await devices.touch(
                user: "a", id: device.id, change: .init(token: "u"), at: Samples.start + .seconds(120))
            settlement.deadTokens = [(device.id, "t", "Unregistered", Samples.start + .seconds(150))]
            #expect(try await deliveries.settle(settlement).devices.isEmpty)
            #expect(try await devices.list(user: "a").first?.isActive == true)
            settlement.deadTokens = [(device.id, "u", "Unregistered", Samples.start + .seconds(150))]
            #expect(try await deliveries.settle(settlement).devices == [device.id])
            #expect(try await deliveries.settle(settlement).devices.isEmpty, "the device is already off")
            #expect(try await devices.list(user: "a").first?.isActive == false)
            #expect(try await devices.list(user: "a").first?.deactivatedReason == "Unregistered")
        }
    }
}

@Suite(.timeLimit(.minutes(10)))
struct DeviceChangeTests {
    private static func device(_ token: String, user: String = "a", deviceID: String?, at second: Int64 = 0) -> Device {
        var device = Samples.device(user: user, token: token, at: second)
        device.deviceID = deviceID
        return device
    }

    @Test("replaces the old token of a device and leaves other devices alone")
    func replacing() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            _ = try await devices.register(Self.device("t1", deviceID: "phone"))
            _ = try await devices.register(Self.device("t2", deviceID: "tablet", at: 1))
            _ = try await devices.register(Self.device("t3", deviceID: nil, at: 2))
            _ = try await devices.register(Self.device("t4", user: "b", deviceID: "phone", at: 3))
            let again = try await devices.register(Self.device("t5", deviceID: "phone", at: 4)).device
            #expect(again.token == "t5")
            #expect(try await devices.list(user: "a").map(\.token) == ["t5", "t3", "t2"])
            #expect(try await devices.list(user: "b").map(\.token) == ["t4"])
            // A request that began earlier and ends later leaves the newer token alone.
            _ = try await devices.register(Self.device("t6", deviceID: "phone", at: 3))
            #expect(try await devices.list(user: "a").map(\.token) == ["t5", "t6", "t3", "t2"])
        }
    }

    @Test("a new token keeps the device's id, and the time since when its pushes are enqueued")
    func sameIdentity() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            func pushedSince() async throws -> Timestamp? {
                try await database.pool.query("SELECT pushed_since FROM carillon.devices WHERE device_id = 'phone'")
                    .first?.timestamp(0)
            }
            let first = try await devices.register(Self.device("t1", deviceID: "phone")).device
            try await database.pool.query("UPDATE carillon.devices SET pushed_since = 'epoch'")
            let second = try await devices.register(Self.device("t2", deviceID: "phone", at: 1)).device
            #expect(second.id == first.id && second.token == "t2" && second.isActive)
            #expect(try await pushedSince() == Timestamp(microseconds: 0))
            // No pushes were enqueued for a device that was off.
            try await database.pool.query("UPDATE carillon.devices SET active = false, pushed_since = 'epoch'")
            let third = try await devices.register(Self.device("t3", deviceID: "phone", at: 2)).device
            #expect(third.id == first.id && third.isActive)
            #expect(try await pushedSince() != Timestamp(microseconds: 0))
            // Another user's device that had the token before keeps the identity that it had.
            let other = try await devices.register(Self.device("t4", user: "b", deviceID: nil, at: 3)).device
            let fourth = try await devices.register(Self.device("t4", deviceID: "phone", at: 4)).device
            #expect(fourth.id == other.id && fourth.user == "a")
            #expect(try await devices.list(user: "a").map(\.token) == ["t4"])
        }
    }

    @Test("another user, app, platform or provider has a new identity with a new token")
    func newIdentity() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            let first = try await devices.register(Self.device("t1", deviceID: "phone")).device
            let ofOther = try await devices.register(Self.device("t2", user: "b", deviceID: "phone", at: 1)).device
            var news = Self.device("t3", deviceID: "phone", at: 2)
            news.app = "news"
            let ofApp = try await devices.register(news).device
            var tablet = Self.device("t4", deviceID: "phone", at: 3)
            tablet.platform = .ios
            let ofPlatform = try await devices.register(tablet).device
            // This one replaces the tablet's.
            var apple = Self.device("t5", deviceID: "phone", at: 4)
            (apple.platform, apple.provider) = (.ios, .apns)
            let ofProvider = try await devices.register(apple).device
            let ids = [first, ofOther, ofApp, ofPlatform, ofProvider].map(\.id)
            #expect(Set(ids).count == ids.count)
            #expect(try await devices.list(user: "a").map(\.token) == ["t5", "t3", "t1"])
        }
    }

    @Test("keeps devices with the same name apart by their id")
    func sameName() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            func phone(_ token: String, id: String?, at second: Int64) -> Device {
                var device = Self.device(token, deviceID: id, at: second)
                device.name = "iPhone"
                return device
            }
            _ = try await devices.register(phone("t1", id: nil, at: 0))
            _ = try await devices.register(phone("t2", id: "first", at: 1))
            #expect(try await devices.list(user: "a").map(\.token) == ["t2"], "it is the phone without an id")
            _ = try await devices.register(phone("t3", id: "second", at: 2))
            #expect(try await devices.list(user: "a").map(\.token) == ["t3", "t2"])
            _ = try await devices.register(phone("t4", id: nil, at: 3))
            _ = try await devices.register(phone("t5", id: nil, at: 4))
            #expect(try await devices.list(user: "a").map(\.token) == ["t5", "t3", "t2"])
        }
    }

    @Test("keeps a device silenced when its token changes")
    func silencedToken() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            _ = try await devices.register(Self.device("t1", deviceID: "phone"), silenced: true)
            let changed = try await devices.register(Self.device("t2", deviceID: "phone", at: 60)).device
            #expect(changed.isSilenced)
            #expect(try await database.recipients.activeDevices(["a"])[ExactText("a")]?.isEmpty != false)
            let other = try await devices.register(Self.device("t3", deviceID: "tablet", at: 61)).device
            #expect(!other.isSilenced)
        }
    }

    @Test("keeps registration time and push switch when a device registers again, but not for another user")
    func again() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            let first = try await devices.register(Self.device("t", deviceID: nil), silenced: true).device
            #expect(first.isSilenced)
            let again = try await devices.register(Self.device("t", deviceID: nil, at: 60)).device
            #expect(again.isSilenced)
            #expect(again.createdAt == first.createdAt)
            #expect(again.registeredAt == Samples.start + .seconds(60))
            let heard = try await devices.register(Self.device("t", deviceID: nil, at: 61), silenced: false)
            #expect(heard.device.getsPushes)
            _ = try await devices.setSilenced(true, user: "a", id: first.id)
            let moved = try await devices.register(Self.device("t", user: "b", deviceID: nil, at: 120)).device
            #expect(moved.createdAt == Samples.start + .seconds(120))
            #expect(moved.getsPushes, "the switch of the last user does not count for the next")
        }
    }

    @Test("removes all devices of an app and a provider, and no others")
    func removingAll() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            for token in ["t1", "t2"] { _ = try await devices.register(Self.device(token, deviceID: nil)) }
            _ = try await devices.register(Self.device("t3", user: "b", deviceID: nil))
            let one = try #require(try await devices.list(user: "a").first)
            #expect(try await devices.removeAll(user: "a", app: "another", provider: one.provider) == 0)
            #expect(try await devices.removeAll(user: "a", app: one.app, provider: one.provider) == 2)
            #expect(try await devices.list(user: "b").count == 1)
        }
    }

    @Test("updates time and token on a touch and takes the token from its previous device")
    func touching() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            let mine = try await devices.register(Self.device("t1", deviceID: nil)).device
            _ = try await devices.register(Self.device("t2", user: "b", deviceID: nil))
            let later = Samples.start + .seconds(60)
            let seen = try await devices.touch(
                user: "a", id: mine.id, change: .init(deviceID: "phone", appVersion: "2.1", locale: "de"), at: later)
            #expect(seen?.token == "t1")
            #expect(seen?.lastUsedAt == later)
            #expect(seen?.registeredAt == mine.registeredAt)
            #expect(seen?.deviceID == "phone")
            let moved = try await devices.touch(
                user: "a", id: mine.id, change: .init(token: "t2", appVersion: .some(nil)), at: later)
            #expect(moved?.id == mine.id)
            #expect(moved?.token == "t2")
            #expect(moved?.registeredAt == later)
            #expect(moved?.deviceID == "phone")
            #expect(moved?.appVersion == nil && moved?.locale == "de")
            #expect(moved?.createdAt == mine.registeredAt)
            #expect(try await devices.list(user: "b").isEmpty)
            let foreign = try await devices.touch(user: "b", id: mine.id, change: .init(token: "t9"), at: later)
            #expect(foreign == nil)
            #expect(try await devices.list(user: "a").map(\.token) == ["t2"])
        }
    }

    @Test("takes a touch's new token from a device of another app")
    func touchingAcrossApps() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            let mine = try await devices.register(Self.device("t1", deviceID: nil)).device
            var other = Self.device("t2", user: "b", deviceID: nil)
            other.app = "news"
            _ = try await devices.register(other)
            let moved = try await devices.touch(
                user: "a", id: mine.id, change: .init(token: "t2"), at: Samples.start)
            #expect(moved?.token == "t2")
            let left = try await devices.list(user: "b")
            #expect(left.isEmpty)
        }
    }

    @Test("switches a device on again when a touch brings a new token, not when it repeats the dead one")
    func touchingDeadToken() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            let phone = try await devices.register(Self.device("t1", deviceID: nil)).device
            var settlement = DeliveryStore.Settlement()
            settlement.deadTokens = [(phone.id, "t1", "UNREGISTERED", Samples.start + .seconds(10))]
            let off = try await database.deliveries.settle(settlement).devices
            #expect(off == [phone.id])
            func touch(_ token: String?) async throws -> Device? {
                try await devices.touch(
                    user: "a", id: phone.id, change: .init(token: token), at: Samples.start + .seconds(20))
            }
            for token in [nil, "t1"] {
                let seen = try await touch(token)
                #expect(seen?.isActive == false && seen?.deactivatedReason == "UNREGISTERED")
            }
            let renewed = try await touch("t2")
            #expect(renewed?.isActive == true && renewed?.deactivatedReason == nil)
        }
    }
}

@Suite(.timeLimit(.minutes(10)))
struct RecipientLocaleTests {
    @Test("finds a user's locale in the settings or the device used last")
    func locales() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            for (second, locale) in [(1, "fr"), (3, "de-CH"), (2, "it"), (4, nil)] {
                var device = Samples.device(user: "devices", token: "t\(second)", at: Int64(second))
                device.locale = locale
                _ = try await devices.register(device)
            }
            var device = Samples.device(user: "both", token: "b")
            device.locale = "fr"
            _ = try await devices.register(device)
            var settings = UserSettings()
            settings.locale = "pt-BR"
            try await database.preferences.set(user: "both", settings: settings)
            try await database.preferences.set(user: "both", preferences: ["x": TypePreference(push: false)])
            let asked = [
                ("none", true), ("devices", true), ("both", true), ("both", false), ("devices", false),
            ]
            let preferences = try await database.recipients.preferences(
                asked.map { RecipientStore.Key(user: $0.0, type: "x", category: nil, needsLocale: $0.1) })
            #expect(preferences.map(\.settings.locale) == [nil, "de-CH", "pt-BR", "pt-BR", nil])
            #expect(preferences.map(\.preference.push) == [nil, nil, false, false, nil])
        }
    }
}
