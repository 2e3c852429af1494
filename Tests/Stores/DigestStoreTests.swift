// Carillon · DigestStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Model
import Stores
import Testing

@Suite("Stores: digests", .timeLimit(.minutes(10)))
struct DigestStoreTests {
    private static let now = Samples.start
    private static let until = Samples.start + .seconds(9_999)

    private static func items(_ numbers: ClosedRange<Int>, user: String = "a", _ rule: DigestRule) -> [DigestStore.Item]
    {
        numbers.map { DigestStore.Item(notification: Samples.notification($0, user: user), key: "k", rule: rule) }
    }

    private static func rule(_ singles: Int, sliding: Bool = false) -> DigestRule {
        var rule = DigestRule(window: .seconds(60), maximum: .seconds(100))
        rule.singles = singles
        rule.isSliding = sliding
        return rule
    }

    @Test("the first few come on their own, the rest is held; the same items again change nothing")
    func singles() async throws {
        try await Samples.withStores { pool in
            let store = DigestStore(pool: pool)
            let items = Self.items(1...4, Self.rule(2))
            let expected: [DigestStore.Outcome] = [.single, .single, .held, .held]
            #expect(try await store.gather(items, now: Self.now) == expected)
            #expect(try await store.gather(items, now: Self.now + .seconds(1)) == expected)
            #expect(try await store.take(now: Self.now + .seconds(59), until: Self.until, limit: 10).isEmpty)
            let due = try await store.take(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            #expect(due.map(\.count) == [2])
            #expect(due.first?.first.map(\.title) == ["n3", "n4"])
        }
    }

    @Test("what windows held back can be read page by page, the single ones left out")
    func held() async throws {
        try await Samples.withStores { pool in
            let store = DigestStore(pool: pool)
            _ = try await store.gather(Self.items(1...5, Self.rule(2)), now: Self.now)
            _ = try await store.gather(Self.items(6...8, user: "b", Self.rule(0)), now: Self.now)
            let due = try await store.take(now: Self.now + .seconds(86_400), until: Self.now, limit: 10)
            let windows = due.map(\.id)
            #expect(windows.count == 2)
            var found: [NotificationID] = []
            var last: DigestStore.Held?
            repeat {
                let page = try await store.held(in: windows, after: last, limit: 2)
                #expect(page.allSatisfy { windows.contains($0.window) })
                found += page.map(\.id)
                last = page.last
            } while last != nil
            let expected = Self.items(3...5, Self.rule(2)) + Self.items(6...8, user: "b", Self.rule(0))
            #expect(found.count == 6)
            #expect(Set(found) == Set(expected.map(\.notification.id)))
        }
    }

    @Test("a window is taken by one; late items open the next")
    func late() async throws {
        try await Samples.withStores { pool in
            let store = DigestStore(pool: pool)
            _ = try await store.gather(Self.items(1...3, Self.rule(0)), now: Self.now)
            let first = try await store.take(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            #expect(try await store.take(now: Self.now + .seconds(60), until: Self.until, limit: 10).isEmpty)
            _ = try await store.gather(Self.items(4...4, Self.rule(0)), now: Self.now + .seconds(61))
            try await store.remove(first.map(\.id))
            let second = try await store.take(now: Self.now + .seconds(121), until: Self.until, limit: 10)
            #expect(second.map(\.count) == [1])
            #expect(second.first?.id != first.first?.id)
        }
    }

    @Test("an item that comes when the window is over, before anybody took it, opens the next one")
    func over() async throws {
        try await Samples.withStores { pool in
            let store = DigestStore(pool: pool)
            _ = try await store.gather(Self.items(1...1, Self.rule(0)), now: Self.now)
            _ = try await store.gather(Self.items(2...2, Self.rule(0)), now: Self.now + .seconds(60))
            let due = try await store.take(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            #expect(due.map { $0.first.map(\.title) } == [["n1"]])
        }
    }

    @Test("a sliding window moves with each item, up to its maximum")
    func sliding() async throws {
        try await Samples.withStores { pool in
            let store = DigestStore(pool: pool)
            let rule = Self.rule(0, sliding: true)
            for (number, second) in [(1, 0), (2, 50), (3, 90)] {
                _ = try await store.gather(Self.items(number...number, rule), now: Self.now + .seconds(second))
            }
            #expect(try await store.take(now: Self.now + .seconds(99), until: Self.until, limit: 10).isEmpty)
            let due = try await store.take(now: Self.now + .seconds(100), until: Self.until, limit: 10)
            #expect(due.map(\.count) == [3])
        }
    }

    @Test("a job id that was held before is a duplicate, and what was read meanwhile falls out")
    func once() async throws {
        try await Samples.withStores { pool in
            let store = DigestStore(pool: pool)
            func item(_ number: Int, job: String? = nil, entity: String? = nil) -> DigestStore.Item {
                let notification = Samples.notification(number, user: "a", job: job) {
                    $0.entityType = entity == nil ? nil : "task"
                    $0.entityID = entity
                }
                return DigestStore.Item(notification: notification, key: "k", rule: Self.rule(0))
            }
            let outcomes = try await store.gather(
                [item(1, job: "j"), item(2, job: "j"), item(3, entity: "t1"), item(4, entity: "t2")], now: Self.now)
            #expect(outcomes == [.held, .duplicate, .held, .held])
            let read = Samples.notification(9, user: "a") {
                $0.entityType = "task"
                $0.entityID = "t1"
            }
            _ = try await NotificationStore(pool: pool).store([read], areRepeats: false)
            _ = try await InboxStore(pool: pool).markRead(user: "a", ids: [read.id], at: Self.now + .seconds(5))
            let due = try await store.take(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            #expect(due.first?.first.map(\.title) == ["n1", "n4"])
        }
    }
}
