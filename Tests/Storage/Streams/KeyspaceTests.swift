// Carillon · KeyspaceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
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
        #expect(self.keys.held(.fcm, .bulk, app: "shop") == "carillon:{fcm}:held:bulk:shop")
        #expect(self.keys.pauses(.fcm) == "carillon:{fcm}:pauses")
        #expect(self.keys.dead == "carillon:dead")
        #expect(self.keys.presence("u1") == "carillon:presence:{u1}")
        #expect(self.keys.nodeLease("n1") == "carillon:node:n1")
        #expect(self.keys.dispatcherLease("d1") == "carillon:dispatcher:d1")
        #expect(self.keys.nodeChannel("n1") == "carillon:{node:n1}")
        #expect(self.keys.allNodesChannel == "carillon:all")
        #expect(self.keys.unconfirmed(shard: 3) == "carillon:unconfirmed:{3}")
        #expect(Keyspace.group == "dispatchers")
    }

    @Test("puts the prefix before every name")
    func prefix() {
        let keys = Keyspace(prefix: "x:")
        let names =
            Lane.allCases.map { keys.jobs($0) }
            + [
                keys.deliveries(.fcm, .bulk), keys.retries(.apns, .normal), keys.held(.apns, .normal),
                keys.held(.apns, .normal, app: "shop"), keys.pauses(.fcm), keys.dead,
                keys.presence("u"), keys.nodeLease("n"), keys.dispatcherLease("d"), keys.nodeChannel("n"),
                keys.allNodesChannel, keys.unconfirmed(shard: 0), keys.sweepTurn, keys.memory,
            ]
        #expect(names.allSatisfy { $0.hasPrefix("x:") && !$0.contains("carillon") })
        #expect(Set(names).count == names.count)
    }

    @Test("puts keys that a script moves between into one cluster slot")
    func tags() {
        func tag(_ key: String) -> Substring { key.drop { $0 != "{" }.prefix { $0 != "}" } }
        for provider in Provider.wellKnown + [Provider(word: "pigeon")] {
            let keys = Lane.allCases.flatMap { lane in
                [
                    self.keys.deliveries(provider, lane), self.keys.retries(provider, lane),
                    self.keys.held(provider, lane), self.keys.held(provider, lane, app: "{shop}"),
                ]
            }
            #expect(Set(keys.map(tag)) == ["{\(provider.rawValue)"])
            #expect(Set(keys).count == 12)
        }
    }

    /// The cluster slot of a key: CRC16 (XMODEM) of its tag, or of the whole key without one.
    private static func slot(_ key: String) -> UInt16 {
        let bytes = Array(key.utf8)
        var hashed = bytes[...]
        if let start = bytes.firstIndex(of: UInt8(ascii: "{")),
            let end = bytes[(start + 1)...].firstIndex(of: UInt8(ascii: "}")), end > start + 1
        {
            hashed = bytes[(start + 1)..<end]
        }
        var crc: UInt16 = 0
        for byte in hashed {
            crc ^= UInt16(byte) << 8
            for _ in 0..<8 { crc = crc & 0x8000 == 0 ? crc << 1 : (crc << 1) ^ 0x1021 }
        }
        return crc % 16_384
    }

    @Test(
        "computes slots as Redis does", arguments: [("foo", 12_182), ("{foo}:x", 12_182), ("{}foo", 9_500)])
    func knownSlots(key: String, slot: UInt16) {
        #expect(Self.slot(key) == slot)
    }

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
        #expect(Self.slot(self.keys.webhookQueue(queue)) == Self.slot(self.keys.webhooksDue))
        #expect(
            Self.slot(self.keys.held(.fcm, .bulk, app: name)) == Self.slot(self.keys.deliveries(.fcm, .bulk)))
        let work = DeliveryWork(notification: queue, device: queue, user: name, attempt: 0, isRepeat: false)
        #expect(Self.slot(self.keys.sendClaim(work, .fcm)) == Self.slot(self.keys.deliveries(.fcm, .critical)))
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
            for provider in Provider.wellKnown + [Provider(word: "pigeon")] {
                #expect(keys.takesBack(keys.deliveries(provider, lane)))
                #expect(!keys.takesBack(keys.retries(provider, lane)))
                #expect(!keys.takesBack(keys.held(provider, lane)))
                #expect(!keys.takesBack(keys.held(provider, lane, app: "shop")))
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
        #expect(self.keys.unconfirmedShard(user: user) == shard)
    }

    @Test("spreads users over all shards")
    func spreads() {
        let counts = Dictionary(grouping: (0..<16_000).map { self.keys.unconfirmedShard(user: "user-\($0)") }) { $0 }
        #expect(counts.count == Keyspace.unconfirmedShards)
        #expect(counts.values.allSatisfy { (600...1_400).contains($0.count) })
    }
}
