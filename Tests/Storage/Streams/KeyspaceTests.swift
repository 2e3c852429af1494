// Carillon · KeyspaceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Testing

@testable import Storage

@Suite("Redis keys", .timeLimit(.minutes(10)))
struct KeyspaceTests {
    private let keys = Keyspace()

    @Test("keeps the names that other programs and releases use")
    func names() {
        #expect(
            Lane.allCases.map { self.keys.jobs($0) } == [
                "carillon:jobs:critical", "carillon:jobs", "carillon:jobs:bulk",
            ])
        #expect(self.keys.deliveries(.fcm, .critical) == "carillon:{fcm}:deliveries:critical")
        #expect(self.keys.deliveries(.apns, .normal) == "carillon:{apns}:deliveries:normal")
        #expect(self.keys.retries(.fcm, .bulk) == "carillon:{fcm}:retry:bulk")
        #expect(self.keys.held(.fcm, .bulk) == "carillon:{fcm}:held:bulk")
        #expect(self.keys.held(.fcm, .bulk, BreakerScope("shop")) == "carillon:{fcm}:held:bulk:shop")
        #expect(self.keys.pauses(.fcm) == "carillon:{fcm}:pauses")
        #expect(self.keys.presence("u1") == "carillon:presence:{u1}")
        #expect(self.keys.nodeLease("n1") == "carillon:node:n1")
        #expect(self.keys.dispatcherLease("d1") == "carillon:dispatcher:d1")
        #expect(self.keys.nodeChannel("n1") == "carillon:{node:n1}")
        #expect(self.keys.allNodesChannel == "carillon:all")
        #expect(self.keys.partTags == "carillon:tags")
        #expect(self.keys.proofDeadlines(shard: 3) == "carillon:unconfirmed:{3}")
        #expect(Keyspace.group == "dispatchers")
    }

    @Test("channels for all processes differ between the databases of a Redis")
    func databases() {
        func channels(_ keys: Keyspace) -> [String] {
            [keys.allNodesChannel, keys.revocationsChannel, keys.catalogChannel]
        }
        #expect(channels(self.keys) == ["carillon:all", "carillon:revocations", "carillon:catalog"])
        #expect(
            channels(Keyspace(database: 1)) == ["carillon:all:1", "carillon:revocations:1", "carillon:catalog:1"])
        #expect(Keyspace(database: 1).jobs(.normal) == self.keys.jobs(.normal))
    }

    @Test("puts the prefix before every name")
    func prefix() {
        let keys = Keyspace(prefix: "x:")
        let names =
            Lane.allCases.map { keys.jobs($0) }
            + [
                keys.deliveries(.fcm, .bulk), keys.retries(.apns, .normal), keys.held(.apns, .normal),
                keys.held(.apns, .normal, BreakerScope("shop")), keys.pauses(.fcm),
                keys.presence("u"), keys.nodeLease("n"), keys.dispatcherLease("d"), keys.nodeChannel("n"),
                keys.allNodesChannel, keys.proofDeadlines(shard: 0), keys.sweepTurn, keys.partsFailure,
                keys.runNote,
            ]
        #expect(names.allSatisfy { $0.hasPrefix("x:") && !$0.contains("carillon") })
        #expect(Set(names).count == names.count)
    }

    @Test("puts keys that a script moves between into one cluster slot")
    func tags() {
        func tag(_ key: String) -> Substring { key.drop { $0 != "{" }.prefix { $0 != "}" } }
        for provider in Provider.all + [Provider(word: "pigeon")] {
            let keys = Lane.allCases.flatMap { lane in
                [
                    self.keys.deliveries(provider, lane), self.keys.retries(provider, lane),
                    self.keys.held(provider, lane), self.keys.held(provider, lane, BreakerScope("{shop}")),
                ]
            }
            #expect(Set(keys.map(tag)) == ["{\(provider.rawValue)"])
            #expect(Set(keys).count == 12)
        }
    }

    private static func slot(_ key: String) -> Int { RedisSlot.of(Array(key.utf8)) }

    @Test(
        "puts all keys of a user into one slot, whatever the name",
        arguments: ["u1", "}x", "{}", "}{", "a}b", "é", "", "}", "}\u{301}x", "%", "%}x", "%%", "{", " "]
    )
    func userTags(user: String) {
        func keys(_ user: String) -> [String] {
            [
                self.keys.presence(user), self.keys.usage("type:news", user), self.keys.usage("all", user),
                self.keys.bucket("calls", user),
            ]
        }
        #expect(Set(keys(user).map(Self.slot)).count == 1)
        for other in ["%" + user, "%%" + user, "}" + user, "{" + user, user + "}", user + "%", user + "x"] {
            #expect(Set(keys(user)).isDisjoint(with: keys(other)), "\(other)")
        }
    }

    @Test(
        "keeps names of nodes, organisations and accounts from changing the slot",
        arguments: ["x", "}x", "{}", "", "a}b"])
    func otherTags(name: String) {
        let queue = NotificationID(high: 1, low: 2)
        #expect(Self.slot(self.keys.overflow(name)) == Self.slot(self.keys.overflows))
        #expect(Self.slot(self.keys.partsFailure) == Self.slot(self.keys.sweepTurn))
        #expect(Self.slot(self.keys.webhookQueue(queue)) == Self.slot(self.keys.webhooksDue))
        #expect(
            Self.slot(self.keys.held(.fcm, .bulk, BreakerScope(name))) == Self.slot(self.keys.deliveries(.fcm, .bulk)))
        let work = DeliveryWork(notification: queue, device: queue, user: name, attempt: 0, isRepeat: false)
        let claims = self.keys.sendClaims([work], .fcm)
        #expect(claims.map { RedisSlot.of($0) } == [Self.slot(self.keys.deliveries(.fcm, .critical))])
        #expect(self.keys.nodeChannel(name).contains("{node:"))
    }

    @Test(
        "returns entries to jobs, schedules and deliveries of any provider only",
        arguments: ["carillon:", "x:", ""]
    )
    func takesBack(prefix: String) {
        let keys = Keyspace(prefix: prefix)
        #expect(keys.takesBack(Keyspace.schedules))
        #expect(!keys.takesBack("x" + Keyspace.schedules))
        for lane in Lane.allCases {
            #expect(keys.takesBack(keys.jobs(lane)))
            for provider in Provider.all + [Provider(word: "pigeon")] {
                #expect(keys.takesBack(keys.deliveries(provider, lane)))
                #expect(!keys.takesBack(keys.retries(provider, lane)))
                #expect(!keys.takesBack(keys.held(provider, lane)))
                #expect(!keys.takesBack(keys.held(provider, lane, BreakerScope("shop"))))
                #expect(!keys.takesBack("other:" + keys.deliveries(provider, lane)))
                #expect(!keys.takesBack(keys.deliveries(provider, lane) + "r"))
            }
        }
        for name in [
            "", "{", "{}", "jobs:urgent", "jobs:{overflow}:shop", "{fcm}:deliveries:urgent", "{fcm}:deliveries:",
            "{Fcm}:deliveries:bulk", "{}:deliveries:bulk", "{two words}:deliveries:bulk", "{fcm:deliveries:bulk",
            "fcm:deliveries:bulk", "{fcm}}:deliveries:bulk", "{{fcm}:deliveries:bulk", "presence:{fcm}",
        ] { #expect(!keys.takesBack(prefix + name), "\(name)") }
    }

    @Test(
        "computes a user's shard alike in every process",
        arguments: [("", 5), ("a", 12), ("foobar", 8), ("u1", 3), ("é", 1)]
    )
    func shards(user: String, shard: Int) {
        #expect(self.keys.proofShard(user: user) == shard)
    }

    @Test("spreads users over all shards")
    func spreads() {
        let counts = Dictionary(grouping: (0..<16_000).map { self.keys.proofShard(user: "user-\($0)") }) { $0 }
        #expect(counts.count == self.keys.proofShards)
        #expect(counts.values.allSatisfy { (600...1_400).contains($0.count) })
    }
}

/// Keys that are spread over parts.
@Suite("Redis keys in parts", .timeLimit(.minutes(10)))
struct PartTests {
    private static let users = ["u1", "}x", "{}", "}{", "a}b", "é", "", "}", "%", "{", " ", "{agbr}x"]

    private static func slot(_ key: String) -> Int { RedisSlot.of(Array(key.utf8)) }

    @Test("keeps the tags in which an installation has its keys")
    func tags() {
        #expect(
            PartTags.all(16) == [
                "agbr", "mws", "akgg", "arf", "agsp", "eoi", "akve", "acd", "gxm", "aedt", "rvp", "aahy", "gio", "qn",
                "ceb", "aipc",
            ])
    }

    @Test("the page on scaling shows the tags of 16 parts")
    func page() throws {
        let file = URL(fileURLWithPath: #filePath).appending(path: "../../../../docs/scaling.md").standardized
        let text = try String(contentsOf: file, encoding: .utf8)
        #expect(text.contains(PartTags.all(16).joined(separator: " ")))
    }

    @Test("spreads parts evenly over any number of masters", arguments: [2, 16, 64, 256])
    func balance(count: Int) {
        let slots = PartTags.all(count).map(Self.slot)
        #expect(Set(slots).count == count)
        for masters in 1...count {
            var shares = [Int](repeating: 0, count: masters)
            for slot in slots { shares[slot * masters / RedisSlot.count] += 1 }
            let (least, most) = (shares.min() ?? 0, shares.max() ?? 0)
            #expect(most - least <= 2, "\(masters) masters")
        }
    }

    @Test("keeps a user's keys, and the work for that user, in one slot", arguments: [1, 16, 64, 256])
    func oneSlot(count: Int) {
        let keys = Keyspace(parts: count)
        let id = NotificationID(high: 1, low: 2)
        for user in Self.users {
            let part = keys.part(of: user)
            let work = DeliveryWork(notification: id, device: id, user: user, attempt: 0, isRepeat: false)
            var groups = [
                [keys.presence(user)], [keys.bookmarks(user)],
                [keys.usage("type:news", user), keys.usage("all", user)], [keys.bucket("calls", user)],
                [keys.webhooksDue, keys.webhookQueue(id)], [part.overflows, part.overflow(user)],
            ]
            for provider in Provider.all {
                groups.append(
                    Lane.allCases.flatMap { lane in
                        [
                            part.deliveries(provider, lane), part.retries(provider, lane), part.held(provider, lane),
                            part.held(provider, lane, BreakerScope(user)),
                        ] + part.sendClaims([work], provider).map { String(decoding: $0, as: UTF8.self) }
                    })
            }
            for group in groups { #expect(Set(group.map(Self.slot)).count == 1, "\(group)") }
            guard count > 1 else { continue }
            // All but webhooks, which belong to no user.
            let all =
                groups.filter { !$0.contains(keys.webhooksDue) }.joined() + Lane.allCases.map { part.jobs($0) }
                + [
                    part.runNote, part.events, part.nodeChannel("n"),
                    keys.proofDeadlines(shard: keys.proofShard(user: user)),
                ]
            #expect(Set(all.map(Self.slot)).count == 1, "\(user)")
        }
    }

    @Test("knows the lane of every part's jobs, and takes dead letters back to every part")
    func names() {
        let keys = Keyspace(parts: 16)
        #expect(keys.jobSources.count == 17)
        for source in keys.jobSources {
            for lane in Lane.allCases {
                #expect(keys.lane(ofJobs: source.jobs(lane)) == lane)
                #expect(keys.takesBack(source.jobs(lane)))
                #expect(keys.takesBack(source.deliveries(.fcm, lane)))
                #expect(!keys.takesBack(source.retries(.fcm, lane)))
                // A command that does not know the number of parts judges alike.
                #expect(Keyspace().takesBack(source.deliveries(.fcm, lane)))
                // The note is on the server that has the stream.
                #expect(Self.slot(source.runNote(of: source.jobs(lane))) == Self.slot(source.jobs(lane)))
            }
        }
        #expect(keys.lane(ofJobs: "carillon:{agbr}:jobs:urgent") == nil)
    }

    @Test("reads the jobs of former parts, too, and their overflow is in parts of today")
    func formerParts() {
        let keys = Keyspace(parts: 64, former: [1, 16])
        #expect(keys.jobSources.count == 64 + 1 + 16)
        let before = Keyspace(parts: 16)
        for part in before.parts {
            let source = keys.otherSources.first { $0.jobs(.bulk) == part.jobs(.bulk) }
            #expect(source?.index == nil)
            #expect(source?.overflowPart(of: "acme").overflow("acme") == keys.part(of: "acme").overflow("acme"))
            #expect(keys.lane(ofJobs: part.jobs(.bulk)) == .bulk)
            #expect(keys.runNotes.contains(part.runNote))
        }
        #expect(Set(keys.jobSources.map { $0.overflow("acme") }).count == 64 + 1 + 16)
    }

    @Test("finds the same part in every process", arguments: [("ada", 16), ("grace", 16), ("é", 64)])
    func samePart(user: String, count: Int) {
        // FNV-1a, as the producers' pages show it.
        var hash: UInt32 = 2_166_136_261
        for byte in user.utf8 { hash = (hash ^ UInt32(byte)) &* 16_777_619 }
        let tag = PartTags.all(count)[Int(hash) % count]
        #expect(Keyspace(parts: count).part(of: user).jobs(.normal) == "carillon:{\(tag)}:jobs")
    }
}
