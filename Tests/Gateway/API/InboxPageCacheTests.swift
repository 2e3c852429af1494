// Carillon · InboxPageCacheTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage
import Synchronization
import Testing

@testable import HTTP

@Suite(.timeLimit(.minutes(10)))
struct InboxPageCacheTests {
    private static let selection = InboxPageCache.Selection(limit: 20, unreadOnly: false)

    private static func page(_ version: Int64, bytes: Int = 1_000) -> InboxPageCache.Page {
        var state = InboxStore.State()
        state.version = version
        return InboxPageCache.Page(state: state, json: [UInt8](repeating: UInt8(version), count: bytes))
    }

    private static func users(_ cache: InboxPageCache, of count: Int) -> [Int] {
        (0..<count).filter { cache.page(of: "user-\($0)", Self.selection) != nil }
    }

    private final class Clock: Sendable {
        private let seconds = Mutex<Int64>(1_000)

        var now: Timestamp { Timestamp(seconds: self.seconds.withLock { $0 }) }

        func pass(_ seconds: Int64) { self.seconds.withLock { $0 += seconds } }
    }

    private let clock = Clock()

    private func cache(bytes: Int) -> InboxPageCache {
        InboxPageCache(bytes: bytes) { [clock] in clock.now }
    }

    @Test("returns the newest page of the user and the selection")
    func selections() {
        let cache = self.cache(bytes: 10_000)
        cache.keep(Self.page(1), of: "Zoë", Self.selection)
        cache.keep(Self.page(2), of: "Zoë", Self.selection)
        #expect(cache.page(of: "Zoë", Self.selection)?.state.version == 2)
        #expect(cache.page(of: "Zoë", Self.selection)?.json == Self.page(2).json)
        // The same letters in other code points name another user.
        #expect(cache.page(of: "Zoe\u{308}", Self.selection) == nil)
        #expect(cache.page(of: "Zoë", .init(limit: 20, unreadOnly: true)) == nil)
        #expect(cache.page(of: "Zoë", .init(limit: 21, unreadOnly: false)) == nil)
        // Each user has one page, whatever its selection.
        cache.keep(Self.page(3), of: "Zoë", .init(limit: 5, unreadOnly: true))
        #expect(cache.page(of: "Zoë", Self.selection) == nil)
        let bytes = cache.bytes
        #expect(bytes < 2_000)
        cache.forget("Zoë")
        #expect(cache.bytes == 0)
        #expect(cache.page(of: "Zoë", .init(limit: 5, unreadOnly: true)) == nil)
    }

    @Test("evicts the least recently used pages at the limit")
    func bound() {
        let cache = self.cache(bytes: 4 * 1_320)
        for number in 0..<4 { cache.keep(Self.page(1), of: "user-\(number)", Self.selection) }
        #expect(Self.users(cache, of: 4) == [0, 1, 2, 3])
        _ = cache.page(of: "user-0", Self.selection)
        cache.keep(Self.page(1), of: "user-4", Self.selection)
        #expect(Self.users(cache, of: 5) == [0, 2, 3, 4])
        // A large page evicts several.
        cache.keep(Self.page(1, bytes: 3_000), of: "user-5", Self.selection)
        #expect(Self.users(cache, of: 6) == [4, 5])
        #expect(cache.bytes <= 4 * 1_320)
        // A page larger than the cache is not kept and evicts nothing.
        cache.keep(Self.page(1, bytes: 6_000), of: "user-6", Self.selection)
        #expect(Self.users(cache, of: 7) == [4, 5])
        // Freed places are reused.
        for round in 0..<100 { cache.keep(Self.page(1), of: "user-\(round % 10)", Self.selection) }
        #expect(Self.users(cache, of: 10) == [6, 7, 8, 9])
        for number in 0..<10 { cache.forget("user-\(number)") }
        #expect(cache.bytes == 0)
    }

    @Test("keeps nothing without room")
    func none() {
        let cache = self.cache(bytes: 0)
        cache.keep(Self.page(1), of: "ada", Self.selection)
        #expect(cache.page(of: "ada", Self.selection) == nil)
        #expect(cache.bytes == 0)
    }

    @Test("evicts a page that was not requested for ten minutes")
    func idle() {
        let cache = self.cache(bytes: 100_000)
        for number in 0..<3 { cache.keep(Self.page(1), of: "user-\(number)", Self.selection) }
        self.clock.pass(400)
        _ = cache.page(of: "user-1", Self.selection)
        self.clock.pass(200)
        cache.dropIdle()
        #expect(Self.users(cache, of: 3).count == 3)
        self.clock.pass(401)
        _ = cache.page(of: "user-1", Self.selection)
        self.clock.pass(200)
        cache.dropIdle()
        #expect(Self.users(cache, of: 3) == [1])
    }
}
