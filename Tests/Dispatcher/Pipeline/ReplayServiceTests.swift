// Carillon · ReplayServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Storage
import Support
import Testing

@testable import Pipeline

@Suite("Replay of dead letters", .timeLimit(.minutes(10)))
struct ReplayServiceTests {
    @Test("letters of another number of parts go to the part that is read now")
    func otherParts() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: prefix, parts: 4)
                let dispatcher = try TestDispatcher.make(database.pool, redis, keys)
                let id = NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001)
                let work = DeliveryWork(notification: id, device: id, user: "ada", attempt: 3, isRepeat: false)
                let job = [("user", "ada"), ("type", "news"), ("title", "x")].map { ($0.0, Array($0.1.utf8)[...]) }
                func letter(_ stream: String, _ fields: [(name: String, value: ArraySlice<UInt8>)]) -> DeadLetter {
                    DeadLetter(stream: stream, entry: "1-0", reason: "tried", at: TestDispatcher.now, fields: fields)
                }
                try await DeadLetterQueue(dispatcher: dispatcher).setAside([
                    letter(
                        Keyspace(prefix: prefix).deliveries(.fcm, .normal),
                        [(DeliveryWork.field, work.bytes[...])]),
                    letter(Keyspace(prefix: prefix, parts: 16).part(of: "ada").jobs(.bulk), job),
                ])
                _ = try await database.pool.query("UPDATE carillon.dead_letters SET replay_at = '2020-01-01'")
                #expect(try await ReplayService(dispatcher: dispatcher).replay().count == 2)
                let part = keys.part(of: "ada")
                for stream in [part.deliveries(.fcm, .normal), part.jobs(.bulk)] {
                    #expect(try await redis.send("XLEN", .text(stream)).integer() == 1)
                }
            }
        }
    }

    @Test("a letter with a huge field is cut, says so, and is not replayed as if it were whole")
    func cut() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let names = (0..<1_000).map { "\"\(String(repeating: "u", count: 80))\($0)\"" }
            let users = "[\(names.joined(separator: ","))]"
            let data = "x" + String(repeating: "é", count: 1_000_000)
            let fields = [("users", users), ("type", "news"), ("data", data)].map { ($0.0, Array($0.1.utf8)[...]) }
            try await DeadLetterQueue(dispatcher: dispatcher).setAside([
                DeadLetter(
                    stream: dispatcher.keys.jobs(.normal), entry: "1-0", reason: "tried", at: TestDispatcher.now,
                    fields: fields)
            ])
            let letters = try await dispatcher.database.deadLetters.list(DeadLetterStore.Filter(), limit: 10)
            let stored = try #require(letters.first).fields
            // The limit of the data is inside the last character.
            #expect(stored.map { $0.value.count }.prefix(3) == [users.utf8.count, 4, 65_535])
            #expect(stored.last?.name == DeadLetter.cutField)
            #expect(String(decoding: stored.last?.value ?? [], as: UTF8.self) == "data of 2000001 bytes")
            #expect(throws: JobFaults.self) {
                try dispatcher.catalog.checkedJob(stored.filter { $0.name != "data" })
            }
            // A whole row of an outbox.
            let row = DeadLetter(
                stream: "s", entry: "2-0", reason: "tried", at: TestDispatcher.now,
                fields: [("job", Array(users.utf8)[...])])
            #expect(row.fields.map { $0.value.count } == [users.utf8.count])
            let many = DeadLetter(
                stream: "s", entry: "3-0", reason: "tried", at: TestDispatcher.now,
                fields: Array(repeating: ("", []), count: 500_001))
            #expect(many.fields.count == 129)
            #expect(many.fields.last.map { String(decoding: $0.value, as: UTF8.self) } == "499873 more fields")
        }
    }

    @Test("large letters are replayed in several batches")
    func large() async throws {
        try await TestDispatcher.with { dispatcher, database in
            let stream = dispatcher.keys.jobs(.normal)
            let users = Array("[\"\(String(repeating: "u", count: 1_000_000))\"]".utf8)[...]
            try await dispatcher.database.deadLetters.add(
                (1...8).map {
                    DeadLetter(
                        stream: stream, entry: "\($0)-0", reason: "tried", at: TestDispatcher.now,
                        fields: [(name: "users", value: users)])
                })
            try await database.pool.query("UPDATE carillon.dead_letters SET replay_at = '2020-01-01'")
            let service = ReplayService(dispatcher: dispatcher)
            var counts: [Int] = []
            var hasMore = true
            while hasMore {
                let batch = try await service.replay()
                counts.append(batch.count)
                hasMore = batch.hasMore
            }
            #expect(counts.count > 1)
            #expect(counts.reduce(0, +) == 8)
            #expect(try await dispatcher.redis.send("XLEN", .text(stream)).integer() == 8)
        }
    }

    @Test("letters that were stored before are neither counted nor logged again")
    func repeated() async throws {
        let lines = LogRecorder(from: .warning) { event in
            "\(event.message), \(event.metadata?["count"]?.description ?? "-")"
        }
        try await TestDispatcher.with(logger: lines.logger) { dispatcher, _ in
            let queue = DeadLetterQueue(dispatcher: dispatcher)
            let letters = (1...3).map { number in
                DeadLetter(stream: "jobs", entry: "\(number)-0", reason: "x", at: TestDispatcher.now, fields: [])
            }
            for count in [2, 2, 3] { try await queue.setAside(Array(letters.prefix(count))) }
            let line = "moved entries to the dead-letter queue"
            #expect(lines.all == ["\(line), 2", "\(line), 1"])
            #expect(try await dispatcher.database.deadLetters.list(DeadLetterStore.Filter(), limit: 10).count == 3)
        }
    }

    @Test("a letter that fails again before its replay has removed it stays, with the new reason")
    func failsAgain() async throws {
        try await TestDatabase.with { database in
            let store = Database(database.pool).deadLetters
            func add(_ reasons: String..., replacesKnown: Bool = false) async throws {
                try await store.add(
                    reasons.map {
                        DeadLetter(
                            stream: "jobs", entry: "1-0", reason: $0, at: TestDispatcher.now,
                            fields: [(name: "user", value: Array("ada".utf8)[...])])
                    }, replacesKnown: replacesKnown)
            }
            func reasons() async throws -> [String] {
                try await store.list(DeadLetterStore.Filter(), limit: 10).map(\.reason)
            }
            try await add("first", "of the same entry")
            try await add("taken over")
            #expect(try await reasons() == ["first"])
            try await database.pool.query("UPDATE carillon.dead_letters SET replay_at = '2020-01-01'")
            let claimed = try await store.claimReplays(
                now: TestDispatcher.now, hold: .seconds(60), limit: 10
            ).letters
            #expect(claimed.count == 1)
            try await add("taken over again")
            #expect(try await reasons() == ["first"])
            try await add("second", "of the same entry", replacesKnown: true)
            try await store.remove(claimed)
            #expect(try await reasons() == ["second"])
            // No replay of it is due.
            let due = try await store.claimReplays(
                now: TestDispatcher.now + .seconds(120), hold: .seconds(60), limit: 10
            ).letters
            #expect(due.isEmpty)
        }
    }

    @Test("a replay begins at once by PostgreSQL's clock, and spreads its letters by the rate")
    func moments() async throws {
        try await TestDatabase.with { database in
            let store = Database(database.pool).deadLetters
            func add(_ count: Int) async throws {
                try await store.add(
                    (1...count).map {
                        DeadLetter(
                            stream: "jobs", entry: "\($0)-0", reason: "tried", at: TestDispatcher.now, fields: [])
                    })
            }
            func now() async throws -> Timestamp {
                let row = try #require(try await database.pool.query("SELECT now()").first)
                return Timestamp(microseconds: try row.timestamptz(0))
            }
            try await add(3)
            let before = try await now()
            let (count, until) = try await store.replay(DeadLetterStore.Filter(), to: { _ in true }, rate: 1)
            let after = try await now()
            let rows = try await database.pool.query("SELECT replay_at FROM carillon.dead_letters ORDER BY replay_at")
            let moments = try rows.map { Timestamp(microseconds: try $0.timestamptz(0)) }
            let first = try #require(moments.first)
            #expect((before...after).contains(first))
            let offsets: [Duration] = moments.map { $0 - first }
            #expect(offsets == [.zero, .seconds(1), .seconds(2)])
            #expect(count == 3 && until == moments.last)

            try await add(4)
            let edited = try #require(try await store.list(DeadLetterStore.Filter(), limit: 1).first)
            let due = try #require(try await store.replay(edited.id, with: [("user", Array("ada".utf8))]))
            let end = try await now()
            #expect((after...end).contains(due))
            let again = try await store.replay(edited.id, with: [])
            #expect(again == nil)
        }
    }

    @Test("the letter of a broadcast that fails for another reason replaces the former one, once")
    func failsOtherwise() async throws {
        try await TestDatabase.with { database in
            let store = Database(database.pool).deadLetters
            let (first, second) = ("id: was used before", "type: is not in the catalog")
            for (reason, count) in [(first, 1), (second, 1), (second, 0)] {
                let letter = DeadLetter(
                    stream: "jobs", entry: "1-0", reason: reason, at: TestDispatcher.now, fields: [])
                let stored = try await store.add([letter], replacesKnown: true)
                #expect(stored == count)
                let known = try await store.reason(stream: "jobs", entry: "1-0")
                #expect(known == reason)
            }
        }
    }

    @Test("the letter of a broadcast that is refused again while its replay ends stays, without a replay")
    func refusedAgain() async throws {
        try await TestDispatcher.with { dispatcher, database in
            let stream = dispatcher.keys.jobs(.normal)
            let start = TestDispatcher.now.milliseconds
            func take(_ number: Int, _ title: String, _ more: [(String, String)] = []) async throws {
                let fields = [("topic", "goals"), ("type", "news"), ("id", "x"), ("title", title)] + more
                let entry = StreamEntry(
                    id: "\(start)-\(number)", fields: fields.map { ($0.0, Array($0.1.utf8)[...]) })
                let batch = LaneBatch(lane: .normal, group: dispatcher.group(stream), entries: [entry])
                _ = try await Router(dispatcher: dispatcher).route(
                    try await JobIntake(dispatcher: dispatcher).store(batch))
            }
            try await take(1, "first")
            try await take(2, "second")
            let letters = dispatcher.database.deadLetters
            try await database.pool.query("UPDATE carillon.dead_letters SET replay_at = '2020-01-01'")
            let claimed = try await letters.claimReplays(
                now: TestDispatcher.now, hold: .seconds(60), limit: 10
            ).letters
            #expect(claimed.map(\.entry) == ["\(start)-2"])
            // The stream has it, and it is taken before the replay has removed the letter.
            try await take(3, "second", [(JobOrigin.replayField, "\(stream)/\(start)-2")])
            try await letters.remove(claimed)
            let left = try await letters.list(DeadLetterStore.Filter(), limit: 10)
            #expect(left.map(\.entry) == ["\(start)-2"])
            #expect(left.map(\.reason) == [JobIntake.conflictReason])
            #expect(left.allSatisfy { $0.replayAt == nil })
        }
    }

    @Test("retention keeps letters whose replay was requested, however many there are")
    func retained() async throws {
        try await TestDatabase.with { database in
            let stores = Database(database.pool)
            try await stores.deadLetters.add(
                (1...4).map {
                    DeadLetter(
                        stream: "jobs", entry: "\($0)-0", reason: "tried", at: TestDispatcher.now,
                        fields: [(name: "user", value: Array("ada".utf8)[...])])
                })
            try await database.pool.query(
                "UPDATE carillon.dead_letters SET replay_at = '2020-01-01' WHERE entry = '1-0'")
            #expect(try await stores.retention.dropDeadLetters(keeping: 2, limit: 10) == 1)
            let left = try await database.pool.query("SELECT entry FROM carillon.dead_letters ORDER BY entry")
            #expect(try left.map { try $0.text(0) } == ["1-0", "3-0", "4-0"])
        }
    }
}
