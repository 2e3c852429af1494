// Carillon · BookmarksTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import Storage

@Suite("Bookmarks", .timeLimit(.minutes(10)))
struct BookmarksTests {
    private static let start = Timestamp(seconds: 1_795_000_000)

    private static func with(_ body: (Bookmarks) async throws -> Void) async throws {
        try await TestRedis.with { try await body(Live($0, keys: Keyspace(prefix: $1)).bookmarks) }
    }

    private static func note(
        _ bookmarks: Bookmarks, _ connection: String, _ version: Int64, left: Bool = true, client: String = "web",
        heard: Timestamp? = nil, at: Timestamp = start
    ) async throws {
        let bookmark = Bookmark(client: client, version: version, lastHeard: left ? heard ?? at : nil)
        try await bookmarks.store([("ada", connection, bookmark)], at: at)
    }

    private static func claim(
        _ bookmarks: Bookmarks, _ connection: String, client: String = "web", alive: Set<String> = [],
        at: Timestamp = start
    ) async throws -> Int64? {
        let versions = try await bookmarks.claim([("ada", connection, client)], at: at) {
            (users: [String]) async throws(RedisError) -> [Set<String>] in users.map { _ in alive }
        }
        return versions.first ?? nil
    }

    @Test("gives a new client no bookmark and resumes a returning one where it was")
    func one() async throws {
        try await Self.with { bookmarks in
            #expect(try await Self.claim(bookmarks, "a") == nil)
            try await Self.note(bookmarks, "a", 5)
            #expect(try await Self.claim(bookmarks, "b") == 5)
            try await Self.note(bookmarks, "b", 9)
            #expect(try await Self.claim(bookmarks, "c") == 9)
            #expect(try await Self.claim(bookmarks, "d", client: "phone", alive: ["c"]) == nil)
        }
    }

    @Test("resumes two windows of a browser, whichever returns first")
    func two() async throws {
        try await Self.with { bookmarks in
            try await Self.note(bookmarks, "a", 10)
            try await Self.note(bookmarks, "b", 8)
            #expect(try await Self.claim(bookmarks, "c") == 8)
            // It has seen more by the time the other returns.
            try await Self.note(bookmarks, "c", 12, left: false)
            #expect(try await Self.claim(bookmarks, "d", alive: ["c"]) == 8)
            try await Self.note(bookmarks, "d", 12, left: false)
            try await Self.note(bookmarks, "c", 12)
            #expect(try await Self.claim(bookmarks, "e", alive: ["d"]) == 12, "the other bookmarks are used up")
        }
    }

    @Test("uses the bookmark of a killed gateway's connection, even while its lease runs")
    func killed() async throws {
        try await Self.with { bookmarks in
            try await Self.note(bookmarks, "a", 5, left: false)
            #expect(try await Self.claim(bookmarks, "b", alive: ["a", "b"]) == 5)
            try await Self.note(bookmarks, "b", 7)
            #expect(try await Self.claim(bookmarks, "c", alive: ["c"]) == 5, "one of two ended connections may be away")
        }
    }

    @Test("repeats nothing to a client that is always back before its loss is noticed")
    func unnoticed() async throws {
        try await Self.with { bookmarks in
            try await Self.note(bookmarks, "c0", 0, left: false)
            for number in 1...3 {
                let (lost, new) = ("c\(number - 1)", "c\(number)")
                let (seen, opened) = (Int64(number - 1) * 10, Self.start + .seconds(Int64(number) * 60))
                #expect(try await Self.claim(bookmarks, new, alive: [lost], at: opened) == seen)
                try await Self.note(bookmarks, new, seen + 10, left: false, at: opened + .seconds(5))
                let end = opened + .seconds(29)
                try await Self.note(bookmarks, lost, seen, heard: opened + .seconds(-1), at: end)
            }
        }
    }

    @Test("repeats nothing after two losses at once, in whatever order they are noticed", arguments: [false, true])
    func twoLosses(isReversed: Bool) async throws {
        try await Self.with { bookmarks in
            let seconds = (0...40).map { Self.start + .seconds($0) }
            try await Self.note(bookmarks, "a", 5, left: false)
            #expect(try await Self.claim(bookmarks, "b", alive: ["a"], at: seconds[1]) == 5)
            try await Self.note(bookmarks, "b", 7, left: false, at: seconds[2])
            #expect(try await Self.claim(bookmarks, "c", alive: ["a", "b"], at: seconds[3]) == 5)
            try await Self.note(bookmarks, "c", 9, left: false, at: seconds[4])
            let ends = [("a", 5, seconds[0]), ("b", 7, seconds[2])] as [(String, Int64, Timestamp)]
            for (connection, version, heard) in isReversed ? ends.reversed() : ends {
                try await Self.note(bookmarks, connection, version, heard: heard, at: seconds[32])
            }
            #expect(try await Self.claim(bookmarks, "d", alive: ["c"], at: seconds[40]) == 9)
        }
    }

    @Test("two windows of a browser keep their bookmarks when they lose the network together")
    func twoUnnoticed() async throws {
        try await Self.with { bookmarks in
            let seconds = (0...40).map { Self.start + .seconds($0) }
            for connection in ["a", "b"] { try await Self.note(bookmarks, connection, 5, left: false) }
            #expect(try await Self.claim(bookmarks, "c", alive: ["a", "b"], at: seconds[1]) == 5)
            try await Self.note(bookmarks, "c", 9, left: false, at: seconds[2])
            for connection in ["a", "b"] {
                try await Self.note(bookmarks, connection, 5, heard: Self.start, at: seconds[30])
            }
            #expect(try await Self.claim(bookmarks, "d", alive: ["c"], at: seconds[35]) == 5, "it returns late")
            try await Self.note(bookmarks, "d", 9, left: false, at: seconds[36])
            #expect(try await Self.claim(bookmarks, "e", alive: ["c", "d"], at: seconds[40]) == 9)
        }
    }

    @Test("a window that was heard after a second one opened keeps its bookmark")
    func heardSince() async throws {
        try await Self.with { bookmarks in
            try await Self.note(bookmarks, "a", 5, left: false)
            let opened = Self.start + .seconds(1)
            #expect(try await Self.claim(bookmarks, "b", alive: ["a"], at: opened) == 5)
            try await Self.note(bookmarks, "b", 9, left: false, at: opened)
            try await Self.note(bookmarks, "a", 6, heard: opened, at: Self.start + .seconds(30))
            #expect(try await Self.claim(bookmarks, "c", alive: ["b"], at: Self.start + .seconds(40)) == 6)
        }
    }

    @Test("repeats nothing at later reconnects after a gateway was killed")
    func killedOnce() async throws {
        try await Self.with { bookmarks in
            let seconds = (0...40).map { Self.start + .seconds($0) }
            try await Self.note(bookmarks, "a", 5, left: false)
            #expect(try await Self.claim(bookmarks, "b", alive: ["a"], at: seconds[1]) == 5)
            try await Self.note(bookmarks, "b", 7, left: false, at: seconds[2])
            #expect(try await Self.claim(bookmarks, "c", alive: ["b"], at: seconds[9]) == 5)
            try await Self.note(bookmarks, "c", 9, left: false, at: seconds[10])
            try await Self.note(bookmarks, "b", 7, heard: seconds[8], at: seconds[38])
            #expect(try await Self.claim(bookmarks, "d", alive: ["c"], at: seconds[40]) == 9)
        }
    }

    @Test("removes the bookmark of a client that stopped")
    func removes() async throws {
        try await Self.with { bookmarks in
            try await Self.note(bookmarks, "a", 5, left: false)
            try await bookmarks.store([("ada", "a", nil)], at: Self.start)
            #expect(try await Self.claim(bookmarks, "b") == nil)
        }
    }

    @Test("stores no bookmark of a user who was erased a moment ago")
    func erased() async throws {
        let redis = try await TestRedis.connect()
        let prefix = TestRedis.prefix()
        let live = Live(redis, keys: Keyspace(prefix: prefix))
        let bookmarks = live.bookmarks
        try await Self.note(bookmarks, "a", 5)
        #expect(try await live.userTraces.erasePresence(user: "ada") == 0)
        // The socket of a gateway that does not know yet.
        try await Self.note(bookmarks, "b", 6)
        #expect(try await Self.claim(bookmarks, "c") == nil)
        let left = try await redis.send("PTTL", .text(live.keys.bookmarks("ada"))).integer()
        #expect((1...60_000).contains(left))
        try await TestRedis.deleteKeys(prefix: prefix, redis)
        await redis.close()
    }

    @Test("keeps the newest 64 bookmarks of a user")
    func bound() async throws {
        let redis = try await TestRedis.connect()
        let prefix = TestRedis.prefix()
        let keys = Keyspace(prefix: prefix)
        let bookmarks = Live(redis, keys: keys).bookmarks
        for number in 0..<100 {
            try await Self.note(
                bookmarks, "c\(number)", Int64(number), at: Self.start + .milliseconds(Int64(number)))
        }
        // A connection that notes again keeps its place and takes no other.
        try await Self.note(bookmarks, "c99", 100, at: Self.start)
        let connections = try await redis.send("HKEYS", .text(keys.bookmarks("ada"))).strings()
        #expect(Set(connections) == Set((36..<100).map { "c\($0)" }))
        #expect(try await Self.claim(bookmarks, "new", at: Self.start + .seconds(1)) == 36)
        #expect(try await redis.send("HLEN", .text(keys.bookmarks("ada"))).integer() == 64)
        try await TestRedis.deleteKeys(prefix: prefix, redis)
        await redis.close()
    }

    @Test("expires bookmarks after an hour")
    func lifetime() async throws {
        try await Self.with { bookmarks in
            try await Self.note(bookmarks, "a", 5)
            #expect(try await Self.claim(bookmarks, "b", at: Self.start + .seconds(3_600)) == nil)
            try await Self.note(bookmarks, "c", 6)
            #expect(try await Self.claim(bookmarks, "d", at: Self.start + .seconds(3_599)) == 6)
        }
    }
}
