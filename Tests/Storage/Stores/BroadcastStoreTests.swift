// Carillon · BroadcastStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import Storage

@Suite(.timeLimit(.minutes(10)))
struct BroadcastStoreTests {
    private static func broadcast(
        _ number: UInt64,
        job: String? = nil,
        topic: String? = nil,
        lane: Lane = .bulk,
        title: String = "Extra",
        isReversed: Bool = false,
        except: String? = nil,
        deliverLocal: String? = nil,
        event: String? = nil,
        entry: UInt64? = nil,
        createdAt: Timestamp = Samples.start
    ) -> Broadcast {
        let entry = entry ?? number
        var fields = [("type", "news"), ("title", title), ("traceparent", "t\(entry)")].map {
            (name: $0.0, value: Array($0.1.utf8)[...])
        }
        if let except { fields.append((name: "except", value: Array(except.utf8)[...])) }
        if let deliverLocal { fields.append((name: "deliver_local", value: Array(deliverLocal.utf8)[...])) }
        if let event { fields = [(name: "event", value: Array(event.utf8)[...])] }
        if isReversed { fields.reverse() }
        return Broadcast(
            id: NotificationID(high: number, low: 1),
            org: "",
            jobID: job,
            entry: "jobs/\(entry)-0",
            stream: "jobs",
            fields: fields,
            topic: topic,
            lane: lane,
            createdAt: createdAt
        )
    }

    /// Stores a broadcast and starts its expansion.
    private static func expanding(_ broadcast: Broadcast, _ store: BroadcastStore) async throws {
        #expect(try await store.add([broadcast]) == [.stored])
        let claimed = try #require(try await store.claim(.counting, by: "a"))
        #expect(claimed.id == broadcast.id)
        try await store.counted(claimed, size: 5, isConfirmed: true)
    }

    @Test("splits an audience into parts that hold each user once, in byte order, by index")
    func parts() async throws {
        try await TestDatabase.with(isMigrated: true, { $0.sessionSettings = StoreSession.pageSettings }) { database in
            let names = (0..<200).map { "user \($0)" } + ["Ä", "ä", "z", "Z", "caf\u{E9}", "cafe\u{301}"]
            for (table, columns) in [("users", "user_id"), ("subscriptions", "user_id, topic")] {
                try await database.pool.run([
                    PostgresStatement(
                        "INSERT INTO carillon.\(table) (\(columns)) SELECT u\(table == "users" ? "" : ", 'news'") "
                            + "FROM unnest($1) u",
                        [.array(PostgresArray(texts: names))]
                    )
                ])
            }
            let store = Database(database.pool).broadcasts
            for (number, topic) in [(1, nil), (2, "news")] as [(UInt64, String?)] {
                try await Self.expanding(Self.broadcast(number, topic: topic), store)
                var found: [String] = []
                for part in 0..<16 {
                    var chain = try #require(try await store.claimChain(by: "a"))
                    #expect(chain.index == part)
                    while let last = try await store.users(chain, limit: 3).last {
                        found += try await store.users(chain, limit: 3)
                        chain.reached = last
                    }
                }
                #expect(found.count == names.count)
                #expect(Set(found.map { Array($0.utf8) }) == Set(names.map { Array($0.utf8) }))
            }
            for (table, condition, index) in [
                ("users", "true", "users_part"), ("subscriptions", "topic = 'news'", "subscriptions_part"),
            ] {
                let plan = try await database.pool.run([
                    PostgresStatement(
                        """
                        EXPLAIN SELECT user_id FROM carillon.\(table)
                        WHERE \(condition) AND (hashtextextended(user_id, 0) & 15) = 3 AND user_id COLLATE "C" > 'm'
                        ORDER BY user_id COLLATE "C" LIMIT 1000
                        """
                    )
                ])
                let lines = try plan.first.map { try $0.map { try $0.text(0) } } ?? []
                #expect(lines.contains { $0.contains(index) }, "\(lines)")
                #expect(!lines.contains { $0.contains("Sort") }, "\(lines)")
            }
        }
    }

    @Test("forgets old broadcasts that ended")
    func forgetting() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            let late = Samples.start + .seconds(60)
            let jobs = [("old", Samples.start, true), ("open", Samples.start, false), ("new", late, true)]
            for (number, (job, createdAt, hasEnded)) in jobs.enumerated() {
                let broadcast = Self.broadcast(UInt64(number + 1), job: job, createdAt: createdAt)
                try await Self.expanding(broadcast, store)
                if hasEnded { try await store.fail(broadcast, reason: "a fault") }
            }
            #expect(try await store.forget(before: late, limit: 10, pages: 100) == 1)
            for (job, isKept) in [("old", false), ("open", true), ("new", true)] {
                let name = CancellationStore.Name(org: "", id: job)
                #expect(try await (store.find(name) != nil) == isKept, "\(job)")
            }
        }
    }

    @Test("forgets an old broadcast only after its last page, which may wait for months for its local time")
    func forgettingWithPages() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            for number in 1...2 as ClosedRange<UInt64> {
                let broadcast = Self.broadcast(number, job: "\(number)")
                try await Self.expanding(broadcast, store)
                try await database.pool.query(
                    "UPDATE carillon.broadcasts SET state = 'done' WHERE id = $1", .id(broadcast.id))
            }
            var page = Schedule(
                id: NotificationID(high: 1, low: 1), fields: [], dueAt: Samples.start + .seconds(200 * 86_400),
                createdAt: Samples.start)
            page.jobID = "1"
            page.part = "UTC 0/0 hash"
            _ = try await database.schedules.add([page])
            func forget() async throws -> [String] {
                _ = try await store.forget(before: Samples.start + .seconds(60), limit: 10, pages: 100)
                return try await store.list(before: nil, state: nil, limit: 10).map(\.broadcast.job)
            }
            #expect(try await forget() == ["1"])
            #expect(try await database.schedules.cancel(page.id))
            #expect(try await forget().isEmpty)
        }
    }

    @Test("forgets old broadcasts by the number of their pages, one at least")
    func forgettingPages() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            // Each has up to 16 pages more than these, as each chain has a last one.
            for (number, pages) in [(1, 50), (2, 0), (3, 20), (4, 0)] as [(UInt64, Int64)] {
                let broadcast = Self.broadcast(number, job: "\(number)")
                try await Self.expanding(broadcast, store)
                try await store.fail(broadcast, reason: "a fault")
                try await database.pool.query(
                    "UPDATE carillon.broadcasts SET audience = $2 WHERE id = $1", .id(broadcast.id),
                    .int8(pages * 1_000))
            }
            let late = Samples.start + .seconds(60)
            var steps: [Int] = []
            for _ in 0..<4 { steps.append(try await store.forget(before: late, limit: 10, pages: 52)) }
            #expect(steps == [1, 2, 1, 0])
        }
    }

    @Test("finds broadcasts to forget, those that leave a user out, and those in a rare state among 20,000 by index")
    func plans() async throws {
        try await Samples.withStores { database in
            try await database.pool.query(
                """
                INSERT INTO carillon.broadcasts (id, org_id, job_id, job_entry, stream, fields, lane, urgency, state,
                    created_at)
                SELECT gen_random_uuid(), '', n::text, n::text, 'jobs',
                    jsonb_build_array(jsonb_build_array('except', jsonb_build_array('u' || n)::text)), 'bulk', 2,
                    'done', now() - n * interval '1 second'
                FROM generate_series(1, 20000) n
                """)
            try await database.pool.query("ANALYZE carillon.broadcasts")
            let forget = try await database.pool.query(
                "EXPLAIN " + BroadcastSQL.forget, .timestamp(Samples.start), .int4(clamping: 500), .int8(20_000)
            ).map { try $0.text(0) }
            for words in ["broadcasts_ended", "schedules_job", "(org_id = e.org_id) AND (job_id = e.job_id)"] {
                #expect(
                    forget.contains { $0.contains("Index") && $0.contains(words) }, "\(forget.joined(separator: "\n"))")
            }
            let erase = try await database.pool.query(
                "EXPLAIN " + BroadcastSQL.forgetUser[0], .text("u7"), .int4(clamping: 500)
            ).map { try $0.text(0) }
            #expect(erase.contains { $0.contains("broadcasts_excluded") }, "\(erase.joined(separator: "\n"))")
            for state in [Broadcast.State.awaitingConfirmation, .paused, .failed, .cancelled] {
                let list = try await database.pool.query(
                    "EXPLAIN " + BroadcastSQL.list(state), .id(.greatest), .int4(clamping: 20)
                ).map { try $0.text(0) }
                #expect(list.contains { $0.contains("broadcasts_state") }, "\(list.joined(separator: "\n"))")
                #expect(list.count { $0.contains(" on broadcast_pages ") } == 1, "pages are read once")
            }
            let waiting = try await database.pool.query("EXPLAIN " + BroadcastSQL.waiting, .int4(clamping: 10_000))
                .map { try $0.text(0) }
            #expect(waiting.contains { $0.contains("broadcasts_state") }, "\(waiting.joined(separator: "\n"))")
        }
    }

    @Test("counts and lists the broadcasts that wait for an operator")
    func waiting() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            let states: [(UInt64, Broadcast.State)] = [
                (1, .awaitingConfirmation), (2, .paused), (3, .done), (4, .paused), (5, .failed), (6, .cancelled),
            ]
            for (number, state) in states {
                let broadcast = Self.broadcast(number)
                try await Self.expanding(broadcast, store)
                try await database.pool.query(
                    "UPDATE carillon.broadcasts SET state = $2 WHERE id = $1", .id(broadcast.id), .text(state.rawValue))
            }
            let counts = try await store.waiting()
            #expect(counts == [.awaitingConfirmation: 1, .paused: 2, .failed: 1])
            let paused = try await store.list(before: nil, state: .paused, limit: 10)
            #expect(paused.map(\.broadcast.id.high) == [4, 2])
            let older = try await store.list(before: paused.first?.broadcast.id, state: .paused, limit: 10)
            #expect(older.map(\.broadcast.id.high) == [2])
        }
    }

    @Test("sums up the pages of a broadcast, those without reasons too")
    func sums() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            try await Self.expanding(Self.broadcast(1, job: "j"), store)
            try await database.pool.query(
                """
                INSERT INTO carillon.broadcast_pages (broadcast, part, number, selected, stored, counted, at)
                SELECT b.id, 0, p.number, 10 * p.number, p.number, p.counted::jsonb, now()
                FROM carillon.broadcasts b, (VALUES
                    (1, '{}'), (2, '{"opted_out": 1, "held": 2}'), (3, '{"held": 3, "scheduled": 0}')
                ) p (number, counted)
                """)
            let progress = try #require(try await store.find(.init(org: "", id: "j")))
            #expect(progress.pages == 3 && progress.selected == 60 && progress.stored == 6)
            #expect(String(decoding: progress.counted, as: UTF8.self) == #"{"held": 5, "opted_out": 1}"#)
        }
    }

    @Test("a part without users costs no row, and a broadcast that is done no chain")
    func rows() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            try await Self.expanding(Self.broadcast(1, job: "j"), store)
            while let chain = try await store.claimChain(by: "a") {
                let count = chain.index == 5 ? 1 : 0
                let page = Broadcast.Page(
                    until: count == 0 ? "" : "u", selected: count, stored: 0, counted: ["opted_out": count],
                    isLast: true)
                try await store.store(page, of: chain)
            }
            let named = "SELECT FROM carillon.broadcast_chains WHERE reached <> ''"
            #expect(try await database.pool.query(named).isEmpty)
            try await store.finish()
            let progress = try #require(try await store.find(.init(org: "", id: "j")))
            #expect(progress.broadcast.state == .done)
            #expect(progress.chainsDone == 16 && progress.pages == 1 && progress.selected == 1)
            #expect(String(decoding: progress.counted, as: UTF8.self) == #"{"opted_out": 1}"#)
            #expect(try await database.pool.query("SELECT FROM carillon.broadcast_pages").count == 1)
            #expect(try await database.pool.query("SELECT FROM carillon.broadcast_chains").isEmpty)
        }
    }

    @Test("a late dispatcher that found no more users does not end a chain that has gone on")
    func lateEnd() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            try await Self.expanding(Self.broadcast(1), store)
            let chain = try #require(try await store.claimChain(by: "a"))
            let page = Broadcast.Page(until: "u", selected: 1, stored: 0, counted: [:], isLast: false)
            try await store.store(page, of: chain)
            let end = Broadcast.Page(until: "", selected: 0, stored: 0, counted: [:], isLast: true)
            try await store.store(end, of: chain)
            let done = "SELECT FROM carillon.broadcast_chains WHERE is_done"
            #expect(try await database.pool.query(done).isEmpty)
            var next = chain
            next.pages = 1
            try await store.store(end, of: next)
            #expect(try await database.pool.query(done).count == 1)
        }
    }

    @Test("stores a page once, and not while its broadcast is paused")
    func pages() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            let notifications = database.notifications
            let broadcast = Self.broadcast(1, job: "j")
            try await Self.expanding(broadcast, store)
            var chain = try #require(try await store.claimChain(by: "a"))
            // One user already has a notification of the same job.
            _ = try await notifications.store([Samples.notification(9, user: "b", job: "j")], areRepeats: false)
            let batch = ["a", "b", "c"].enumerated().map { Samples.notification($0, user: $1, job: "j") }
            let page = Broadcast.Page(until: "c", selected: 4, stored: 3, counted: ["opted_out": 1], isLast: false)
            func storePage() async throws {
                _ = try await notifications.storeBroadcastPage(
                    batch,
                    page: BroadcastStore.statements(page, of: chain),
                    recount: BroadcastStore.recount(chain, batch)
                )
            }
            try await storePage()
            let again = await #expect(throws: PostgresError.self) { try await storePage() }
            #expect(again.map { BroadcastStore.isLost($0) } == true)
            let name = CancellationStore.Name(org: "", id: "j")
            let progress = try #require(try await store.find(name))
            #expect(progress.selected == 4)
            #expect(progress.stored == 2)
            #expect(String(decoding: progress.counted, as: UTF8.self) == #"{"duplicate": 1, "opted_out": 1}"#)

            #expect(try await store.transition(broadcast, to: .paused, from: [.expanding]))
            chain.pages = 1
            let paused = await #expect(throws: PostgresError.self) { try await store.store(page, of: chain) }
            #expect(paused.map { BroadcastStore.isLost($0) } == true)
            #expect(try await store.claimChain(by: "a") == nil)
            #expect(try await store.find(name)?.pages == 1)
        }
    }

    @Test("a pause waits for pages that are being stored, and goes before those that begin later")
    func pausing() async throws {
        try await Samples.withStoresOfTwoPools { database, second in
            let store = database.broadcasts
            let broadcast = Self.broadcast(1)
            try await Self.expanding(broadcast, store)
            let chains = [
                try #require(try await store.claimChain(by: "a")), try #require(try await store.claimChain(by: "b")),
            ]
            let page = Broadcast.Page(until: "u", selected: 1, stored: 0, counted: [:], isLast: false)
            let pages = chains.map { BroadcastStore.statements(page, of: $0) }
            let (pause, late) = try await database.pool.transaction { transaction in
                _ = try await transaction.run(pages[0])
                let pause = Task {
                    try await second.broadcasts.transition(broadcast, to: .paused, from: [.expanding])
                }
                try await eventually("the pause waits") { try await Samples.areWaiting(1, database) }
                let late = Task {
                    // On a connection of its own, so that no query waits behind it.
                    try await database.pool.transaction { other in _ = try await other.run(pages[1]) }
                }
                try await eventually("the later page waits") { try await Samples.areWaiting(2, database) }
                return (pause, late)
            }
            #expect(try await pause.value)
            let lost = await #expect(throws: PostgresError.self) { try await late.value }
            #expect(lost.map { BroadcastStore.isLost($0) } == true)
        }
    }

    @Test("an id that another broadcast takes meanwhile is a conflict")
    func takenMeanwhile() async throws {
        try await Samples.withStoresOfTwoPools { database, second in
            let others = [Self.broadcast(3), Self.broadcast(2, job: "j", title: "Other"), Self.broadcast(4)]
            let adding = try await database.pool.transaction { transaction in
                _ = try await transaction.run(BroadcastStore.statements(for: [Self.broadcast(1, job: "j")]))
                let adding = Task { try await second.broadcasts.add(others) }
                try await eventually("the other call waits") { try await Samples.areWaiting(1, database) }
                return adding
            }
            let outcomes = try await adding.value
            #expect(outcomes == [.stored, .conflict, .stored])
        }
    }

    @Test("stores the users of a page as cancelled if the job was cancelled meanwhile")
    func cancelledPage() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            try await Self.expanding(Self.broadcast(1, job: "j"), store)
            let chain = try #require(try await store.claimChain(by: "a"))
            try await database.cancellations.record(.init(org: "", id: "j"), at: Samples.start)
            let batch = ["a", "b"].enumerated().map { Samples.notification($0, user: $1, job: "j") }
            let page = Broadcast.Page(until: "b", selected: 2, stored: 2, counted: [:], isLast: false)
            let stored = try await database.notifications.storeBroadcastPage(
                batch, page: BroadcastStore.statements(page, of: chain),
                recount: BroadcastStore.recount(chain, batch))
            #expect(stored.outcomes.count { if case .cancelled = $0 { true } else { false } } == 2)
            let tally = try await database.cancellations.tally(.init(org: "", id: "j"))
            #expect(tally.counts == [.cancelled: 2])
        }
    }

    @Test("commits no page without its users if the job is cancelled during it and storing them as cancelled fails")
    func cancelledDuringPage() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            try await Self.expanding(Self.broadcast(1, job: "j"), store)
            let chain = try #require(try await store.claimChain(by: "a"))
            // The cancellation comes after the page's first statement; rows cannot be cancelled.
            for statement in [
                """
                CREATE FUNCTION cancel_job() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN
                    INSERT INTO carillon.cancellations (org_id, job_id, at) VALUES ('', 'j', now())
                    ON CONFLICT DO NOTHING;
                    RETURN NULL;
                END $$
                """,
                """
                CREATE TRIGGER cancel_job AFTER INSERT ON carillon.broadcast_pages
                FOR EACH ROW EXECUTE FUNCTION cancel_job()
                """,
                """
                ALTER TABLE carillon.notifications
                ADD CONSTRAINT none_cancelled CHECK (status <> 'cancelled') NOT VALID
                """,
            ] { try await database.pool.query(statement) }
            let batch = ["a", "b"].enumerated().map { Samples.notification($0, user: $1, job: "j") }
            let page = Broadcast.Page(until: "b", selected: 2, stored: 2, counted: [:], isLast: false)
            func storePage() async throws -> NotificationStore.Batch {
                try await database.notifications.storeBroadcastPage(
                    batch, page: BroadcastStore.statements(page, of: chain),
                    recount: BroadcastStore.recount(chain, batch))
            }
            let name = CancellationStore.Name(org: "", id: "j")
            await #expect(throws: PostgresError.self) { try await storePage() }
            #expect(try await store.find(name)?.pages == 0)

            try await database.pool.query("ALTER TABLE carillon.notifications DROP CONSTRAINT none_cancelled")
            let stored = try await storePage()
            #expect(stored.outcomes.count { if case .cancelled = $0 { true } else { false } } == 2)
            #expect(try await store.find(name)?.pages == 1)
            #expect(try await database.cancellations.tally(name).counts == [.cancelled: 2])
        }
    }

    @Test("records a withdrawn page together with its notifications, and no user's name in the end")
    func withdrawal() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            let broadcast = Self.broadcast(1, job: "j")
            try await Self.expanding(broadcast, store)
            let batch = ["a", "b", "c"].enumerated().map { Samples.notification($0, user: $1, job: "j") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            #expect(try await store.transition(broadcast, to: .cancelling, from: [.expanding]))
            var progress: [String] = []
            for isLast in [false, true] {
                let claimed = try #require(try await store.claim(.cancelling, by: "a"))
                let page = try await database.cancellations.page(
                    org: "", job: "j", after: claimed.withdrawnTo, limit: 2)
                _ = try await database.cancellations.cancel(page, of: claimed, isLast: isLast, at: Samples.start)
                let found = try #require(try await store.find(.init(org: "", id: "j"))).broadcast
                progress.append("\(found.state) \(found.withdrawn) \(found.withdrawnTo)")
            }
            #expect(progress == ["cancelling 2 b", "cancelled 3 "])
            #expect(try await database.cancellations.tally(.init(org: "", id: "j")).counts == [.cancelled: 3])
        }
    }

    @Test("forgets an erased user as a chain's place, and goes on with the next one")
    func erasure() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            try await database.pool.query(
                "INSERT INTO carillon.users (user_id) SELECT 'u' || n FROM generate_series(1, 200) n")
            let broadcast = Self.broadcast(1, job: "j")
            try await Self.expanding(broadcast, store)
            let chain = try #require(try await store.claimChain(by: "a"))
            let users = try await store.users(chain, limit: 3)
            try #require(users.count == 3)
            let page = Broadcast.Page(until: users[1], selected: 2, stored: 0, counted: [:], isLast: false)
            try await store.store(page, of: chain)
            try await store.fail(broadcast, reason: "type: is not in the catalog")
            try await store.release(chain, by: "a")

            _ = try await database.users.erase(user: users[1])
            try await store.erase(user: users[1])
            #expect(try await store.add([broadcast]) == [.stored])
            let next = try #require(try await store.claimChain(by: "a"))
            #expect(next.index == chain.index && next.reached == users[0])
            #expect(try await store.users(next, limit: 1) == [users[2]])
        }
    }

    @Test("takes an erased user out of exclusions, however the name is escaped, and keeps the others as they are")
    func exclusions() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            let lists = [#"["zo\u00e9","bob"]"#, #"["bob","\u00e9ve"]"#, #"["zo\u00e9"]"#, #"["zoé","bob"]"#]
            for (number, list) in lists.enumerated() {
                #expect(try await store.add([Self.broadcast(UInt64(number + 1), except: list)]) == [.stored])
            }
            // In two batches.
            try await store.erase(user: "zoé", limit: 2)
            let left = try await store.list(before: nil, state: nil, limit: 10).reversed().map { progress in
                let list = progress.broadcast.fields.first { $0.name == "except" }?.value
                return list.map { String(decoding: $0, as: UTF8.self) }
            }
            #expect(left == [#"["bob"]"#, #"["bob","\u00e9ve"]"#, nil, #"["bob"]"#])
        }
    }

    @Test("a full lane is left out, and all its broadcasts show as held")
    func fullLane() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            for (number, lane) in [Lane.critical, .critical, .bulk].enumerated() {
                try await Self.expanding(Self.broadcast(UInt64(number + 1), lane: lane), store)
            }
            let chain = try #require(try await store.claimChain(by: "a", outside: [.critical]))
            #expect(chain.broadcast.lane == .bulk)
            let none = try await store.claimChain(by: "a", outside: [.critical, .bulk])
            #expect(none?.index == nil)
            try await store.markHeld(.critical)
            let all = try await store.list(before: nil, state: nil, limit: 10)
            #expect(all.map(\.isHeld) == [false, true, true])
        }
    }

    @Test("a full lane leaves its events in, and does not take a notification for one")
    func eventOfFullLane() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            try await Self.expanding(Self.broadcast(1, title: "event"), store)
            let none = try await store.claimChain(by: "a", outside: [.bulk])
            #expect(none?.index == nil)
            try await Self.expanding(Self.broadcast(2, event: "score"), store)
            let chain = try #require(try await store.claimChain(by: "a", outside: [.bulk]))
            #expect(chain.broadcast.isEvent)
            try await store.markHeld(.bulk)
            let all = try await store.list(before: nil, state: nil, limit: 10)
            #expect(all.map(\.isHeld) == [false, true])
        }
    }

    @Test("a claim to count an audience lasts as long as the count may take")
    func countingClaim() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            #expect(try await store.add([Self.broadcast(1)]) == [.stored])
            let claimed = try await store.claim(.counting, by: "a")
            #expect(claimed != nil)
            // As if the 60 s of a count had passed.
            try await database.pool.query(
                "UPDATE carillon.broadcasts SET claimed_until = claimed_until - interval '60 seconds'")
            let other = try await store.claim(.counting, by: "b")
            #expect(other == nil)
            try await database.pool.query(
                "UPDATE carillon.broadcasts SET claimed_until = claimed_until - interval '31 seconds'")
            let later = try await store.claim(.counting, by: "b")
            #expect(later != nil)
        }
    }

    @Test("times to live stand still while a broadcast waits for its full lane, unless they count from local times")
    func heldTime() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            try await Self.expanding(Self.broadcast(1), store)
            try await Self.expanding(Self.broadcast(2, deliverLocal: "09:00"), store)
            // In one transaction, which has one time.
            func moved(seconds: Int) async throws -> [Duration] {
                _ = try await database.pool.run([
                    PostgresStatement(
                        "UPDATE carillon.broadcasts SET held_at = now() - interval '\(seconds) seconds'", []),
                    PostgresStatement(BroadcastSQL.markHeld, [.text(Lane.bulk.rawValue)]),
                ])
                let all = try await store.list(before: nil, state: nil, limit: 2)
                return all.map { $0.broadcast.createdAt - Samples.start }
            }
            // Looks in quick succession write nothing.
            #expect(try await moved(seconds: 3) == [.zero, .zero])
            #expect(try await moved(seconds: 9) == [.zero, .seconds(9)])
            // It was not held for the whole of that time.
            #expect(try await moved(seconds: 12) == [.zero, .seconds(9)])
        }
    }

    @Test("claims the chain that had the fewest turns, or one of the oldest broadcast")
    func leastServed() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            let (old, new) = (Self.broadcast(1), Self.broadcast(2))
            try await Self.expanding(old, store)
            try await database.pool.query("UPDATE carillon.broadcast_chains SET pages = 8")
            try await Self.expanding(new, store)
            let least = try #require(try await store.claimChain(by: "a", after: ""))
            let oldest = try #require(try await store.claimChain(by: "a"))
            #expect([least, oldest].map(\.broadcast.id) == [new.id, old.id])
        }
    }

    /// Stores broadcasts that expand, with their chains.
    private static func expanding(_ count: Int, org: String = "", _ database: Database) async throws {
        try await database.pool.query(
            """
            WITH b AS (
                INSERT INTO carillon.broadcasts (id, org_id, job_id, job_entry, stream, fields, lane, urgency,
                    state, created_at)
                SELECT gen_random_uuid(), $2, n::text, n::text, 'jobs', '[]', 'bulk', 2, 'expanding', now()
                FROM generate_series(1, $1) n
                RETURNING id
            )
            INSERT INTO carillon.broadcast_chains (broadcast, part)
            SELECT id, part FROM b, generate_series(0, 15) part
            """, .int4(clamping: count), .text(org))
    }

    @Test("shares turns among the oldest 200 broadcasts with free chains, whatever turns the later ones had")
    func sharing() async throws {
        try await Samples.withStores { database in
            try await Self.expanding(202, database)
            // Other dispatchers have the first one's chains; the last two had no turn yet.
            try await database.pool.query(
                """
                WITH b AS (SELECT id, row_number() OVER (ORDER BY id) AS place FROM carillon.broadcasts)
                UPDATE carillon.broadcast_chains c
                SET pages = CASE place WHEN 201 THEN 0 WHEN 202 THEN 0 ELSE 8 END,
                    claimed_until = CASE place WHEN 1 THEN now() + interval '1 minute' END
                FROM b WHERE b.id = c.broadcast
                """)
            let chain = try #require(try await database.broadcasts.claimChain(by: "a", after: ""))
            let place = try await database.pool.query(
                "SELECT count(*) FROM carillon.broadcasts WHERE id <= $1", .id(chain.broadcast.id))
            #expect(try place.first?.int8(0) == 201)
            try await database.pool.query(
                "UPDATE carillon.broadcast_chains SET pages = 8 WHERE broadcast = $1", .id(chain.broadcast.id))
            let next = try #require(try await database.broadcasts.claimChain(by: "a", after: ""))
            let later = try await database.pool.query(
                "SELECT FROM carillon.broadcasts WHERE id > $1", .id(next.broadcast.id))
            #expect(!later.isEmpty)
        }
    }

    @Test("organisations take turns, however many broadcasts one of them has and whatever turns they had")
    func organisations() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            try await Self.expanding(500, org: "loud", database)
            for org in ["able", "quiet"] { try await Self.expanding(1, org: org, database) }
            try await database.pool.query(
                """
                UPDATE carillon.broadcast_chains c SET pages = 80
                FROM carillon.broadcasts b WHERE b.id = c.broadcast AND b.org_id <> 'loud'
                """)
            // An urgent broadcast goes first, but only until its chains are taken.
            let urgent = Self.broadcast(.max, lane: .critical)
            try await Self.expanding(urgent, store)
            try await database.pool.query(
                "UPDATE carillon.broadcast_chains SET is_done = part < 15 WHERE broadcast = $1", .id(urgent.id))
            var turns: [String] = []
            for _ in 0..<7 {
                let chain = try #require(try await store.claimChain(by: "a", after: turns.last ?? "able"))
                turns.append(chain.broadcast.org)
            }
            #expect(turns == ["", "able", "loud", "quiet", "able", "loud", "quiet"])
        }
    }

    @Test("claims a chain of the oldest of 2,000 broadcasts without sorting the chains of all")
    func claimPlan() async throws {
        try await Samples.withStores { database in
            try await Self.expanding(2_000, database)
            for table in ["broadcasts", "broadcast_chains"] {
                try await database.pool.query("ANALYZE carillon.\(table)")
            }
            let plan = try await database.pool.query(
                "EXPLAIN " + BroadcastSQL.claimOldest, .text("a"), .texts([])
            ).map { try $0.text(0) }.joined(separator: "\n")
            #expect(plan.contains("broadcasts_open"), "\(plan)")
            // Only the 16 chains of one broadcast are sorted.
            #expect(plan.contains(/Presorted Key: \w+\.urgency, \w+\.(id|broadcast)/), "\(plan)")
        }
    }

    @Test("claims the most urgent chains first, for one dispatcher, and again after the claim expired")
    func claims() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            try await Self.expanding(Self.broadcast(1), store)
            try await Self.expanding(Self.broadcast(2, lane: .critical), store)
            let first = try #require(try await store.claimChain(by: "a"))
            let second = try #require(try await store.claimChain(by: "b"))
            #expect(first.broadcast.lane == .critical)
            #expect([first.index, second.index] == [0, 1])
            try await store.release(first, by: "b")
            #expect(try await store.claimChain(by: "b")?.index == 2)
            try await store.release(first, by: "a")
            #expect(try await store.claimChain(by: "b")?.index == 0)
            try await database.pool.query(
                "UPDATE carillon.broadcast_chains SET claimed_until = now() - interval '1 second'")
            #expect(try await store.claimChain(by: "c")?.index == 0)
        }
    }

    @Test("resumes a broadcast that was given up when its job comes again")
    func revived() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            let again = Self.broadcast(1, createdAt: Samples.start + .seconds(9_000))
            try await Self.expanding(Self.broadcast(1), store)
            #expect(try await store.add([again]) == [.stored])
            let chain = try #require(try await store.claimChain(by: "a"))
            #expect(chain.broadcast.createdAt == Samples.start)
            try await store.fail(chain.broadcast, reason: "type: is not in the catalog")
            try await store.release(chain, by: "a")
            let none = try await store.claimChain(by: "a")
            #expect(none?.index == nil)
            #expect(try await store.add([again]) == [.stored])
            #expect(try await store.claimChain(by: "a")?.broadcast.createdAt == again.createdAt)
        }
    }

    @Test(
        "a broadcast that failed continues when its job is replayed without an erased user",
        arguments: [nil, "j"] as [String?])
    func revivedAfterErasure(job: String?) async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            let first = Self.broadcast(1, job: job, except: #"["ada","bob"]"#)
            try await Self.expanding(first, store)
            try await store.fail(first, reason: "type: is not in the catalog")
            try await store.erase(user: "ada")
            // Its id is another one, as it is a hash of its fields. The replay may come twice.
            let replayed = Self.broadcast(2, job: job, except: #"["bob"]"#, entry: 1)
            for _ in 0..<2 { #expect(try await store.add([replayed]) == [.stored]) }
            let all = try await store.list(before: nil, state: nil, limit: 10).map(\.broadcast)
            #expect(all.map(\.id) == [first.id])
            #expect(all.map(\.state) == [.expanding])
        }
    }

    @Test("accepts a job id for one broadcast, whatever its trace and the order of its fields")
    func identity() async throws {
        try await Samples.withStores { database in
            let store = database.broadcasts
            #expect(try await store.add([Self.broadcast(1, job: "j")]) == [.stored])
            #expect(try await store.add([Self.broadcast(1, job: "j")]) == [.stored])
            #expect(try await store.add([Self.broadcast(2, job: "j")]) == [.duplicate])
            #expect(try await store.add([Self.broadcast(5, job: "j", isReversed: true)]) == [.duplicate])
            #expect(try await store.add([Self.broadcast(3, job: "j", title: "Other")]) == [.conflict])
            try await database.cancellations.record(.init(org: "", id: "4-0"), at: Samples.start)
            let together = try await store.add([
                Self.broadcast(4), Self.broadcast(6, job: "k"), Self.broadcast(7, job: "k"),
                Self.broadcast(8, job: "j", title: "Other"), Self.broadcast(4),
            ])
            #expect(together == [.stored, .stored, .duplicate, .conflict, .stored])
            let states = try await store.list(before: nil, state: nil, limit: 10).map(\.broadcast.state)
            #expect(states == [.counting, .cancelled, .counting])
        }
    }
}
