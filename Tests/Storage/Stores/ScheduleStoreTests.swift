// Carillon · ScheduleStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@testable import Core
@testable import Storage

@Suite(.timeLimit(.minutes(10)))
struct ScheduleStoreTests {
    private static let now = Samples.start
    private static let hold: Duration = .seconds(30)

    private static func schedule(
        _ number: Int,
        due: Duration = .zero,
        job: String? = nil,
        change: (inout Schedule) -> Void = { _ in }
    ) -> Schedule {
        let digest = EntryDigest(stream: "jobs", entry: "\(1_795_000_000_000 + number)-0", fields: [])
        var schedule = Schedule(
            id: NotificationID(origin: digest, user: ""),
            fields: [("user", Array("u\(number)".utf8)), ("type", Array("invoice_created".utf8))],
            dueAt: Self.now + due,
            createdAt: Self.now
        )
        schedule.org = "org"
        schedule.jobID = job
        schedule.source = "jobs/\(number)"
        schedule.content = Int64(number)
        change(&schedule)
        return schedule
    }

    @Test("reads a schedule back as it was stored")
    func roundTrip() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let schedule = Self.schedule(1, due: .seconds(5), job: "j") { schedule in
                schedule.fields.append(("title", Array("„é“ \\u0000 \"x\"\n".utf8)))
                schedule.part = "Europe/Berlin"
                schedule.user = "u1"
                schedule.lane = .bulk
                schedule.cron = "0 9 * * *"
                schedule.zone = "Europe/Berlin"
                schedule.wall = WallTime("2026-11-20T09:00")
                schedule.startsAt = Self.now
                schedule.endsAt = Self.now + .seconds(9)
            }
            #expect(try await store.add([schedule]) == [.stored])
            let found = try #require(try await store.find(schedule.id))
            #expect(found.fields.map(\.name) == schedule.fields.map(\.name))
            #expect(found.fields.map(\.value) == schedule.fields.map(\.value))
            #expect(found.org == "org" && found.jobID == "j" && found.part == "Europe/Berlin" && found.user == "u1")
            #expect(found.lane == .bulk && found.cron == "0 9 * * *" && found.zone == "Europe/Berlin")
            #expect(found.wall == schedule.wall && found.startsAt == Self.now && found.endsAt == schedule.endsAt)
            #expect(found.dueAt == schedule.dueAt && found.createdAt == Self.now && found.state == .waiting)
            #expect(found.source == "jobs/1" && found.content == 1 && found.attempts == 0 && found.lastFiredAt == nil)
        }
    }

    @Test("overdue steps, schedules and digests count as late, also once claimed; pages that wait for room do not")
    func late() async throws {
        try await Samples.withStores { database in
            let now = Self.now + .seconds(600)
            func late() async throws -> Int64 {
                try await database.overviews.summary(since: Self.now, org: nil, now: now).late
            }
            #expect(try await late() == 0)
            let page = Self.schedule(3, job: "b") { $0.part = "UTC 0/0 hash" }
            _ = try await database.schedules.add([Self.schedule(1), Self.schedule(2, due: .seconds(599)), page])
            var rule = DigestRule(window: .seconds(60), maximum: .seconds(3_600))
            rule.isSliding = true
            let item = DigestStore.Item(notification: Samples.notification(1, user: "a"), key: "k", rule: rule)
            _ = try await database.digests.gather([item], now: Self.now)
            let steps = (2...3).map { Samples.notification($0, user: "a") }
            _ = try await database.notifications.store(steps, areRepeats: false)
            let dues = [Self.now + .seconds(60), now - .seconds(1)]
            try await database.followUps.postpone(
                zip(steps, dues).map { step, due in
                    (FollowUpStore.Item(user: "a", notification: step.id, kind: .release), due, "quiet_hours")
                }, now: Self.now)
            #expect(try await late() == 3)
            let claimed = try await database.schedules.claim(.normal, now: now, hold: Self.hold, hasRoom: false)
            let windows = try await database.digests.claim(now: now, until: now + Self.hold, limit: 10)
            #expect(claimed.count == 2 && windows.count == 1)
            // The steps' first dispatcher fails, and another takes them.
            let again = now + .seconds(10)
            for (moment, until) in [(now, again), (again, now + Self.hold)] {
                let followUps = try await database.followUps.claim(now: moment, until: until, limit: 10)
                #expect(followUps.count == 2)
            }
            #expect(try await late() == 3)
        }
    }

    @Test("stores an entry or job once and reports an id with other content")
    func once() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let first = Self.schedule(1, job: "a")
            let fresh = try await store.add([first, Self.schedule(2)])
            #expect(fresh == [.stored, .stored])
            #expect(try await store.add([first, Self.schedule(2)]) == [.known, .known])
            let same = Self.schedule(3, job: "a") { $0.content = 1 }
            let other = Self.schedule(4, job: "a")
            let elsewhere = Self.schedule(6, job: "a") { $0.org = "other" }
            #expect(try await store.add([same, other, elsewhere]) == [.known, .conflict, .stored])
            #expect(try await store.page(after: nil, org: nil, limit: 10).count == 3)
            #expect(try await store.page(after: nil, org: "other", limit: 10).map(\.id) == [elsewhere.id])
            #expect(try await store.count(.init(org: "org", id: "a")) == 1)
        }
    }

    @Test("a job that waits for a moment cannot wait for local times too, nor the reverse")
    func kinds() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            func local(_ number: Int, job: String, _ part: String) -> Schedule {
                Self.schedule(number, job: job) { $0.part = part }
            }
            let (tokyo, berlin) = (local(1, job: "a", "Asia/Tokyo"), local(2, job: "a", "Europe/Berlin"))
            let stored = try await store.add([tokyo, berlin, Self.schedule(3, job: "b")])
            #expect(stored == [.stored, .stored, .stored])
            let moment = Self.schedule(4, job: "a")
            for _ in 0..<2 {
                let refused = try await store.add([moment, local(5, job: "b", "UTC")])
                #expect(refused == [.conflict, .conflict])
            }
            let called = try await store.put(moment, limit: 9)
            #expect(called == .conflict)
            // The broadcast has taken the id.
            let page = try await store.add([local(6, job: "b", "UTC 0/0 hash")])
            #expect(page == [.stored])
            let known = try await store.add([tokyo, Self.schedule(3, job: "b")])
            #expect(known == [.known, .known])
            // The list leaves out the broadcast's page.
            #expect(try await store.page(after: nil, org: nil, limit: 10).count == 3)
        }
    }

    @Test("claims few pages of broadcasts at once, and none while their lane has no room")
    func pages() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let pages = (1...10).map { number in Self.schedule(number, job: "b") { $0.part = "UTC 0/\(number) hash" } }
            _ = try await store.add(pages + [Self.schedule(11, due: .milliseconds(-1))])
            #expect(try await store.isPageDue(in: .normal, now: Self.now))
            let others = try await store.claim(.normal, now: Self.now, hold: Self.hold, hasRoom: false)
            #expect(others.map(\.source) == ["jobs/11"])
            _ = try await store.add([Self.schedule(12)])
            var claimed: [Int] = []
            for _ in 0..<3 { claimed.append(try await store.claim(.normal, now: Self.now, hold: Self.hold).count) }
            #expect(claimed.reduce(0, +) == 11)
            #expect(claimed.allSatisfy { $0 <= ScheduleStore.pageClaimSize + 1 })
            #expect(try await !store.isPageDue(in: .normal, now: Self.now))
        }
    }

    @Test("pages of broadcasts do not delay a job that is due after them")
    func jobAfterPages() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let pages = (1...ScheduleStore.claimSize + ScheduleStore.pageClaimSize).map { number in
                Self.schedule(number, job: "b") { $0.part = "UTC 0/\(number) hash" }
            }
            _ = try await store.add(pages + [Self.schedule(1_000, due: .seconds(5))])
            let claimed = try await store.claim(.normal, now: Self.now + .seconds(5), hold: Self.hold)
            #expect(claimed.count == ScheduleStore.pageClaimSize + 1)
            #expect(claimed.last?.source == "jobs/1000")
        }
    }

    /// Stores a broadcast with two pages of nine users, and returns the chain before the second.
    private static func chain(job: String, _ database: Database) async throws -> Broadcast.Chain {
        let broadcast = Broadcast(
            id: NotificationID(high: 1, low: 1), org: "org", jobID: job, entry: "jobs/1-0", stream: "jobs",
            fields: [], topic: "late news", lane: .normal, createdAt: Self.now)
        let outcomes = try await database.broadcasts.add([broadcast])
        #expect(outcomes == [.stored])
        try await database.pool.query(
            """
            INSERT INTO carillon.broadcast_pages (broadcast, part, number, selected, stored, counted, at)
            SELECT id, 3, n, 9, 0, '{"scheduled": 9}', now()
            FROM carillon.broadcasts, generate_series(0, 1) n
            """)
        return Broadcast.Chain(broadcast: broadcast, index: 3, pages: 1, reached: "")
    }

    @Test("counts the outcomes of the users of a page of a broadcast once, when its schedules are removed")
    func outcomes() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let chain = try await Self.chain(job: "a", database)
            _ = try await store.add(
                ["UTC", "Asia/Tokyo"].enumerated().map { number, zone in
                    Self.schedule(number, job: "a") {
                        $0.part = Schedule.Page.part(zone: zone, chain: chain, users: $0.id)
                    }
                })
            let claimed = try await store.claim(.normal, now: Self.now, hold: Self.hold)
            #expect(claimed.map(\.page?.topic) == ["late news", "late news"])
            let refused = claimed.map { ScheduleStore.PageOutcome($0, reason: "opted_out", users: 2) }
            let left = ScheduleStore.PageOutcome(claimed[0], reason: "left_topic", users: 1)
            let stored = ScheduleStore.PageOutcome(claimed[1], reason: ScheduleStore.stored, users: 3)
            for _ in 0..<2 {
                try await store.remove(claimed, outcomes: refused + [left, stored])
            }
            let progress = try #require(try await database.broadcasts.find(.init(org: "org", id: "a")))
            let counted = try JSONParser.parse(progress.counted)
            #expect(progress.stored == 3)
            #expect(counted["stored"] == nil)
            #expect(counted["scheduled"]?.integer == 10)
            #expect(counted["opted_out"]?.integer == 4)
            #expect(counted["left_topic"]?.integer == 1)
        }
    }

    @Test("users whose page is removed with its recurring schedule count as cancelled")
    func cancelledPages() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let recurring = Self.schedule(1) {
                $0.cron = "0 9 * * *"
                $0.zone = Schedule.recipientZone
            }
            let job = "\(recurring.id)/1"
            let chain = try await Self.chain(job: job, database)
            let pages = ["UTC", "Asia/Tokyo"].enumerated().map { number, zone in
                Self.schedule(number + 2, job: job) {
                    $0.fields.append(("users", Array(#"["ada","bob"]"#.utf8)))
                    $0.part = Schedule.Page.part(zone: zone, chain: chain, users: $0.id)
                }
            }
            _ = try await store.add([recurring] + pages)
            let wasThere = try await store.cancel(recurring.id, limit: 1)
            let left = try await store.count(.init(org: "org", id: job))
            #expect(wasThere && left == 0)
            let progress = try #require(try await database.broadcasts.find(.init(org: "org", id: job)))
            let counted = try JSONParser.parse(progress.counted)
            #expect(counted["cancelled"]?.integer == 4)
            #expect(counted["scheduled"]?.integer == 14)
        }
    }

    @Test("an erased user of a page counts as cancelled once, unless the page is being fired")
    func erasedFromPages() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let chain = try await Self.chain(job: "a", database)
            let lists = [("UTC", #"["ada","bob","cid"]"#), ("Asia/Tokyo", #"["eve"]"#)]
            let pages = lists.enumerated().map { number, list in
                Self.schedule(number, job: "a") {
                    $0.fields = [("users", Array(list.1.utf8)), ("type", Array("t".utf8))]
                    $0.part = Schedule.Page.part(zone: list.0, chain: chain, users: $0.id)
                }
            }
            _ = try await store.add(pages)
            func counted() async throws -> [Int64?] {
                let progress = try #require(try await database.broadcasts.find(.init(org: "org", id: "a")))
                let counted = try JSONParser.parse(progress.counted)
                return [counted["scheduled"]?.integer, counted["cancelled"]?.integer]
            }
            for user in ["ada", "ada", "eve", "mia"] { _ = try await store.erase(user: user) }
            let erased = try await counted()
            #expect(erased == [16, 2])
            // Its firing counts all users that it has read, unless the row is gone by then.
            try await database.pool.query(
                "UPDATE carillon.schedules SET attempts = 1, wake_at = now() + interval '30 seconds'")
            for (user, counts) in [("bob", [16, 2]), ("cid", [15, 3])] as [(String, [Int64])] {
                let changed = try await store.erase(user: user)
                #expect(changed == 1)
                let fired = try await counted()
                #expect(fired == counts)
            }
        }
    }

    /// A job that waits for a hundred years, with its entry as the store sees it.
    private static func waiting(_ number: Int, job: String? = nil) -> (schedule: Schedule, entry: String) {
        let entry = "jobs/\(1_795_000_000_000 + number)-0"
        let schedule = Self.schedule(number, due: .seconds(36_500 * 86_400), job: job ?? entry) { $0.source = entry }
        return (schedule, entry)
    }

    @Test("knows a waiting job with an id of its own by its entry")
    func owners() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let (own, nameless) = (Self.waiting(1, job: "a"), Self.waiting(2))
            let stored = try await store.add([own.schedule, nameless.schedule])
            #expect(stored == [.stored, .stored])
            func owners(org: String = "org", _ entries: [String]) async throws -> [String] {
                try await store.owners(of: .init(org: org, id: entries[0], entries: entries)).map(\.id)
            }
            let elsewhere = own.entry.replacing("jobs/", with: "bulk/")
            #expect(try await owners([own.entry, elsewhere]) == ["a"])
            #expect(try await owners([elsewhere]).isEmpty)
            #expect(try await owners(org: "other", [own.entry]).isEmpty)
            #expect(try await owners([nameless.entry]).isEmpty, "its entry is its id")
            let name = CancellationStore.Name(org: "org", id: "1795000000001-0", entries: [own.entry, elsewhere])
            #expect(try await database.cancellations.known(name) == [own.entry])
        }
    }

    @Test("a job whose entry was cancelled before is due at once, and cancelled by its own id")
    func cancelledByEntry() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let (early, other) = (Self.waiting(1, job: "a"), Self.waiting(2, job: "b"))
            let entry = CancellationStore.Name(org: "org", id: early.entry, entries: [early.entry])
            try await database.cancellations.record(entry, at: Self.now)
            #expect(try await store.add([early.schedule, other.schedule]) == [.stored, .stored])
            let due = try await database.pool.query("SELECT id FROM carillon.schedules WHERE wake_at <= now()")
            #expect(try due.map { try $0.id(0) } == [early.schedule.id])
            #expect(try await database.cancellations.cancelledAt(.init(org: "org", id: "a")) == Self.now)
            #expect(try await database.cancellations.cancelledAt(.init(org: "org", id: "b")) == nil)
        }
    }

    @Test("claims due schedules for one dispatcher, in order, and again after the claim expired")
    func claims() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let count = 600
            let all = (0..<count).map { Self.schedule($0, due: .milliseconds(-$0)) }
            _ = try await store.add(all + [Self.schedule(count, due: .seconds(1))])
            _ = try await store.add([Self.schedule(count + 1) { $0.lane = .critical }])
            let first = try await store.claim(.normal, now: Self.now, hold: Self.hold)
            #expect(first.map(\.source).prefix(2) == ["jobs/\(count - 1)", "jobs/\(count - 2)"])
            #expect(first.count == ScheduleStore.claimSize && first.allSatisfy { $0.attempts == 1 })

            var claimed = first
            try await withThrowingTaskGroup(of: [Schedule].self) { group in
                for _ in 0..<4 {
                    group.addTask {
                        var all: [Schedule] = []
                        while true {
                            let part = try await store.claim(.normal, now: Self.now, hold: Self.hold)
                            if part.isEmpty { return all }
                            all += part
                        }
                    }
                }
                for try await part in group { claimed += part }
            }
            #expect(claimed.count == count && Set(claimed.map(\.id)).count == count)
            #expect(try await store.claim(.critical, now: Self.now, hold: Self.hold).count == 1)

            try await store.remove(Array(claimed.dropFirst(2)))
            try await store.extendClaims(of: [claimed[0]], until: Self.now + .seconds(90))
            let later = try await store.claim(.normal, now: Self.now + .seconds(31), hold: Self.hold)
            #expect(Set(later.map(\.id)) == [claimed[1].id, Self.schedule(count).id])
            #expect(later.first { $0.id == claimed[1].id }?.attempts == 2)
        }
    }

    @Test("leaves a schedule alone that replaced a claimed one with the same id")
    func replaced() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let schedule = Self.schedule(1)
            _ = try await store.add([schedule])
            let claimed = try await store.claim(.normal, now: Self.now, hold: Self.hold)
            #expect(try await store.cancel(schedule.id))
            _ = try await store.add([Self.schedule(1, due: .seconds(60)) { $0.content = 2 }])
            try await store.extendClaims(of: claimed, until: Self.now + .seconds(3_600))
            let former = try #require(claimed.first)
            #expect(try await store.beginAlone(former) == false)
            try await store.fail(former, reason: "zone: gone")
            try await store.remove(claimed)
            let due = try await store.claim(.normal, now: Self.now + .seconds(60), hold: Self.hold)
            #expect(due.map(\.content) == [2])
            #expect(due.map(\.attempts) == [1])
        }
    }

    @Test("extends no claim of a schedule that has moved on to its next occurrence")
    func movedOn() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            _ = try await store.add([Self.schedule(1) { $0.cron = "* * * * *" }])
            let claimed = try await store.claim(.normal, now: Self.now, hold: Self.hold)
            let schedule = try #require(claimed.first)
            let next = Self.now + .seconds(60)
            let step = ScheduleStore.Step(schedule, to: next, wall: nil, firedAt: Self.now, wakeAt: next)
            #expect(try await store.advance([step]) == [schedule.id])
            try await store.extendClaims(of: claimed, until: Self.now + .seconds(3_600))
            #expect(try await store.claim(.normal, now: next, hold: Self.hold).map(\.dueAt) == [next])
        }
    }

    @Test("counts only attempts that fire a schedule alone")
    func alone() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let (first, second) = (Self.schedule(1), Self.schedule(2) { $0.cron = "* * * * *" })
            _ = try await store.add([first, second])
            func claim() async throws -> [Schedule] {
                try await store.claim(.normal, now: Self.now, hold: .zero)
            }
            #expect(try await claim().map(\.attempts) == [1, 1])
            var claimed: [Schedule] = []
            for turn in 0...3 {
                claimed = try await claim()
                #expect(claimed.map(\.attempts) == [2 + turn, 2])
                // A repeat after a lost reply counts once.
                for _ in 1...2 { #expect(try await store.beginAlone(claimed[0])) }
            }
            try await store.remove([claimed[0]])
            #expect(try await store.beginAlone(claimed[0]) == false)
            // The next occurrence starts its own count.
            #expect(try await store.beginAlone(claimed[1]))
            let next = Self.now + .seconds(60)
            _ = try await store.advance([
                .init(second, to: next, wall: nil, firedAt: second.dueAt, wakeAt: next)
            ])
            #expect(try await store.find(second.id)?.attempts == 0)
        }
    }

    @Test("makes schedules of a cancelled job due at once, and no others")
    func cancelJob() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let later = (1...3).map { Self.schedule($0, due: .seconds(3_600), job: $0 == 3 ? "b" : "a\($0)") }
            _ = try await store.add(later)
            try await store.cancelJob(.init(org: "org", id: "a1"), at: Self.now)
            try await store.cancelJob(.init(org: "other", id: "a2"), at: Self.now)
            let claimed = try await store.claim(.normal, now: Self.now, hold: Self.hold)
            #expect(claimed.map(\.id) == [later[0].id])
            #expect(claimed.first?.dueAt == later[0].dueAt)
            // A claimed schedule stays with its dispatcher.
            try await store.cancelJob(.init(org: "org", id: "a1"), at: Self.now)
            #expect(try await store.claim(.normal, now: Self.now, hold: Self.hold).isEmpty)
        }
    }

    @Test("makes a large cancelled job due in pages")
    func cancelPages() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let parts = (1...5).map { number in
                Self.schedule(number, due: .seconds(3_600), job: "a") { $0.part = "UTC \(number)" }
            }
            _ = try await store.add(parts)
            try await store.cancelJob(.init(org: "org", id: "a"), at: Self.now, limit: 2)
            let claimed = try await store.claim(.normal, now: Self.now, hold: Self.hold)
            #expect(Set(claimed.map(\.id)) == Set(parts.map(\.id)))
        }
    }

    @Test("removes a recurring schedule with the parts of its occurrences that wait, and no others")
    func cancelRecurring() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let recurring = Self.schedule(1) {
                $0.cron = "0 9 * * *"
                $0.zone = Schedule.recipientZone
            }
            let parts = (2...6).map { number in
                Self.schedule(number, job: "\(recurring.id)/\(number % 2)") { $0.part = "UTC \(number)" }
            }
            let others = [
                Self.schedule(7, job: "\(recurring.id)"), Self.schedule(8, job: "\(recurring.id)0"),
                Self.schedule(9, job: "\(recurring.id)/1") { $0.org = "other" },
            ]
            _ = try await store.add([recurring] + parts + others)
            #expect(try await store.cancel(recurring.id, limit: 2))
            let left = try await store.page(after: nil, org: nil, limit: 20)
            #expect(Set(left.map(\.id)) == Set(others.map(\.id)))
            #expect(try await store.cancel(recurring.id) == false)
        }
    }

    @Test("a late cancellation removes the parts of a schedule that has ended, but not of its replacement")
    func cancelLate() async throws {
        for isReplaced in [false, true] {
            try await Samples.withStoresOfTwoPools { database, second in
                let recurring = Self.schedule(1) {
                    $0.cron = "0 9 * * *"
                    $0.zone = Schedule.recipientZone
                }
                let job = "\(recurring.id)/1"
                let part = Self.schedule(2, job: "later") { $0.part = "UTC 1" }
                _ = try await database.schedules.add([recurring, part])
                let cancellation = try await database.pool.transaction { transaction in
                    let table = "carillon.schedules"
                    let change = isReplaced ? "UPDATE \(table) SET number = DEFAULT" : "DELETE FROM \(table)"
                    try await transaction.query("\(change) WHERE id = $1", .id(recurring.id))
                    try await transaction.query(
                        "UPDATE carillon.schedules SET job_id = $2 WHERE id = $1", .id(part.id), .text(job))
                    let cancellation = Task { try await second.schedules.cancel(recurring.id) }
                    // It has read the old schedule by then, and found no part.
                    try await eventually("it waits for the row") { try await Samples.areWaiting(1, database) }
                    return cancellation
                }
                let wasThere = try await cancellation.value
                #expect(!wasThere)
                let left = try await database.schedules.count(.init(org: "org", id: job))
                #expect(left == (isReplaced ? 1 : 0))
                let found = try await database.schedules.find(recurring.id)
                #expect((found != nil) == isReplaced)
            }
        }
    }

    @Test("advances a schedule once")
    func advance() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let schedule = Self.schedule(1) { $0.cron = "* * * * *" }
            _ = try await store.add([schedule])
            let next = Self.now + .seconds(60)
            let step = ScheduleStore.Step(schedule, to: next, wall: nil, firedAt: schedule.dueAt, wakeAt: next)
            #expect(try await store.advance([step]) == [schedule.id])
            #expect(try await store.advance([step]).isEmpty)
            let found = try #require(try await store.find(schedule.id))
            #expect(found.dueAt == next && found.lastFiredAt == schedule.dueAt && found.attempts == 0)
            #expect(try await store.claim(.normal, now: Self.now, hold: Self.hold).isEmpty)

            try await store.fail(found, reason: "zone: gone")
            #expect(try await store.claim(.normal, now: next, hold: Self.hold).isEmpty)
            #expect(try await store.find(schedule.id)?.state == .failed)
            try await store.revive(schedule.id, at: next)
            #expect(try await store.claim(.normal, now: next, hold: Self.hold).count == 1)
        }
    }

    @Test("fails a schedule once, and counts failed ones that have not ended by an index")
    func failed() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let schedule = Self.schedule(1) { $0.cron = "* * * * *" }
            let ending = Self.schedule(2) {
                $0.cron = "* * * * *"
                $0.endsAt = Self.now + .seconds(60)
            }
            _ = try await store.add([schedule, ending])
            let found = try #require(try await store.find(schedule.id))
            let other = try #require(try await store.find(ending.id))
            #expect(try await store.failed(now: Self.now) == 0)
            #expect(try await store.fail(found, reason: "zone: gone"))
            #expect(try await store.fail(found, reason: "zone: gone") == false)
            try await store.fail(other, reason: "zone: gone")
            #expect(try await store.failed(now: Self.now) == 2)
            #expect(try await store.failed(now: Self.now + .seconds(60)) == 1)
            try await store.revive(schedule.id, at: Self.now)
            #expect(try await store.failed(now: Self.now + .seconds(60)) == 0)

            try await database.pool.query(
                """
                INSERT INTO carillon.schedules (id, org_id, part, source, lane, fields, content, due_at, wake_at,
                    created_at)
                SELECT gen_random_uuid(), '', '', 'api', n % 3, '[]', n, now(), now() + n * interval '1 second', now()
                FROM generate_series(1, 20000) n
                """)
            try await database.pool.query("ANALYZE carillon.schedules")
            let plan = try await database.pool.query(
                "EXPLAIN " + ScheduleSQL.failed, .timestamp(Self.now), .int4(clamping: 10_000)
            ).map { try $0.text(0) }
            #expect(plan.contains { $0.contains("schedules_due") }, "\(plan.joined(separator: "\n"))")
        }
    }

    @Test("does not move a cancelled job, which waits no longer")
    func advanceCancelled() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let schedule = Self.schedule(1, due: .seconds(3_600), job: "a") { $0.zone = "Europe/Berlin" }
            _ = try await store.add([schedule])
            try await store.cancelJob(.init(org: "org", id: "a"), at: Self.now)
            let later = schedule.dueAt + .seconds(3_600)
            let step = ScheduleStore.Step(schedule, to: later, wall: nil, firedAt: nil, wakeAt: later)
            #expect(try await store.advance([step]).isEmpty)
            #expect(try await store.claim(.normal, now: Self.now, hold: Self.hold).map(\.id) == [schedule.id])
        }
    }

    @Test("limits the schedules that an organisation creates by calls")
    func bound() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            func put(_ number: Int, org: String = "org", job: String? = nil) async throws -> ScheduleStore.Outcome {
                try await store.put(
                    Self.schedule(number, job: job) { schedule in
                        schedule.source = Schedule.api
                        schedule.org = org
                    }, limit: 2)
            }
            _ = try await store.add([Self.schedule(9)])
            #expect(try await put(1) == .stored)
            #expect(try await put(2, job: "j") == .stored)
            #expect(try await put(3) == .full)
            #expect(try await put(1) == .known)
            #expect(try await put(4, org: "other") == .stored)
            #expect(try await put(5, job: "j") == .conflict)
            #expect(try await store.cancel(Self.schedule(1).id))
            #expect(try await store.cancel(Self.schedule(1).id) == false)
            #expect(try await put(3) == .stored)
        }
    }

    @Test("a call's schedule for a job that was cancelled before is due at once, and no other")
    func putCancelled() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            for id in ["a", Schedule.api] {
                try await database.cancellations.record(.init(org: "org", id: id), at: Self.now)
            }
            func put(_ number: Int, org: String = "org", job: String) async throws -> ScheduleStore.Outcome {
                try await store.put(
                    Self.schedule(number, due: .seconds(400 * 86_400), job: job) { schedule in
                        schedule.source = Schedule.api
                        schedule.org = org
                    }, limit: 9)
            }
            #expect(try await put(1, job: "a") == .stored)
            #expect(try await put(1, job: "a") == .known)
            #expect(try await put(2, job: "b") == .stored)
            #expect(try await put(3, org: "other", job: "a") == .stored)
            let due = try await database.pool.query("SELECT id FROM carillon.schedules WHERE wake_at <= now()")
            #expect(try due.map { try $0.id(0) } == [Self.schedule(1).id])
        }
    }

    @Test("removes an erased user from every schedule")
    func erasure() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            func users(_ number: Int, _ list: String) -> Schedule {
                Self.schedule(number) { $0.fields = [("users", Array(list.utf8)), ("type", Array("t".utf8))] }
            }
            _ = try await store.add([
                users(1, #"["ada","bob"]"#), users(2, #"["ada"]"#), users(3, #"["adalbert"]"#),
                Self.schedule(4) { $0.user = "ada" },
                Self.schedule(5) {
                    $0.fields = [("topic", Array("t".utf8)), ("except", Array(#"["ada"]"#.utf8))]
                },
            ])
            #expect(try await store.erase(user: "ada") == 3)
            let erasure = try await database.users.erase(user: "ada")
            #expect(erasure.rows.first { $0.table == "schedules" }?.count == 1)
            let left = try await store.page(after: nil, org: nil, limit: 10)
            #expect(left.map(\.source) == ["jobs/1", "jobs/3", "jobs/5"])
            #expect(left.first.map { String(decoding: $0.fields[0].value, as: UTF8.self) } == #"["bob"]"#)
            // A job may not have an empty list.
            #expect(left.last?.fields.map(\.name) == ["topic"])
        }
    }

    @Test("removes an erased user from the exceptions of a job for another user")
    func erasureOfException() async throws {
        try await Samples.withStores { database in
            let store = database.schedules
            let schedule = Self.schedule(1) {
                $0.fields = [("users", Array(#"["ada"]"#.utf8)), ("except", Array(#"["ben"]"#.utf8))]
                $0.user = "ada"
            }
            _ = try await store.add([schedule])
            #expect(try await store.erase(user: "ben") == 1)
            let fields = try await store.find(schedule.id)?.fields.map(\.name)
            #expect(fields == ["users"])
            #expect(try await store.erase(user: "ada") == 1)
            #expect(try await store.page(after: nil, org: nil, limit: 10).isEmpty)
        }
    }

    @Test("a snooze deletes its notification and stores its schedule, or does neither")
    func snoozes() async throws {
        try await Samples.withStores { database in
            let inbox = InboxStore(database)
            func snooze(_ number: Int, after change: String? = nil) async throws -> (isDone: Bool, isStored: Bool) {
                let notification = Samples.notification(number, user: "ada")
                _ = try await database.notifications.store([notification], areRepeats: true)
                if let change {
                    try await database.pool.query(
                        "UPDATE carillon.notifications SET \(change) WHERE id = $1", .id(notification.id))
                }
                let job = "\(ScheduleStore.snoozePrefix(of: notification.id))1"
                let schedule = Self.schedule(number, due: .seconds(3_600), job: job) { $0.user = "ada" }
                let deleted = try? await inbox.snooze(
                    user: "ada", id: notification.id, by: schedule, at: Self.now)
                return (deleted?.ids == [notification.id], try await database.schedules.find(schedule.id) != nil)
            }
            let snoozed = try await snooze(1)
            #expect(snoozed == (true, true))
            let changes = [
                "deleted_at = now()", "status = 'cancelled', deleted_at = now()",
                "replaced_by = gen_random_uuid(), deleted_at = now()",
            ]
            for (number, change) in changes.enumerated() {
                let late = try await snooze(number + 2, after: change)
                #expect(late == (false, false), "\(change)")
            }
            try await database.pool.query(
                """
                CREATE FUNCTION carillon.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN RAISE 'refused' USING ERRCODE = '57014'; END $$
                """)
            try await database.pool.query(
                """
                CREATE TRIGGER refuse BEFORE UPDATE ON carillon.notifications
                FOR EACH ROW EXECUTE FUNCTION carillon.refuse()
                """)
            let refused = try await snooze(5)
            #expect(refused == (false, false))
            try await database.pool.query("DROP TRIGGER refuse ON carillon.notifications")
            let again = try await snooze(5)
            #expect(again == (true, true))
        }
    }

    @Test("removes a cancelled job's snoozes, once or again, although retention has removed its notification")
    func snoozedLongAgo() async throws {
        try await Samples.withStores { database in
            let now = try await database.clock()
            let first = Samples.notification(1, user: "ada", job: "j") { $0.org = "org" }
            _ = try await database.notifications.store([first], areRepeats: false)
            let again = Samples.notification(2, user: "ada", job: "\(ScheduleStore.snoozePrefix(of: first.id))1") {
                $0.org = "org"
                $0.jobEntry = ScheduleStore.snoozeSource(of: first)
            }
            let entry = Samples.notification(3, user: "ada") { $0.org = "org" }
            let other = Samples.notification(4, user: "ada", job: "j") { $0.org = "other" }
            let schedules = [first, again, entry, other].enumerated().map { number, notification in
                let job = "\(ScheduleStore.snoozePrefix(of: notification.id))2"
                return Self.schedule(number, due: .seconds(60 * 86_400), job: job) {
                    $0.org = notification.org
                    $0.user = "ada"
                    $0.source = ScheduleStore.snoozeSource(of: notification)
                }
            }
            _ = try await database.schedules.add(schedules)
            _ = try await InboxStore(database).delete(user: "ada", id: first.id, at: now)
            let later = now + .seconds(31 * 86_400)
            #expect(try await database.retention.removeTombstones(deletedBefore: later, limit: 10) == 1)
            func left() async throws -> [NotificationID] {
                try await database.schedules.page(after: nil, org: nil, limit: 10).map(\.id)
            }
            try await database.schedules.cancelJob(.init(org: "org", id: "j"), at: later, limit: 2)
            #expect(try await left() == schedules[2...].map(\.id))
            let name = CancellationStore.Name(org: "org", id: entry.jobEntry, entries: [entry.jobEntry])
            try await database.schedules.cancelJob(name, at: later)
            #expect(try await left() == [schedules[3].id])
        }
    }

    @Test("removes an erased user from schedules behind thousands of others")
    func erasureInPages() async throws {
        try await Samples.withStores { database in
            try await database.pool.query(
                """
                INSERT INTO carillon.schedules (id, org_id, part, source, lane, fields, content, due_at, created_at)
                SELECT gen_random_uuid(), '', '', 'x', 1, '[["users", "[\\"bob\\"]"]]', n, now(), now()
                FROM generate_series(1, 2500) n
                """
            )
            let last = Schedule(
                id: NotificationID(high: .max, low: .max), fields: [("users", Array(#"["ada","bob"]"#.utf8))],
                dueAt: Self.now, createdAt: Self.now)
            _ = try await database.schedules.add([last])
            #expect(try await database.schedules.erase(user: "ada") == 1)
            let left = try #require(try await database.schedules.find(last.id))
            #expect(left.fields.map { String(decoding: $0.value, as: UTF8.self) } == [#"["bob"]"#])
        }
    }

    @Test("an erasure reads no schedule of a single user")
    func erasurePlan() async throws {
        try await Samples.withStores { database in
            try await database.pool.query(
                """
                INSERT INTO carillon.schedules (id, org_id, part, user_id, source, lane, fields, content, due_at,
                    created_at)
                SELECT gen_random_uuid(), '', '', 'u' || n, 'x', 1, '[]', n, now(), now()
                FROM generate_series(1, 20000) n
                """
            )
            try await database.pool.query("ANALYZE carillon.schedules")
            let plan = try await database.pool.query(
                "EXPLAIN " + ScheduleSQL.naming, .text("ada"), .id(NotificationID(high: 0, low: 0))
            ).map { try $0.text(0) }
            #expect(plan.contains { $0.contains("schedules_shared") }, "\(plan.joined(separator: "\n"))")
        }
    }
}
