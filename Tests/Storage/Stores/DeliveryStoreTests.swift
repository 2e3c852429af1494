// Carillon · DeliveryStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import Storage

@Suite(.timeLimit(.minutes(10)))
struct DeliveryStoreTests {
    @Test("reads current facts and remembers accepted attempts for repeats")
    func facts() async throws {
        try await Samples.withStores { database in
            let deliveries = database.deliveries
            let device = try await database.devices.register(Samples.device(user: "a", token: "t")).device
            let notification = Samples.notification(1, user: "a") {
                $0.extras.badge = 7
                $0.extras.pushPriority = .normal
                $0.keepUntil = Samples.start + .seconds(60)
            }
            let waiting = Samples.notification(2, user: "a")
            _ = try await database.notifications.store([notification, waiting], areRepeats: false)
            let unknown = NotificationID(high: 1, low: 2)
            let found = try await deliveries.facts([
                (notification.key, device.id, true), (NotificationKey(user: "a", id: unknown), device.id, false),
            ])
            #expect(found[0]?.device.token == "t")
            #expect(found[0]?.notification.extras.badge == 7)
            #expect(found[0]?.notification.extras.pushPriority == .normal)
            #expect(found[0]?.notification.keepUntil == Samples.start + .seconds(60))
            #expect(found[0]?.unseen == 2)
            #expect(found[0]?.wasAccepted == false)
            #expect(found[1] == nil)

            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [
                DeliveryStore.Attempt(
                    at: try await database.clock(),
                    user: "a",
                    notification: notification.id,
                    device: device.id,
                    provider: .fcm,
                    kind: "push",
                    attempt: 1,
                    outcome: .accepted
                )
            ]
            settlement.accepted = [(notification.key, "fcm", device.id)]
            try await deliveries.settle(settlement)
            let again = try await deliveries.facts([
                (waiting.key, device.id, false), (waiting.key, device.id, true),
                (notification.key, device.id, true), (notification.key, device.id, false),
            ])
            // A first delivery may come late, when a repeat of it was sent.
            #expect(again.map { $0?.wasAccepted } == [false, false, true, true])
            #expect(again[2]?.notification.status == .sent)
        }
    }

    @Test("removes read notifications from phones and webhooks, not from browsers and topics")
    func holders() async throws {
        try await Samples.withStores { database in
            let notification = Samples.notification(1, user: "a")
            _ = try await database.notifications.store([notification], areRepeats: false)
            var settlement = DeliveryStore.Settlement()
            var expected: Set<NotificationID> = []
            for (platform, provider, token, isExpected) in [
                (.ios, .apns, "iphone", true), (.ios, .fcm, "ipad", true), (.android, .fcm, "robot", true),
                (.webhook, .webhook, "/topics/room", true), (.web, .webpush, "browser", false),
                (.web, .fcm, "page", false), (.android, .fcm, "/topics/news", false),
            ] as [(Platform, Provider, String, Bool)] {
                var sample = Samples.device(user: "a", token: token, name: token)
                (sample.platform, sample.provider) = (platform, provider)
                let device = try await database.devices.register(sample).device
                if isExpected { expected.insert(device.id) }
                settlement.attempts.append(
                    DeliveryStore.Attempt(
                        at: Samples.start, user: "a", notification: notification.id, device: device.id,
                        provider: provider, kind: "push", attempt: 1, outcome: .accepted))
            }
            try await database.deliveries.settle(settlement)
            let found = try await database.deliveries.holders(user: "a", of: [notification.id])
            #expect(Set(found.map(\.device)) == expected)
            #expect(found.count == expected.count)
        }
    }

    @Test("remembers accepted mail also for a first delivery, as a notification in the inbox stays pending")
    func mailFacts() async throws {
        try await Samples.withStores { database in
            let notification = Samples.notification(1, user: "a") { $0.channels = [.inApp, .email] }
            _ = try await database.notifications.store([notification], areRepeats: false)
            let mail = [(key: notification.key, device: Device.emailAddress, isRepeat: false)]
            #expect(try await database.deliveries.facts(mail)[0]?.wasAccepted == false)
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [
                DeliveryStore.Attempt(
                    at: try await database.clock(), user: "a", notification: notification.id,
                    device: Device.emailAddress, provider: .email, kind: "email", attempt: 1, outcome: .accepted)
            ]
            settlement.accepted = [(notification.key, "email", Device.emailAddress)]
            try await database.deliveries.settle(settlement)
            let found = try await database.deliveries.facts(mail)
            #expect(found[0]?.notification.status == .pending)
            #expect(found[0]?.wasAccepted == true)
        }
    }

    @Test("invalidates an address only when it was set before the mail was sent")
    func deadAddresses() async throws {
        try await Samples.withStores { database in
            let preferences = database.preferences
            let deliveries = database.deliveries
            var settings = UserSettings()
            settings.email = "a@example.com"
            try await preferences.set(user: "a", settings: settings)
            // The database's own clock lies between the two times.
            let (before, after) = (Timestamp(seconds: 1), Timestamp(seconds: 32_000_000_000))
            func settle(_ address: String, at moment: Timestamp) async throws -> Bool {
                var settlement = DeliveryStore.Settlement()
                settlement.deadAddresses = [("a", address, "SMTP_550_5.1.1", moment)]
                return try await deliveries.settle(settlement).addresses == [ExactText("a")]
            }
            func isGood() async throws -> Bool {
                try await database.pool.query("SELECT 1 FROM carillon.user_settings WHERE email_invalid_at IS NULL")
                    .count == 1
            }
            #expect(try await !settle("a@example.com", at: before))
            #expect(try await isGood())
            #expect(try await !settle("other@example.com", at: after))
            #expect(try await isGood())
            // A change that keeps the address does not set it again.
            _ = try await preferences.set(user: "a", settings: settings, keeping: [.general])
            #expect(try await settle("a@example.com", at: after))
            #expect(try await !isGood())
            try await preferences.set(user: "a", settings: settings)
            #expect(try await !settle("a@example.com", at: before))
            #expect(try await isGood())
            // Addresses from before `email_set_at` compare by text.
            try await database.pool.query("UPDATE carillon.user_settings SET email_set_at = NULL")
            _ = try await preferences.set(user: "a", settings: settings, keeping: [.general])
            #expect(try await settle("a@example.com", at: before))
        }
    }

    @Test("changes addresses, devices and follow-ups in one order, so that two settlements do not deadlock")
    func lockOrder() async throws {
        try await Samples.withStoresOfTwoPools { database, second in
            let after = Timestamp(seconds: 32_000_000_000)
            var phones: [Device] = []
            for user in ["a", "b"] {
                var settings = UserSettings()
                settings.email = "\(user)@example.com"
                try await database.preferences.set(user: user, settings: settings)
                phones.append(try await database.devices.register(Samples.device(user: user, token: user)).device)
            }
            phones.sort { $0.id < $1.id }
            var mail = DeliveryStore.Settlement()
            mail.deadAddresses = [("b", "b@example.com", "SMTP_550", after), ("a", "a@example.com", "SMTP_550", after)]
            var push = DeliveryStore.Settlement()
            push.deadTokens = [
                (phones[1].id, phones[1].token, "Unregistered", after),
                (phones[0].id, phones[0].token, "Unregistered", after),
            ]
            let notification = NotificationID(high: 1, low: 2)
            try await database.pool.query(
                """
                INSERT INTO carillon.follow_ups (user_id, notification_id, kind, due_at)
                SELECT unnest(ARRAY['a', 'b']), $1, 'attention', now()
                """,
                .uuid(notification.halves))
            var calls = DeliveryStore.Settlement()
            calls.finishedFollowUps = ["b", "a"].map {
                (NotificationKey(user: $0, id: notification), FollowUp.attention, true)
            }
            for (settlement, rows, changes) in [
                (mail, ["user_settings WHERE user_id = 'a'", "user_settings WHERE user_id = 'b'"], 2),
                (push, phones.map { "devices WHERE id = '\($0.id)'" }, 2),
                (calls, ["follow_ups WHERE user_id = 'a'", "follow_ups WHERE user_id = 'b'"], 0),
            ] {
                let settling = try await database.pool.transaction { transaction in
                    try await transaction.query("SELECT FROM carillon.\(rows[0]) FOR UPDATE")
                    let settling = Task { try await second.deliveries.settle(settlement) }
                    try await eventually("it waits for the first") { try await Samples.areWaiting(1, database) }
                    // It does not have the second yet.
                    try await transaction.query("SELECT FROM carillon.\(rows[1]) FOR UPDATE NOWAIT")
                    return settling
                }
                let effects = try await settling.value
                #expect(effects.addresses.count + effects.devices.count == changes)
            }
            let left = try await database.pool.query("SELECT 1 FROM carillon.follow_ups")
            #expect(left.isEmpty)
        }
    }

    @Test("lets an accepted push on one device win over a failure on another, in either order")
    func outcomes() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let deliveries = database.deliveries
            let batch = [Samples.notification(1, user: "a"), Samples.notification(2, user: "a")]
            _ = try await store.store(batch, areRepeats: false)
            var accepted = DeliveryStore.Settlement()
            accepted.accepted = batch.map { ($0.key, "fcm", DeviceID(high: 1, low: 2)) }
            var failed = DeliveryStore.Settlement()
            failed.failed = batch.map { ($0.key, "UNREGISTERED", true) }
            try await deliveries.settle(accepted)
            try await deliveries.settle(failed)
            #expect(try await store.load([batch[0].key]).first?.status == .sent)
            let late = [Samples.notification(3, user: "b")]
            _ = try await store.store(late, areRepeats: false)
            failed.failed = [(late[0].key, "UNREGISTERED", true)]
            try await deliveries.settle(failed)
            #expect(try await store.load([late[0].key]).first?.status == .failed)
            accepted.accepted = [(late[0].key, "apns", DeviceID(high: 1, low: 2))]
            try await deliveries.settle(accepted)
            #expect(try await store.load([late[0].key]).first?.status == .sent)
        }
    }

    @Test(
        "fails a notification with its last device, and not while another may get the push",
        arguments: [("failed", "failed", "BadToken"), ("read", "sent", "read"), ("accepted", "sent", nil)]
            as [(String, String, String?)])
    func lastDevice(_ what: String, _ status: String, _ reason: String?) async throws {
        try await Samples.withStores { database in
            let (store, deliveries) = (database.notifications, database.deliveries)
            var devices: [Device] = []
            for name in ["phone", "tablet"] {
                devices.append(
                    try await database.devices.register(Samples.device(user: "a", token: name, name: name)).device)
            }
            let notification = Samples.notification(1, user: "a", job: "j") { $0.channels = [.inApp, .push] }
            _ = try await store.store([notification], areRepeats: false)
            try await store.mark([(notification.key, .pending, "queued", nil)])
            func settle(
                _ device: Device,
                _ outcome: DeliveryStore.Outcome,
                _ change: (inout DeliveryStore.Settlement) -> Void
            ) async throws {
                var settlement = DeliveryStore.Settlement()
                settlement.attempts = [
                    DeliveryStore.Attempt(
                        at: Samples.start, user: "a", notification: notification.id, device: device.id,
                        provider: .fcm, kind: "push", attempt: 1, outcome: outcome, reason: "x")
                ]
                change(&settlement)
                try await deliveries.settle(settlement)
            }
            try await settle(devices[0], .failed) {
                $0.failed = [(notification.key, "UNREGISTERED", true)]
            }
            let name = CancellationStore.Name(org: notification.org, id: "j")
            #expect(try await database.cancellations.tally(name).counts == [.pending: 1])
            switch what {
            case "failed":
                try await settle(devices[1], .failed) {
                    $0.failed = [(notification.key, "BadToken", true)]
                }
            case "read":
                try await database.pool.query("UPDATE carillon.notifications SET read_at = now()")
                try await settle(devices[1], .skipped) { $0.obsolete = [(notification.key, "read")] }
            default:
                try await settle(devices[1], .accepted) {
                    $0.accepted = [(notification.key, "fcm", devices[1].id)]
                }
            }
            let stored = try #require(try await store.load([notification.key]).first)
            #expect(stored.status.rawValue == status)
            #expect(stored.statusReason == reason)
        }
    }

    @Test(
        "does not wait for a device that was registered just before a late push was marked as queued",
        arguments: [(5, "failed"), (60, "pending")] as [(Int, String)])
    func registeredMeanwhile(_ secondsBefore: Int, _ status: String) async throws {
        try await Samples.withStores { database in
            let phone = try await database.devices.register(Samples.device(user: "a", token: "phone")).device
            _ = try await database.devices.register(Samples.device(user: "a", token: "tablet"))
            let notification = Samples.notification(1, user: "a") { $0.channels = [.inApp, .push] }
            let store = database.notifications
            _ = try await store.store([notification], areRepeats: false)
            try await store.mark([(notification.key, .pending, "queued", nil)])
            try await database.pool.query(
                """
                UPDATE carillon.notifications n
                SET stored_at = d.pushed_since - interval '1 hour',
                    handed_at = d.pushed_since + \(secondsBefore) * interval '1 second'
                FROM carillon.devices d WHERE d.token = 'tablet'
                """)
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [
                DeliveryStore.Attempt(
                    at: Samples.start, user: "a", notification: notification.id, device: phone.id, provider: .fcm,
                    kind: "push", attempt: 1, outcome: .failed, reason: "UNREGISTERED")
            ]
            settlement.failed = [(notification.key, "UNREGISTERED", true)]
            try await database.deliveries.settle(settlement)
            #expect(try await store.load([notification.key]).first?.status.rawValue == status)
        }
    }

    @Test(
        "ends an obsolete notification when none of its deliveries is in flight",
        arguments: [
            ("read", "sent", "read"), ("deleted", "sent", "deleted"), ("opened", "sent", "opened"),
            ("removed", "sent", "no_device"), ("alone", "failed", "no_device"), ("alone read", "suppressed", "read"),
        ])
    func dropped(_ what: String, _ status: String, _ reason: String) async throws {
        try await Samples.withStores { database in
            let deliveries = database.deliveries
            let devices = database.devices
            let phone = try await devices.register(Samples.device(user: "a", token: "phone", name: "phone")).device
            let tablet = try await devices.register(Samples.device(user: "a", token: "tablet", name: "tablet")).device
            let notification = Samples.notification(1, user: "a") {
                $0.channels = what.hasPrefix("alone") ? [.push] : [.inApp, .push]
            }
            let store = database.notifications
            _ = try await store.store([notification], areRepeats: false)
            try await store.mark([(notification.key, .pending, "queued", nil)])
            // A device that registered later has no delivery; one that registers again does.
            _ = try await devices.register(Samples.device(user: "a", token: "late", name: "late"))
            _ = try await devices.register(Samples.device(user: "a", token: "tablet", name: "tablet", at: 60))
            if what.hasSuffix("read") {
                try await database.pool.query("UPDATE carillon.notifications SET read_at = now()")
            } else if what == "deleted" || what == "opened" {
                try await database.pool.query("UPDATE carillon.notifications SET \(what)_at = now()")
            }
            func drop(_ device: Device) async throws -> [EndedNotification] {
                var settlement = DeliveryStore.Settlement()
                settlement.attempts = [
                    DeliveryStore.Attempt(
                        at: Samples.start, user: "a", notification: notification.id, device: device.id,
                        provider: .fcm, kind: "push", attempt: 1, outcome: .skipped, reason: "gone")
                ]
                settlement.obsolete = [(notification.key, Reason.noDevice.rawValue)]
                return try await deliveries.settle(settlement).ended
            }
            #expect(try await drop(phone).isEmpty, "the tablet waits for its retry")
            #expect(try await store.load([notification.key]).first?.status == .pending)
            let ended = try await drop(tablet)
            #expect(ended.map(\.label.id) == [notification.id])
            #expect(ended.map(\.status.rawValue) == [status])
            #expect(ended.map(\.reason) == [reason])
            let stored = try #require(try await store.load([notification.key]).first)
            #expect(stored.status.rawValue == status)
            #expect(stored.statusReason == reason)
            #expect(try await drop(tablet).isEmpty)
        }
    }

    @Test("ends a notification whose push was dropped when its mail does not go out")
    func unmailed() async throws {
        try await Samples.withStores { database in
            let (store, deliveries) = (database.notifications, database.deliveries)
            let phone = try await database.devices.register(Samples.device(user: "a", token: "phone")).device
            try await database.pool.query(
                "INSERT INTO carillon.user_settings (user_id, email) VALUES ('a', 'a@example.com')")
            let batch = (1...2).map { number in
                Samples.notification(number, user: "a") { $0.channels = [.inApp, .push, .email] }
            }
            _ = try await store.store(batch, areRepeats: false)
            // The second still waits for proof of receipt.
            try await store.mark([(batch[0].key, .pending, "queued", nil)])
            func attempt(_ notification: Notification, _ kind: String) -> DeliveryStore.Attempt {
                DeliveryStore.Attempt(
                    at: Samples.start, user: "a", notification: notification.id,
                    device: kind == "push" ? phone.id : nil, provider: kind == "push" ? .fcm : .email, kind: kind,
                    attempt: 1, outcome: kind == "push" ? .skipped : .failed, reason: "gone")
            }
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [attempt(batch[0], "push")]
            settlement.obsolete = [(batch[0].key, Reason.noDevice.rawValue)]
            #expect(try await deliveries.settle(settlement).ended.isEmpty, "the mail may still go out")
            settlement = DeliveryStore.Settlement()
            settlement.attempts = batch.map { attempt($0, "email") }
            settlement.unsentSecondary = batch.map { ($0.key, "SMTP_550", true) }
            let ended = try await deliveries.settle(settlement).ended
            #expect(ended.map(\.label.id) == [batch[0].id])
            let stored = try await store.load(batch.map { $0.key }).sorted { $0.id < $1.id }
            #expect(stored.map(\.status) == [.sent, .pending])
            #expect(stored.map(\.statusReason) == ["SMTP_550", nil])
        }
    }

    @Test("changes a notification in the inbox by its mail only if its push was dropped or its job cancelled")
    func mailed() async throws {
        try await Samples.withStores { database in
            let (store, deliveries) = (database.notifications, database.deliveries)
            let phone = try await database.devices.register(Samples.device(user: "a", token: "phone")).device
            try await database.pool.query(
                "INSERT INTO carillon.user_settings (user_id, email) VALUES ('a', 'a@example.com')")
            // They wait for proof, are queued, failed, queued with a dropped push, and cancelled;
            // the last one is not in the inbox.
            let batch = (1...6).map { number in
                Samples.notification(number, user: "a") {
                    $0.channels = number == 6 ? [.push, .email] : [.inApp, .push, .email]
                }
            }
            _ = try await store.store(batch, areRepeats: false)
            try await store.mark([
                (batch[1].key, .pending, "queued", nil), (batch[2].key, .failed, "UNREGISTERED", nil),
                (batch[3].key, .pending, "queued", nil), (batch[4].key, .cancelled, "in_flight", nil),
            ])
            func attempt(_ notification: Notification, _ kind: String) -> DeliveryStore.Attempt {
                DeliveryStore.Attempt(
                    at: Samples.start, user: "a", notification: notification.id,
                    device: kind == "push" ? phone.id : Device.emailAddress,
                    provider: kind == "push" ? .fcm : .email, kind: kind, attempt: 1,
                    outcome: kind == "push" ? .skipped : .accepted, reason: kind == "push" ? "gone" : nil)
            }
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [attempt(batch[3], "push")]
            settlement.obsolete = [(batch[3].key, Reason.noDevice.rawValue)]
            #expect(try await deliveries.settle(settlement).ended.isEmpty, "the mail may still go out")
            settlement = DeliveryStore.Settlement()
            settlement.attempts = batch.map { attempt($0, "email") }
            settlement.accepted = batch.map { ($0.key, "email", Device.emailAddress) }
            try await deliveries.settle(settlement)
            let rows = try await database.pool.query(
                """
                SELECT concat_ws(' ', status, status_reason, sent_via) FROM carillon.notifications ORDER BY id
                """)
            #expect(
                try rows.map { try $0.text(0) } == [
                    "pending", "pending queued", "failed UNREGISTERED", "sent email", "sent cancelled_too_late email",
                    "sent email",
                ])
        }
    }

    @Test(
        "ends a notification outside the inbox whose push was dropped by the reason why its mail did not go out",
        arguments: [
            ("SMTP_550", true, "failed"), ("opted_out", false, "suppressed"), ("expired", false, "expired"),
        ])
    func unmailedAlone(_ reason: String, _ hasFailed: Bool, _ status: String) async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let notification = Samples.notification(1, user: "a") { $0.channels = [.push, .email] }
            _ = try await store.store([notification], areRepeats: false)
            try await store.mark([(notification.key, .pending, "queued", nil)])
            var settlement = DeliveryStore.Settlement()
            settlement.unsentSecondary = [(notification.key, reason, hasFailed)]
            let ended = try await database.deliveries.settle(settlement).ended
            #expect(ended.map(\.status.rawValue) == [status])
            #expect(ended.map(\.reason) == [reason])
        }
    }

    @Test("ends as expired if retention removed it before its mail was refused")
    func unmailedAfterRetention() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let notification = Samples.notification(1, user: "a") {
                $0.channels = [.push, .email]
                $0.keepUntil = Samples.start
            }
            _ = try await store.store([notification], areRepeats: false)
            try await store.mark([(notification.key, .pending, "queued", nil)])
            try await database.pool.query("UPDATE carillon.notifications SET deleted_at = keep_until")
            var settlement = DeliveryStore.Settlement()
            settlement.unsentSecondary = [(notification.key, "expired", true)]
            let ended = try await database.deliveries.settle(settlement).ended
            #expect(ended.map(\.status.rawValue) == ["expired"])
            #expect(ended.map(\.reason) == ["expired"])
        }
    }

    @Test(
        "is sent once a provider accepts it, although the push to another device expired or was not wanted",
        arguments: [
            (.fcm, [.push], .expired), (.fcm, [.inApp, .push], .expired), (.email, [.push, .email], .suppressed),
        ] as [(Provider, Channels, NotificationStatus)])
    func acceptedLast(provider: Provider, channels: Channels, status: NotificationStatus) async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let notification = Samples.notification(1, user: "a") { $0.channels = channels }
            _ = try await store.store([notification], areRepeats: false)
            try await store.mark([(notification.key, status, "x", nil)])
            var settlement = DeliveryStore.Settlement()
            settlement.accepted = [(notification.key, provider.rawValue, Device.emailAddress)]
            try await database.deliveries.settle(settlement)
            #expect(try await store.load([notification.key]).map(\.status) == [.sent])
        }
    }

    @Test(
        "settles a deferred notification outside the inbox that gets no push as its mail ends, before or after",
        arguments: [true, false], [true, false])
    func leftToMail(isAccepted: Bool, hasEnded: Bool) async throws {
        try await Samples.withStores { database in
            let (deliveries, followUps) = (database.deliveries, database.followUps)
            let notification = Samples.notification(1, user: "a") { $0.channels = [.push, .email] }
            _ = try await database.notifications.store([notification], areRepeats: false)
            func item(_ kind: FollowUp) -> FollowUpStore.Item {
                FollowUpStore.Item(user: "a", notification: notification.id, kind: kind)
            }
            try await followUps.postpone([(item(.release), Samples.start, "quiet_hours")], now: Samples.start)
            try await followUps.expect([item(.email)], until: Samples.start)
            let now = try await database.clock()
            func endMail() async throws {
                var settlement = DeliveryStore.Settlement()
                settlement.attempts = [
                    DeliveryStore.Attempt(
                        at: now, user: "a", notification: notification.id, device: Device.emailAddress,
                        provider: .email, kind: "email", attempt: 1, outcome: isAccepted ? .accepted : .failed)
                ]
                if isAccepted {
                    settlement.accepted = [(notification.key, "email", Device.emailAddress)]
                } else {
                    settlement.failed = [(notification.key, "SMTP_550", false)]
                }
                settlement.finishedFollowUps = [(notification.key, .email, isAccepted)]
                try await deliveries.settle(settlement)
            }
            func state() async throws -> [String] {
                try await database.pool.query(
                    "SELECT concat_ws(' ', status, sent_via) FROM carillon.notifications"
                ).map { try $0.text(0) }
            }
            if hasEnded {
                try await endMail()
                #expect(try await state() == ["deferred"])
            }
            var settlement = DeliveryStore.Settlement()
            settlement.leftToMail = [(notification.key, "no_device", .failed)]
            let ended = try await deliveries.settle(settlement).ended
            // The relay's answer has had its event.
            #expect(ended.compactMap { $0.event(at: now) }.count == (hasEnded && !isAccepted ? 1 : 0))
            if !hasEnded {
                #expect(try await state() == ["pending"])
                try await endMail()
            }
            #expect(try await state() == [isAccepted ? "sent email" : "failed"])
        }
    }

    @Test("ends a notification that was left to its mail when the gate refuses that, although a push was postponed")
    func leftToRefusedMail() async throws {
        try await Samples.withStores { database in
            let (deliveries, followUps) = (database.deliveries, database.followUps)
            let phone = try await database.devices.register(Samples.device(user: "a", token: "phone")).device
            try await database.pool.query(
                "INSERT INTO carillon.user_settings (user_id, email) VALUES ('a', 'a@example.com')")
            let notification = Samples.notification(1, user: "a") { $0.channels = [.push, .email] }
            _ = try await database.notifications.store([notification], areRepeats: false)
            func item(_ kind: FollowUp) -> FollowUpStore.Item {
                FollowUpStore.Item(user: "a", notification: notification.id, kind: kind)
            }
            try await followUps.postpone([(item(.release), Samples.start, "quiet_hours")], now: Samples.start)
            try await followUps.expect([item(.email)], until: Samples.start)
            func skip(_ kind: String, _ device: DeviceID, _ reason: String) -> DeliveryStore.Attempt {
                DeliveryStore.Attempt(
                    at: Samples.start, user: "a", notification: notification.id, device: device,
                    provider: kind == "push" ? .fcm : .email, kind: kind, attempt: 1, outcome: .skipped,
                    reason: reason)
            }
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [skip("push", phone.id, "quiet_hours")]
            settlement.leftToMail = [(notification.key, "capped_by_user", .failed)]
            try await deliveries.settle(settlement)
            #expect(try await database.notifications.load([notification.key]).first?.status == .pending)
            settlement = DeliveryStore.Settlement()
            settlement.attempts = [skip("email", Device.emailAddress, "type_disabled")]
            settlement.obsolete = [(notification.key, "type_disabled")]
            settlement.finishedFollowUps = [(notification.key, .email, false)]
            let ended = try await deliveries.settle(settlement).ended
            #expect(ended.map(\.status) == [.suppressed])
            #expect(ended.map(\.reason) == ["type_disabled"])
        }
    }

    @Test(
        "ends a notification outside the inbox whose push a cap held back with its mail, although a device is active",
        arguments: [
            ("type_disabled", "suppressed type_disabled"), ("SMTP_550", "failed SMTP_550"), ("cancelled", "cancelled"),
        ])
    func pushHeldBack(reason: String, state: String) async throws {
        try await Samples.withStores { database in
            let (store, deliveries) = (database.notifications, database.deliveries)
            _ = try await database.devices.register(Samples.device(user: "a", token: "phone"))
            try await database.pool.query(
                "INSERT INTO carillon.user_settings (user_id, email) VALUES ('a', 'a@example.com')")
            let notification = Samples.notification(1, user: "a") { $0.channels = [.push, .email] }
            _ = try await store.store([notification], areRepeats: false)
            let mail = FollowUpStore.Item(user: "a", notification: notification.id, kind: .email)
            try await database.followUps.expect([mail], until: Samples.start)
            try await store.mark(
                [(notification.key, .pending, "queued", nil)], notes: [(notification.key, "capped_by_user")])
            func current() async throws -> [String] {
                try await database.pool.query(
                    "SELECT concat_ws(' ', status, status_reason) FROM carillon.notifications"
                ).map { try $0.text(0) }
            }
            if reason == "cancelled" {
                _ = try await database.cancellations.cancel([notification.key], at: Samples.start)
                #expect(try await current() == ["cancelled in_flight"], "the mail may go out")
            }
            let hasFailed = reason == "SMTP_550"
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [
                DeliveryStore.Attempt(
                    at: Samples.start, user: "a", notification: notification.id, device: Device.emailAddress,
                    provider: .email, kind: "email", attempt: 1, outcome: hasFailed ? .failed : .skipped,
                    reason: reason)
            ]
            if hasFailed {
                settlement.failed = [(notification.key, reason, isPush: false)]
            } else {
                settlement.obsolete = [(notification.key, reason)]
            }
            settlement.finishedFollowUps = [(notification.key, .email, false)]
            try await deliveries.settle(settlement)
            #expect(try await current() == [state])
        }
    }

    @Test("waits for a held-back push of a device that registers again, when its mail does not go out")
    func heldBack() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            _ = try await database.devices.register(Samples.device(user: "a", token: "phone"))
            let notification = Samples.notification(1, user: "a") { $0.channels = [.inApp, .push, .email] }
            _ = try await store.store([notification], areRepeats: false)
            try await store.mark([(notification.key, .pending, "queued", nil)])
            _ = try await database.devices.register(Samples.device(user: "a", token: "phone", at: 60))
            var settlement = DeliveryStore.Settlement()
            settlement.unsentSecondary = [(notification.key, "SMTP_550", true)]
            #expect(try await database.deliveries.settle(settlement).ended.isEmpty)
        }
    }

    @Test("switches off a dead token of a device that was silenced meanwhile")
    func deadAfterSilence() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            let phone = try await devices.register(Samples.device(user: "a", token: "phone")).device
            for isSilenced in [true, false] { _ = try await devices.setSilenced(isSilenced, user: "a", id: phone.id) }
            var settlement = DeliveryStore.Settlement()
            settlement.deadTokens = [(phone.id, "phone", "Unregistered", phone.registeredAt + .seconds(1))]
            #expect(try await database.deliveries.settle(settlement).devices == [phone.id])
        }
    }

    @Test("does not wait for a device that was silenced when the push was enqueued")
    func silenced() async throws {
        try await Samples.withStores { database in
            let (store, devices) = (database.notifications, database.devices)
            let phone = try await devices.register(Samples.device(user: "a", token: "phone", name: "phone")).device
            let tablet = try await devices.register(Samples.device(user: "a", token: "tablet", name: "tablet")).device
            _ = try await devices.setSilenced(true, user: "a", id: tablet.id)
            let notification = Samples.notification(1, user: "a") { $0.channels = [.inApp, .push] }
            _ = try await store.store([notification], areRepeats: false)
            try await store.mark([(notification.key, .pending, "queued", nil)])
            _ = try await devices.setSilenced(false, user: "a", id: tablet.id)
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [
                DeliveryStore.Attempt(
                    at: Samples.start, user: "a", notification: notification.id, device: phone.id,
                    provider: .fcm, kind: "push", attempt: 1, outcome: .skipped, reason: "gone")
            ]
            settlement.obsolete = [(notification.key, Reason.noDevice.rawValue)]
            #expect(try await database.deliveries.settle(settlement).ended.map(\.label.id) == [notification.id])
        }
    }

    @Test("ends an obsolete notification whose delivery was settled before it was marked as queued")
    func droppedBeforeTheMark() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let phone = try await database.devices.register(Samples.device(user: "a", token: "phone")).device
            let notification = Samples.notification(1, user: "a") { $0.channels = [.inApp, .push] }
            _ = try await store.store([notification], areRepeats: false)
            try await database.pool.query("UPDATE carillon.notifications SET read_at = now()")
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [
                DeliveryStore.Attempt(
                    at: Samples.start, user: "a", notification: notification.id, device: phone.id,
                    provider: .fcm, kind: "push", attempt: 1, outcome: .skipped, reason: "read")
            ]
            settlement.obsolete = [(notification.key, "read")]
            let ended = try await database.deliveries.settle(settlement).ended
            #expect(ended.map(\.label.id) == [notification.id])
            try await store.mark([(notification.key, .pending, "queued", nil)])
            let stored = try #require(try await store.load([notification.key]).first)
            #expect(stored.status == .sent)
            #expect(stored.statusReason == "read")
        }
    }

    @Test("ends only the seen notifications of a cancelled job")
    func droppedAsCancelled() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let batch = (1...2).map { number in
                Samples.notification(number, user: "a") { $0.channels = [.inApp, .push] }
            }
            _ = try await store.store(batch, areRepeats: false)
            try await store.mark(batch.map { ($0.key, .pending, "queued", nil) })
            try await database.pool.query(
                "UPDATE carillon.notifications SET read_at = now() WHERE id = $1", .uuid(batch[0].id.halves))
            var settlement = DeliveryStore.Settlement()
            settlement.obsolete = batch.map { ($0.key, "cancelled") }
            let ended = try await database.deliveries.settle(settlement).ended
            #expect(ended.map(\.label.id) == [batch[0].id])
            #expect(try await store.load([batch[1].key]).first?.status == .pending)
        }
    }
}
