// Carillon · LaneTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Testing

@testable import Pipeline

@Suite(.timeLimit(.minutes(10)))
struct LaneBatchTests {
    /// Returns an entry for so many users; for one in the field `user` if 0.
    private static func entry(_ users: Int) -> StreamEntry {
        let names = (0..<users).map { "\"u\($0)\"" }.joined(separator: ",")
        let audience = users == 0 ? ("user", "u") : ("users", "[\(names)]")
        let fields = [audience, ("type", "t"), ("title", "a, b, c")]
        return StreamEntry(id: "1-1", fields: fields.map { (name: $0.0, value: Array($0.1.utf8)[...]) })
    }

    @Test(
        "splits a batch by recipients, and keeps an entry together",
        arguments: [
            ([], []),
            ([0, 0, 0], [0..<3]),
            ([1_000, 1_000], [0..<2]),
            ([1_000, 1_000, 0], [0..<2, 2..<3]),
            ([0, 1_000, 1_000, 1_000, 1_000], [0..<2, 2..<4, 4..<5]),
            ([5_000, 0, 5_000], [0..<2, 2..<3]),
            ([5_000], [0..<1]),
        ] as [([Int], [Range<Int>])]
    )
    func parts(users: [Int], expected: [Range<Int>]) {
        let slices = LaneBatch.slices(of: users.map(Self.entry), recipients: 2_000)
        #expect(slices.map(\.range) == expected)
        // A job with more users than it may have becomes a dead letter.
        #expect(slices.reduce(0) { $0 + $1.recipients } == users.reduce(0) { $0 + min(max($1, 1), 1_000) })
    }

    @Test("a deleted entry counts as one recipient")
    func deleted() {
        let entries = [StreamEntry(id: "1-1", fields: nil), Self.entry(1_000), Self.entry(1_000)]
        #expect(LaneBatch.slices(of: entries, recipients: 2_000).map(\.range) == [0..<2, 2..<3])
    }

    @Test("a field name of many combining marks delays nothing", .timeLimit(.minutes(1)))
    func marks() {
        // Each comparison as `String` would take minutes.
        let name = String(repeating: "\u{300}\u{316}", count: 400_000)
        let value = Array("acme".utf8)[...]
        let entry = StreamEntry(id: "1-1", fields: [(name: name, value: value), (name: "org", value: value)])
        #expect(entry["org"] == value)
        #expect(LaneBatch.slices(of: [entry, entry], recipients: 2).map(\.range) == [0..<2])
        let origin = JobOrigin(stream: "jobs", entry: entry.id, fields: entry.fields ?? [])
        #expect(origin.fields.count == 2)
        let letter = DeadLetter(origin, reason: "tried", at: Timestamp(seconds: 1))
        #expect(letter.fields.map(\.name.utf8.count) == [1_024, 3, DeadLetter.cutField.utf8.count])
    }
}

@Suite("Failover of a lane's Redis", .timeLimit(.minutes(10)))
struct RedisHistoryTests {
    private static func run(_ id: String?, now: Int64, note: String? = nil) -> RedisRun {
        RedisRun(id: id, now: now, note: note.map { RedisRun.Note($0) })
    }

    @Test(
        "a sweep repairs what a failover or an earlier PostgreSQL may lack, and notes when",
        arguments: [
            // An emptied Redis lacks everything, and has no former master.
            ("this", nil, 400_000_000, "this 1000000000 900000 - 7"),
            ("this", "this 999000000 100000 - 7", nil, "this 1000000000 100000 - 7"),
            ("this", "another 999000000 100000 - 7", 999_000_000, "this 1000000000 900000 1000000000 7"),
            ("this", "another", 400_000_000, "this 1000000000 900000 1000000000 7"),
            // It failed over again before the second repair, which is due after 30 s.
            ("this", "another 999000000 890000 998000000 7", 998_000_000, "this 1000000000 900000 1000000000 7"),
            ("this", "this 999000000 870001 998000000 7", nil, "this 1000000000 870001 998000000 7"),
            ("this", "this 999000000 870000 998000000 7", 998_000_000, "this 1000000000 870000 - 7"),
            ("this", "this 999000000 100000 - 6", 400_000_000, "this 1000000000 100000 - 7"),
            ("this", "this 999000000 890000 998000000 6", 400_000_000, "this 1000000000 890000 998000000 7"),
            // PostgreSQL's clock has stepped back behind the last sweep, or the first repair.
            ("this", "another 1000120000 100000 - 7", 400_000_000, "this 1000000000 900000 1000000000 7"),
            ("this", "this 999000000 870000 1000120000 7", 400_000_000, "this 1000000000 870000 - 7"),
            // A Redis that hides its run looks like the same one each time.
            (nil, "unknown 999000000 100000 - 7", nil, "unknown 1000000000 900000 - 7"),
        ] as [(String?, String?, Int64?, String)]
    )
    func finding(id: String?, note: String?, lostSince: Int64?, next: String) {
        let finding = Self.run(id, now: 900_000, note: note).finding(
            now: Timestamp(milliseconds: 1_000_000_000), epoch: 7, oldest: Timestamp(milliseconds: 400_000_000))
        #expect(finding.lostSince == lostSince.map { Timestamp(milliseconds: $0) })
        #expect(finding.note == next)
    }

    @Test("entries appended before Redis was first seen, or before a failover, may be repeats")
    func failover() {
        var history = LaneReader.RedisHistory()
        history.record(Self.run("master", now: 50_000, note: "master 49000 1000"))
        #expect(history.replaySafeFrom == 1_000)
        history.record(Self.run("master", now: 60_000, note: "master 59000 1000"))
        #expect(history.replaySafeFrom == 1_000, "the connection broke, and Redis kept its data")
        history.record(Self.run("replica", now: 70_000, note: "master 69000 1000"))
        #expect(history.replaySafeFrom == 70_000)
        history.record(Self.run("replica", now: 80_000, note: "replica 79000 75000"))
        #expect(history.replaySafeFrom == 70_000, "the connection broke after the failover")
        // It led before, and lacks what the other one did meanwhile.
        history.record(Self.run("master", now: 90_000, note: "master 69000 1000"))
        #expect(history.replaySafeFrom == 90_000)
    }

    @Test(
        "earlier entries are possible repeats without a note about this Redis",
        arguments: [nil, "master 49000 1000", "replica 49000", "replica"] as [String?])
    func unknown(note: String?) {
        var history = LaneReader.RedisHistory()
        history.record(Self.run("replica", now: 50_000, note: note))
        #expect(history.replaySafeFrom == 50_000)
    }

    @Test("each connection to a Redis that hides its run may be a failover")
    func hidden() {
        var history = LaneReader.RedisHistory()
        history.record(Self.run(nil, now: 50_000, note: "unknown 49000 1000"))
        #expect(history.replaySafeFrom == 50_000)
        history.record(Self.run(nil, now: 60_000, note: "unknown 59000 1000"))
        #expect(history.replaySafeFrom == 60_000)
    }

    @Test(
        "earlier entries are possible repeats after a failover",
        arguments: [
            // The run that the note names, and how many milliseconds ago it was first seen; the
            // entry is a second old.
            (nil, 0, true), ("another", 2_000, true), ("this", 500, true), ("this", 2_000, false),
        ] as [(String?, Int64, Bool)]
    )
    func start(noted: String?, seen: Int64, mayBeRepeat: Bool) async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let (redis, keys) = (dispatcher.redis, dispatcher.keys)
            let run = try await RedisRun.ask(redis, note: "no-note")
            let id = try #require(run.id)
            if let noted {
                let text = "\(noted == "this" ? id : noted) \(run.now) \(run.now - seen)"
                try await redis.send("SET", .text(keys.runNote), .text(text))
            }
            let stream = keys.deliveries(.fcm, .normal)
            try await redis.send("XADD", .text(stream), .text("\(run.now - 1_000)-0"), "d", "work")
            let connection = try await TestRedis.connect()
            let queue = LaneQueue<LaneBatch>(capacity: 8)
            let reader = LaneReader(
                lane: .normal, group: dispatcher.group(stream), connection: connection, count: 10,
                dispatcher: dispatcher)
            let running = Task { try await reader.run(into: queue) }
            let batch = try #require(await queue.receive())
            #expect(batch.entries.map { batch.mayBeRepeat($0) } == [mayBeRepeat])
            running.cancel()
            _ = try? await running.value
            await connection.close()
        }
    }
}

struct InFlightEntriesTests {
    @Test("forgets a stream once none of its entries is in flight")
    func streams() {
        let inFlight = InFlightEntries()
        inFlight.take(["1-0"], of: "lane")
        for org in 0..<100 {
            inFlight.take(["1-0", "2-0"], of: "overflow \(org)")
            inFlight.release(["1-0"], of: "overflow \(org)")
            #expect(inFlight.contains("2-0", of: "overflow \(org)"))
            inFlight.release(["2-0"], of: "overflow \(org)")
        }
        #expect(inFlight.streamCount == 1)
        #expect(inFlight.count(of: "lane") == 1)
    }
}

@Suite("An organisation's share")
struct OrgWindowTests {
    private static let start = Timestamp(seconds: 1_795_000_000)

    /// Returns how many of some turns an organisation gets.
    private static func turns(
        _ window: inout OrgWindow,
        _ org: String,
        of count: Int = 1,
        after seconds: Int = 0
    ) -> Int {
        var taken = 0
        for _ in 0..<count where window.admit(org, recipients: 1, at: Self.start + .seconds(seconds)) { taken += 1 }
        return taken
    }

    @Test("an organisation has the least share, or the average of the others")
    func share() {
        var window = OrgWindow(leastShare: 10)
        let alone = Self.turns(&window, "flood", of: 50)
        // A second organisation may have as much as the first.
        let second = Self.turns(&window, "b", of: 50)
        let again = Self.turns(&window, "flood", of: 50)
        #expect(alone == 10)
        #expect(second == 50)
        #expect(again == 0)
    }

    @Test("counts recipients, and admits a job as long as the share is not used up")
    func recipients() {
        var window = OrgWindow(leastShare: 10)
        var admitted: [Bool] = []
        for second in [0, 0, 0, 61, 61] {
            admitted.append(window.admit("a", recipients: 6, at: Self.start + .seconds(second)))
        }
        #expect(admitted == [true, true, false, true, true])
        // The average of the others is 12.
        admitted = (0..<4).map { _ in window.admit("b", recipients: 4, at: Self.start + .seconds(61)) }
        #expect(admitted == [true, true, true, false])
    }

    @Test("forgets jobs after a minute, step by step")
    func forgetting() {
        var window = OrgWindow(leastShare: 10)
        var taken: [Int] = []
        for second in 0..<10 { taken.append(Self.turns(&window, "a", after: second)) }
        #expect(taken == [Int](repeating: 1, count: 10))
        let soon = Self.turns(&window, "a", after: 20)
        let later = Self.turns(&window, "a", after: 61)
        let afresh = Self.turns(&window, "a", of: 20, after: 200)
        #expect(soon == 0)
        #expect(later == 1)
        #expect(afresh == 10)
    }

    @Test("a clock that is set back neither stops the window nor fills it for ever")
    func clock() {
        var window = OrgWindow(leastShare: 10)
        let ahead = Self.turns(&window, "a", of: 20, after: 20)
        let little = Self.turns(&window, "a", after: 5)
        let lot = Self.turns(&window, "a", of: 20, after: -3_600)
        #expect(ahead == 10)
        #expect(little == 0)
        #expect(lot == 10)
    }

    @Test("organisations differ by code points")
    func names() {
        var window = OrgWindow(leastShare: 1)
        let turns = ["\u{E9}", "e\u{301}", "\u{E9}"].map { Self.turns(&window, $0) }
        #expect(turns == [1, 1, 0])
    }
}
