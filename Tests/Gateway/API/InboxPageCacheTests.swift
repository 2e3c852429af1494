// Carillon · InboxPageCacheTests.swift
// SPDX-License-Identifier: Apache-2.0

import Storage
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

    @Test("returns the newest page of the user and the selection")
    func selections() {
        let cache = InboxPageCache(bytes: 10_000)
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
        cache.evict("Zoë")
        #expect(cache.bytes == 0)
        #expect(cache.page(of: "Zoë", .init(limit: 5, unreadOnly: true)) == nil)
    }

    @Test("keeps what was just requested, and no more bytes than the limit")
    func bound() {
        let limit = 8 * 1_320
        let cache = InboxPageCache(bytes: limit)
        for number in 0..<100 {
            cache.keep(Self.page(1), of: "user-\(number)", Self.selection)
            #expect(cache.page(of: "user-0", Self.selection) != nil)
            #expect(cache.bytes <= limit)
        }
        #expect(cache.page(of: "user-99", Self.selection) != nil)
        #expect(cache.page(of: "user-50", Self.selection) == nil)
        // A page larger than half of the limit is not kept and evicts nothing.
        let bytes = cache.bytes
        cache.keep(Self.page(1, bytes: 6_000), of: "large", Self.selection)
        #expect(cache.page(of: "large", Self.selection) == nil)
        #expect(cache.bytes == bytes)
        for number in 0..<100 { cache.evict("user-\(number)") }
        #expect(cache.bytes == 0)
    }

    @Test("keeps nothing without room")
    func none() {
        let cache = InboxPageCache(bytes: 0)
        cache.keep(Self.page(1), of: "ada", Self.selection)
        #expect(cache.page(of: "ada", Self.selection) == nil)
        #expect(cache.bytes == 0)
    }

    @Test("evicts a page that was not requested between two turns")
    func idle() {
        let cache = InboxPageCache(bytes: 100_000)
        for user in ["ada", "ben"] { cache.keep(Self.page(1), of: user, Self.selection) }
        cache.rotate()
        #expect(cache.page(of: "ben", Self.selection) != nil)
        cache.rotate()
        #expect(cache.page(of: "ada", Self.selection) == nil)
        #expect(cache.page(of: "ben", Self.selection) != nil)
    }
}
