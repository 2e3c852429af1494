// Carillon · PartShareTests.swift
// SPDX-License-Identifier: Apache-2.0

import Storage
import Synchronization
import Testing

@testable import Pipeline

@Suite("Share of parts")
struct PartShareTests {
    private static func names(_ count: Int) -> [String] { (0..<count).map { "dispatcher-\($0)" } }

    @Test("two dispatchers have each part, whatever the number of dispatchers", arguments: [2, 3, 8, 40])
    func width(count: Int) {
        let keys = Keyspace(parts: 16)
        let names = Self.names(count)
        let shares = names.map { PartShare(keys, name: $0) }
        for share in shares { share.update(names) }
        for part in keys.parts { #expect(shares.count { $0.owns(part) } == 2) }
        #expect(shares.reduce(0) { $0 + $1.parts.count } == 32)
        // All read the plain names.
        for share in shares { #expect(share.owns(keys)) }
    }

    @Test("a dispatcher that leaves changes only its own parts")
    func leaving() {
        let names = Set(Self.names(8))
        for part in 0..<64 {
            let before = PartShare.owners(of: part, among: names)
            let after = PartShare.owners(of: part, among: names.subtracting(["dispatcher-3"]))
            #expect(Set(before).subtracting(["dispatcher-3"]).isSubset(of: after))
        }
    }

    @Test("has all parts until it knows the others, and remembers those that it had")
    func memory() {
        let keys = Keyspace(parts: 16)
        let start = ContinuousClock.now
        let passed = Mutex(Duration.zero)
        let share = PartShare(keys, name: "dispatcher-0") { start + passed.withLock { $0 } }
        #expect(share.parts.count == 16)
        share.update(Self.names(2))
        share.update(Self.names(8))
        #expect(share.parts.count < 16 && share.knownParts.count == 16)
        passed.withLock { $0 = .seconds(301) }
        share.update(Self.names(8))
        #expect(share.knownParts.count == share.parts.count)
        // Its own lease may be missing after a failover.
        share.update([])
        #expect(share.parts.count == 16)
    }

    @Test("remembers a part that it gave up until its streams could be looked at for a while")
    func unclear() throws {
        let keys = Keyspace(parts: 16)
        let start = ContinuousClock.now
        let passed = Mutex(Duration.zero)
        let share = PartShare(keys, name: "dispatcher-0") { start + passed.withLock { $0 } }
        func knows(_ part: Keyspace, after seconds: Int) -> Bool {
            passed.withLock { $0 += .seconds(seconds) }
            share.update(Self.names(8))
            return share.knownParts.contains { $0.index == part.index }
        }
        share.update(Self.names(2))
        share.update(Self.names(8))
        let lost = try #require(share.knownParts.first { !share.owns($0) })
        let other = try #require(share.knownParts.last { !share.owns($0) })
        share.recordLook(in: lost, isClear: false)
        share.recordLook(in: other, isClear: true)
        #expect(knows(lost, after: 301))
        #expect(!knows(other, after: 0))
        share.recordLook(in: lost, isClear: true)
        #expect(knows(lost, after: 299))
        #expect(!knows(lost, after: 1))
    }

    @Test("looks after the deadlines that it has set in the parts of others, until there are none")
    func visits() throws {
        let keys = Keyspace(parts: 16)
        let share = PartShare(keys, name: "dispatcher-0")
        share.update(Self.names(8))
        let user = try #require((0..<100).map { "user-\($0)" }.first { !share.owns(keys.part(of: $0)) })
        let part = try #require(keys.part(of: user).index)
        #expect(!share.takeShards().contains(part))
        share.visit([user])
        #expect(share.takeShards().contains(part))
        share.watch([part])
        #expect(share.takeShards().contains(part))
        // A deadline that is set while the shard is looked at.
        share.visit([user])
        share.watch([])
        #expect(share.takeShards().contains(part))
        #expect(!share.takeShards().contains(part))
    }

    @Test("one Redis is read by all dispatchers")
    func oneRedis() {
        let share = PartShare(Keyspace(), name: "dispatcher-0")
        share.update(Self.names(8))
        #expect(share.parts.count == 1 && share.owns(Keyspace()) && share.takeShards().count == 16)
    }
}
