// Carillon · InboxStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Testing

@testable import Core
@testable import Storage

@Suite(.timeLimit(.minutes(10)))
struct InboxStoreTests {
    @Test("records a receipt of a notification whose push waits for the end of quiet hours")
    func deferredReceipt() async throws {
        try await Samples.withStores { database in
            let notification = Samples.notification(1, user: "a")
            _ = try await database.notifications.store([notification], areRepeats: false)
            try await database.notifications.mark([(notification.key, .deferred, "quiet_hours", nil)])
            let receipt = try await InboxStore(database).markDelivered(
                user: "a", id: notification.id, at: Samples.start, via: "rest")
            #expect(receipt?.changed != nil)
            let stored = try await database.notifications.load([notification.key])
            #expect(stored.map(\.status) == [.delivered])
        }
    }

    @Test("records a proof of a notification that one of several devices has failed to get")
    func failedReceipt() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let batch = (0..<2).map { Samples.notification($0, user: "a") { $0.channels = [.inApp, .push] } }
            _ = try await store.store(batch, areRepeats: false)
            for notification in batch {
                try await store.mark([(notification.key, .failed, "UNREGISTERED", nil)])
            }
            let proven = try await store.markDelivered([(batch[0].key, Samples.start)], via: "socket")
            #expect(proven.map(\.label.id) == [batch[0].id])
            let receipt = try await InboxStore(database).markDelivered(
                user: "a", id: batch[1].id, at: Samples.start, via: "client")
            #expect(receipt?.changed?.label == batch[1].label)
            let stored = try await store.load(batch.map { $0.key })
            #expect(stored.map(\.status) == [.delivered, .delivered])
            #expect(stored.map(\.statusReason) == [nil, nil])
        }
    }

    @Test("raises the version once for each change, and not when nothing changes")
    func changes() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            let batch = (0..<5).map { Samples.notification($0, user: "a") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            let now = Samples.start
            let read = try await inbox.markRead(user: "a", ids: [batch[0].id, batch[1].id], at: now)
            #expect(Set(read.ids) == [batch[0].id, batch[1].id])
            #expect(read.version == 6)
            #expect(read.unread == 3)
            let again = try await inbox.markRead(user: "a", ids: [batch[0].id], at: now)
            #expect(again.isEmpty)
            #expect(again.version == 6)
            let foreign = try await inbox.markRead(user: "eve", ids: [batch[2].id], at: now)
            #expect(foreign.isEmpty)
            let gone = try await inbox.delete(user: "a", id: batch[2].id, at: now)
            #expect(gone.version == 7)
            #expect(gone.unread == 2)
            let allRead = try await inbox.markRead(user: "a", ids: nil, at: now)
            #expect(allRead.ids.count == 2)
            #expect(allRead.unread == 0)
            let cleared = try await inbox.delete(user: "a", id: nil, at: now)
            #expect(cleared.ids.count == 4)
            #expect(cleared.version == 9)
            let state = try await inbox.states(["a"]).first
            #expect(state?.total == 0)
            #expect(state?.unread == 0)
            #expect(try await inbox.page(user: "a", filter: .init(limit: 10)).notifications.isEmpty)

            let since = try await inbox.changes([("a", 7)], limit: 10)[0].changed
            #expect(since.map(\.version).allSatisfy { $0 == 9 })
            #expect(since.count == 4)
        }
    }

    @Test("reading all stops once it has found as many as the inbox counts")
    func readAllStops() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            let batch = (0..<3).map { Samples.notification($0, user: "a") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            // A scan to the end would find all three.
            try await database.pool.query("UPDATE carillon.inboxes SET unread = 1 WHERE user_id = $1", .text("a"))
            let read = try await inbox.markRead(user: "a", ids: nil, at: Samples.start)
            #expect(read.ids.count == 1 && read.unread == 0)
            #expect(try await inbox.markRead(user: "a", ids: nil, at: Samples.start).isEmpty)
        }
    }

    @Test("a page, or a deletion of all, stops once it has found as many as the inbox counts")
    func pageStops() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            let batch = (0..<3).map { Samples.notification($0, user: "a") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            _ = try await inbox.markRead(user: "a", ids: nil, at: Samples.start)
            // A scan to the end would find all three, as it would read all tombstones.
            try await database.pool.query("UPDATE carillon.inboxes SET total = 1 WHERE user_id = $1", .text("a"))
            let newest = [batch[2].id]
            for filter in [InboxStore.Filter(limit: 10), .init(limit: 10, type: batch[0].type)] {
                let page = try await inbox.page(user: "a", filter: filter)
                #expect(page.notifications.map(\.id) == newest)
            }
            let requests = ["a", "b"].map { InboxReads.PageRequest(user: $0, filter: .init(limit: 10)) }
            let pages = try await InboxReads.pages(requests, database.pool)
            #expect(pages.map { $0.notifications.map(\.id) } == [newest, []])
            let numbered = try await inbox.page(user: "a", filter: .init(limit: 10), offset: 0)
            #expect(numbered.items.map(\.notification.id) == newest)
            #expect(try await inbox.delete(user: "a", id: nil, at: Samples.start).ids == newest)
        }
    }

    @Test("an inbox counts exactly the notifications on its pages, whichever way others left it")
    func exactTotal() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            let now = Samples.start
            let batch = (0..<13).map { number in
                Samples.notification(number, user: "a") {
                    $0.category = number % 2 == 0 ? "news" : nil
                    $0.org = number % 3 == 0 ? "acme" : ""
                    if [3, 12].contains(number) { $0.collapseKey = "k" }
                    if number == 5 { $0.keepUntil = now }
                    if number == 6 { $0.channels = [.push] }
                }
            }
            func check(_ listed: [Int], unread: [Int]) async throws {
                func expect(_ numbers: [Int], _ change: (inout InboxStore.Filter) -> Void) async throws {
                    var filter = InboxStore.Filter(limit: 13)
                    change(&filter)
                    let page = try await inbox.page(user: "a", filter: filter)
                    #expect(page.notifications.map(\.id) == numbers.reversed().map { batch[$0].id })
                    #expect(page.state.total == listed.count && page.state.unread == unread.count)
                }
                try await expect(listed) { _ in }
                try await expect(unread) { $0.unreadOnly = true }
                try await expect(listed.filter { $0 % 2 == 0 }) { $0.category = "news" }
                try await expect(listed.filter { $0 % 3 == 0 }) { $0.org = "acme" }
                try await expect(listed.filter { $0 < 9 }) { $0.before = batch[9].id }
            }
            _ = try await database.notifications.store(Array(batch.dropLast()), areRepeats: false)
            _ = try await inbox.markRead(user: "a", ids: [batch[0].id, batch[9].id, batch[10].id], at: now)
            try await check([0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11], unread: [1, 2, 3, 4, 5, 7, 8, 11])
            for number in [10, 11] { _ = try await inbox.archive(user: "a", id: batch[number].id, at: now) }
            for number in [7, 8] { _ = try await inbox.delete(user: "a", id: batch[number].id, at: now) }
            try await check([0, 1, 2, 3, 4, 5, 9], unread: [1, 2, 3, 4, 5])
            for number in [8, 10] { _ = try await inbox.restore(user: "a", id: batch[number].id) }
            _ = try await inbox.deleteArchived(user: "a", id: batch[11].id, at: now)
            try await check([0, 1, 2, 3, 4, 5, 8, 9, 10], unread: [1, 2, 3, 4, 5, 8])
            _ = try await database.notifications.store([batch[12]], areRepeats: false)
            _ = try await database.cancellations.cancel([batch[2].key], at: now)
            _ = try await database.retention.expireKept(now: now, limit: 10)
            try await check([0, 1, 4, 8, 9, 10, 12], unread: [1, 4, 8, 12])
            _ = try await inbox.delete(user: "a", id: nil, at: now)
            try await check([1, 4, 8, 12], unread: [1, 4, 8, 12])
        }
    }

    @Test("a change of all leaves out notifications with a later version")
    func upTo() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            let batch = (0..<2).map { Samples.notification($0, user: "a") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            let now = Samples.start
            let read = try await inbox.markRead(user: "a", ids: nil, at: now, upTo: 1)
            #expect(read.ids == [batch[0].id] && read.version == 3)
            #expect(try await inbox.delete(user: "a", id: nil, at: now, upTo: 2).isEmpty)
            #expect(try await inbox.delete(user: "a", id: nil, at: now, upTo: 3).ids == [batch[0].id])
        }
    }

    @Test("retention keeps an archived notification for a year, then forgets it")
    func archive() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            let batch = (0..<3).map { Samples.notification($0, user: "a") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            let now = Samples.start
            let archived = try await inbox.archive(user: "a", id: batch[1].id, at: now)
            #expect(archived.version == 4 && archived.unread == 2)
            func titles() async throws -> [String] {
                try await inbox.archived(user: "a", before: nil, limit: 10, at: now).map(\.title)
            }
            #expect(try await titles() == ["n1"])
            func removed(after days: Int64) async throws -> Int {
                try await database.retention.removeTombstones(
                    deletedBefore: now + .seconds(days * 24 * 3_600), limit: 10)
            }
            #expect(try await removed(after: 364) == 0)
            #expect(try await titles() == ["n1"])
            #expect(try await removed(after: 366) == 1)
            #expect(try await titles().isEmpty)
            #expect(try await database.pool.query("SELECT FROM carillon.archived").isEmpty)
            let lost = try await inbox.restore(user: "a", id: batch[1].id)
            #expect(lost.isEmpty)
        }
    }

    @Test("retention keeps a restored notification for 30 days, also one with a later keep_until")
    func restored() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            let retention = database.retention
            let now = try await database.clock()
            let day: Int64 = 24 * 3_600
            let restored = Samples.notification(1, user: "a")
            let distant = Samples.notification(2, user: "b") { $0.keepUntil = now + .seconds(60 * day) }
            // Retention has got as far as just before both.
            #expect(try await retention.expireInboxes(storedBefore: now, now: now, limit: 10).found == 0)
            _ = try await database.notifications.store([restored, distant], areRepeats: false)
            _ = try await inbox.delete(user: "a", id: restored.id, at: now)
            #expect(try await inbox.restore(user: "a", id: restored.id).ids == [restored.id])
            let step = try await retention.expireInboxes(storedBefore: now + .seconds(3_600), now: now, limit: 10)
            #expect(step.removals.map(\.user) == ["b"])
            #expect(try await inbox.restore(user: "b", id: distant.id).ids == [distant.id])
            #expect(try await retention.expireKept(now: now + .seconds(29 * day), limit: 10).found == 0)
            let end = try await retention.expireKept(now: now + .seconds(31 * day), limit: 10)
            #expect(end.removals.map(\.user) == ["a", "b"])
        }
    }

    @Test("a late proof of a notification that was cancelled too late does not make it restorable")
    func lateProof() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            let now = try await database.clock()
            let one = Samples.notification(1, user: "a")
            _ = try await database.notifications.store([one], areRepeats: false)
            try await database.notifications.mark([(one.key, .pending, "queued", nil)])
            _ = try await database.cancellations.cancel([one.key], at: now)
            var settlement = DeliveryStore.Settlement()
            settlement.accepted = [(one.key, "fcm", DeviceID(high: 1, low: 2))]
            try await database.deliveries.settle(settlement)
            let proven = try await database.notifications.markDelivered([(one.key, now)], via: "socket")
            #expect(proven.isEmpty)
            let rows = try await database.pool.query(
                "SELECT status || ' ' || status_reason FROM carillon.notifications")
            #expect(try rows.map { try $0.text(0) } == ["sent cancelled_too_late"])
            let restored = try await inbox.restore(user: "a", id: one.id)
            #expect(restored.isEmpty)
        }
    }

    @Test("retention trims inboxes again after a clock that was ahead")
    func clockAhead() async throws {
        try await Samples.withStores { database in
            let retention = database.retention
            let now = try await database.clock()
            for moment in [now + .seconds(10 * 365 * 24 * 3_600), now] {
                #expect(try await retention.expireInboxes(storedBefore: moment, now: moment, limit: 10).found == 0)
            }
            _ = try await database.notifications.store([Samples.notification(1, user: "a")], areRepeats: false)
            let step = try await retention.expireInboxes(storedBefore: now + .seconds(3_600), now: now, limit: 10)
            #expect(step.removals.map(\.user) == ["a"])
        }
    }

    @Test(
        "a job id stays known after keep_until until the tombstone is removed",
        arguments: [[.inApp], [.push]] as [Channels])
    func keptID(channels: Channels) async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let retention = database.retention
            let now = try await database.clock()
            let first = Samples.notification(1, user: "a", job: "order") {
                $0.channels = channels
                $0.keepUntil = now
            }
            let again = Samples.notification(2, user: "a", job: "order") {
                $0.title = first.title
                $0.channels = channels
            }
            _ = try await store.store([first], areRepeats: false)
            #expect(try await retention.expireKept(now: now, limit: 10).found == 1)
            #expect(try await retention.expireKept(now: now, limit: 10).found == 0)
            #expect(try await store.store([again], areRepeats: false).outcomes == [.duplicate(of: first.id)])
            #expect(try await retention.removeTombstones(deletedBefore: now + .seconds(3_600), limit: 10) == 1)
            #expect(try await store.store([again], areRepeats: false).outcomes != [.duplicate(of: first.id)])
        }
    }

    @Test("reads the changes of many inboxes at once, each bounded and in order")
    func manyChanges() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            let batch = (0..<7).map { Samples.notification($0, user: $0 < 5 ? "a" : "b") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            _ = try await inbox.markRead(user: "a", ids: [batch[0].id], at: Samples.start)
            _ = try await inbox.delete(user: "b", id: batch[6].id, at: Samples.start)
            let changes = try await inbox.changes([("b", 0), ("a", 4), ("nobody", 0), ("a", 0), ("b", 3)], limit: 3)
            let titles = changes.map { $0.changed.map(\.title) }
            #expect(titles == [["n5", "n6"], ["n4", "n0"], [], ["n1", "n2", "n3"], []])
            #expect(changes[0].changed.map { $0.deletedAt != nil } == [false, true])
            let states = try await inbox.states(["b", "a", "nobody", "a", "b"])
            #expect(changes.map(\.state) == states)
            #expect(try await inbox.changes([], limit: 3).isEmpty)
        }
    }

    @Test("reads changes and state from one snapshot while the inbox changes")
    func changesOfOneMoment() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            let batch = (0..<200).map { Samples.notification($0, user: "a") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            let reader = Task {
                for notification in batch {
                    _ = try await inbox.markRead(user: "a", ids: [notification.id], at: Samples.start)
                }
            }
            var version: Int64 = 200
            while version < 400 {
                let changes = try await inbox.changes([("b", 0), ("a", 200)], limit: 500)
                let (state, changed) = try #require(changes.last)
                version = state.version
                #expect(state.unread == 400 - Int32(version))
                #expect(changed.count == Int(version) - 200)
                #expect(changed.last?.version ?? 200 == version)
            }
            try await reader.value
        }
    }

    @Test("pages from newest to oldest without gap or repeat")
    func pages() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            let batch = (0..<25).map { Samples.notification($0, user: "a") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            var titles: [String] = []
            var before: NotificationID?
            while true {
                let page = try await inbox.page(user: "a", filter: .init(limit: 10, before: before))
                titles += try page.titles().compactMap(\.self)
                guard let last = page.notifications.last else { break }
                before = last.id
            }
            #expect(titles == (0..<25).reversed().map { "n\($0)" })
            #expect(try await inbox.page(user: "a", filter: .init(limit: 10, type: "other")).notifications.isEmpty)
        }
    }

    @Test("reads the newest unread notifications of many users with their states")
    func newestUnread() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            let batch = (0..<6).map { Samples.notification($0, user: $0 < 5 ? "a" : "b") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            _ = try await inbox.markRead(user: "a", ids: [batch[4].id], at: Samples.start)
            let (states, unread) = try await inbox.newestUnread(["a", "b", "a", "c"], limit: 2)
            #expect(states.map(\.unread) == [4, 1, 4, 0])
            #expect(unread[ExactText("a")]?.map(\.title) == ["n3", "n2"])
            #expect(unread[ExactText("b")]?.map(\.title) == ["n5"])
            #expect(unread[ExactText("c")] == nil)
        }
    }

    @Test("leaves out of the newest unread what is newer than the state")
    func newerThanState() async throws {
        try await Samples.withStores { database in
            let batch = (0..<3).map { Samples.notification($0, user: "a") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            // As if committed after the state was read.
            _ = try await database.pool.query(
                "UPDATE carillon.notifications SET version = 4 WHERE user_id = 'a' AND version = 2")
            let (states, unread) = try await InboxStore(database).newestUnread(["a"], limit: 9)
            #expect(states.map(\.version) == [3])
            #expect(unread[ExactText("a")]?.map(\.title) == ["n2", "n0"])
        }
    }

    @Test("reads a page and its state from one snapshot, without rows if the state is known")
    func knownState() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            #expect(try await inbox.page(user: "nobody", filter: .init(limit: 10)).state == InboxStore.State())
            let batch = (0..<5).map { Samples.notification($0, user: "a") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            let page = try await inbox.page(user: "a", filter: .init(limit: 3))
            #expect(try page.titles() == ["n4", "n3", "n2"])
            #expect(page.state.version == 5)
            #expect(page.state.total == 5)
            let known = try await inbox.page(user: "a", filter: .init(limit: 3), unless: page.state)
            #expect(known.notifications.isEmpty)
            #expect(known.state == page.state)
            let changes = try await inbox.changes(user: "a", since: 3, limit: 10, unless: nil)
            #expect(try changes.titles() == ["n3", "n4"])
            #expect(try await inbox.changes(user: "a", since: 6, limit: 10, unless: nil).notifications.isEmpty)
            #expect(try await inbox.changes(user: "a", since: 3, limit: 10, unless: page.state).notifications.isEmpty)
        }
    }

    @Test("writes a row as the same JSON as the stored notification")
    func rows() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            let plain = Samples.notification(0, user: "a")
            let full = Samples.notification(1, user: "a") { notification in
                notification.severity = .warning
                notification.delivery = .push
                notification.body = "\"é\"\n\\ 😀"
                notification.data = Array(#"{"a": [1, null]}"#.utf8)
                notification.category = "c"
                notification.org = "acme"
                notification.entityType = "invoice"
                notification.entityID = "7"
                notification.collapseKey = "k"
                notification.extras.url = "https://example.com/\u{1}"
                notification.extras.image = "https://example.com/i"
                notification.expiresAt = Samples.start + .seconds(60)
            }
            _ = try await database.notifications.store([plain, full], areRepeats: false)
            _ = try await inbox.markRead(user: "a", ids: [plain.id], at: Samples.start + .seconds(1))
            let page = try await inbox.page(user: "a", filter: .init(limit: 3))
            #expect(page.notifications.map(\.id) == [full.id, plain.id])
            for row in page.notifications {
                #expect(!row.isDeleted)
                let whole = try #require(try await inbox.find(user: "a", id: row.id))
                for field in NotificationField.allCases {
                    #expect(try Samples.json(field, of: row) == Samples.json(field, of: whole), "\(field)")
                }
            }
        }
    }

    @Test("shows noted decisions on the page; a note changes the state but not the version")
    func notes() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            let notifications = database.notifications
            let (shown, other) = (Samples.notification(1, user: "a"), Samples.notification(2, user: "b"))
            _ = try await notifications.store([shown, other], areRepeats: false)
            let before = try await inbox.state(of: "a")
            let untouched = try await inbox.state(of: "b")
            for _ in 0..<2 {
                try await notifications.mark([], notes: [(shown.key, "capped_by_user")])
                let page = try await inbox.page(user: "a", filter: .init(limit: 5), unless: before)
                #expect(page.state.version == before.version && page.state.notes == before.notes + 1)
                let row = try #require(page.notifications.first)
                #expect(try String(decoding: Samples.json(.heldBack, of: row), as: UTF8.self) == "\"capped_by_user\"")
                let same = try await inbox.page(user: "a", filter: .init(limit: 5), unless: page.state)
                #expect(same.notifications.isEmpty && same.state == page.state)
            }
            #expect(try await inbox.state(of: "b") == untouched)
        }
    }

    @Test("counts the first opening, reports a delivery with its lane and ignores suppressed notifications")
    func receipts() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            let batch = [
                Samples.notification(0, user: "a") { $0.lane = .critical },
                Samples.notification(1, user: "a") { $0.channels = [.push] },
                Samples.notification(2, user: "a") { $0.status = .suppressed },
            ]
            _ = try await database.notifications.store(batch, areRepeats: false)
            let now = Samples.start
            #expect(try await inbox.markOpened(user: "a", id: batch[0].id, at: now)?.changed?.label == batch[0].label)
            let again = try await inbox.markOpened(user: "a", id: batch[0].id, at: now + .seconds(9))
            #expect(again != nil && again?.changed == nil)
            #expect(try await inbox.find(user: "a", id: batch[0].id)?.openedAt == now)
            let receipt = try await inbox.markDelivered(user: "a", id: batch[0].id, at: now, via: "client")
            #expect(receipt?.lane == .critical)
            #expect(receipt?.changed?.label == batch[0].label)
            #expect(receipt?.changed?.endpoint == LifecycleEvent.Endpoint(.inApp))
            let second = try await inbox.markDelivered(user: "a", id: batch[0].id, at: now + .seconds(9), via: "x")
            #expect(second?.lane == .critical && second?.changed == nil)
            let delivered = try await inbox.find(user: "a", id: batch[0].id)
            #expect(delivered?.status == .delivered)
            #expect(delivered?.deliveredAt == now)
            #expect(try await inbox.markDelivered(user: "a", id: batch[1].id, at: now, via: "client")?.lane == .normal)
            #expect(try await inbox.markDelivered(user: "a", id: batch[2].id, at: now, via: "client")?.lane == nil)
            #expect(try await inbox.markOpened(user: "b", id: batch[0].id, at: now) == nil)
        }
    }

    @Test("accepts receipts of archived notifications, but not of deleted ones; a repeat writes nothing")
    func receiptsOfArchived() async throws {
        try await Samples.withStores { (database) async throws in
            let inbox = InboxStore(database)
            let batch = (0..<3).map { Samples.notification($0, user: "a") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            let now = Samples.start
            let (archived, deleted) = (batch[0].id, batch[1].id)
            for id in [archived, deleted] { _ = try await inbox.archive(user: "a", id: id, at: now) }
            _ = try await inbox.deleteArchived(user: "a", id: deleted, at: now)
            _ = try await inbox.delete(user: "a", id: batch[2].id, at: now)
            #expect(try await inbox.known(user: "a", ids: batch.map(\.id)) == [archived])
            #expect(try await inbox.button("pay", user: "a", id: archived)?.isThere == false)
            #expect(try await inbox.markDelivered(user: "a", id: archived, at: now, via: "client") != nil)
            #expect(try await inbox.markOpened(user: "a", id: archived, at: now)?.changed?.label == batch[0].label)
            func row() async throws -> String? {
                try await database.pool.query(
                    "SELECT ctid::text FROM carillon.notifications WHERE user_id = 'a' AND id = $1",
                    .uuid(archived.halves)
                ).first?.text(0)
            }
            let before = try await row()
            let again = try await inbox.markOpened(user: "a", id: archived, at: now + .seconds(9))
            #expect(again != nil && again?.changed == nil)
            #expect(try await row() == before)
            for id in [deleted, batch[2].id] {
                #expect(try await inbox.markOpened(user: "a", id: id, at: now) == nil)
                #expect(try await inbox.markDelivered(user: "a", id: id, at: now, via: "client") == nil)
                #expect(try await inbox.button("pay", user: "a", id: id) == nil)
            }
        }
    }
}

@Suite(.timeLimit(.minutes(10)))
struct InboxPageTests {
    @Test("pages by number with exact counts and filters, empty beyond the end")
    func pages() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            let batch = (0..<25).map { number in
                Samples.notification(number, user: "a") {
                    if number % 5 == 0 { $0.title = "other \(number)" }
                }
            }
            _ = try await database.notifications.store(batch, areRepeats: false)
            let foreign = [Samples.notification(0, user: "b")]
            _ = try await database.notifications.store(foreign, areRepeats: false)
            _ = try await inbox.markRead(user: "a", ids: [batch[24].id, batch[0].id], at: Samples.start)
            _ = try await inbox.delete(user: "a", id: batch[23].id, at: Samples.start)

            let first = try await inbox.page(user: "a", filter: .init(limit: 3), offset: 0)
            #expect(first.items.map(\.notification.id) == [batch[24].id, batch[22].id, batch[21].id])
            #expect(first.matching == 24)
            #expect(first.unread == 22)
            let last = try await inbox.page(user: "a", filter: .init(limit: 10), offset: 20)
            #expect(last.items.map(\.notification.id) == (0...3).reversed().map { batch[$0].id })
            let unread = try await inbox.page(user: "a", filter: .init(limit: 2, unreadOnly: true), offset: 0)
            #expect(unread.items.map(\.notification.id) == [batch[22].id, batch[21].id])
            #expect(unread.matching == 22)
            let beyond = try await inbox.page(user: "a", filter: .init(limit: 2), offset: 500)
            #expect(beyond.items.isEmpty)
            #expect(beyond.matching == 24)
            let nobody = try await inbox.page(user: "nobody", filter: .init(limit: 2), offset: 0)
            #expect(nobody.items.isEmpty)
            #expect(nobody.matching == 0)
        }
    }

    @Test("counts one type, unread or all")
    func types() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            let start = Samples.start
            var batch = (0..<6).map { Samples.notification($0, user: "a") }
            for number in 6..<9 {
                let like = Samples.notification(number, user: "a")
                var other = Notification(id: like.id, user: "a", type: "other", createdAt: start)
                other.jobEntry = like.jobEntry
                other.channels = [.inApp]
                batch.append(other)
            }
            _ = try await database.notifications.store(batch, areRepeats: false)
            _ = try await inbox.markRead(user: "a", ids: [batch[8].id], at: start)
            let other = try await inbox.page(user: "a", filter: .init(limit: 2, type: "other"), offset: 0)
            #expect(other.items.map(\.notification.type) == ["other", "other"])
            #expect(other.matching == 3)
            #expect(other.unread == 8)
            let unread = try await inbox.page(
                user: "a",
                filter: .init(limit: 5, unreadOnly: true, type: "other"),
                offset: 1
            )
            #expect(unread.items.map(\.notification.id) == [batch[6].id])
            #expect(unread.matching == 2)
            let none = try await inbox.page(user: "a", filter: .init(limit: 2, type: "unknown"), offset: 0)
            #expect(none.items.isEmpty)
            #expect(none.matching == 0)
        }
    }

    @Test("names the channel of each notification, alone or on a page, and hides those of other users")
    func sentVia() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            let batch = [Samples.notification(0, user: "a"), Samples.notification(1, user: "b")]
            let store = database.notifications
            _ = try await store.store(batch, areRepeats: false)
            try await store.markDelivered([(batch[0].key, Samples.start)], via: "socket")
            let page = try await inbox.page(user: "a", filter: .init(limit: 2), offset: 0)
            #expect(page.items.map(\.sentVia) == ["socket"])
            #expect(try await inbox.item(user: "a", id: batch[0].id)?.sentVia == "socket")
            #expect(try await inbox.item(user: "a", id: batch[1].id) == nil)
            #expect(try await inbox.known(user: "a", ids: batch.map(\.id)) == [batch[0].id])
            #expect(try await inbox.known(user: "a", ids: []).isEmpty)
        }
    }
}
