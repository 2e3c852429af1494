// Carillon · InboxStateTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Testing

@testable import CarillonClient

@Suite("The state of an inbox")
struct InboxStateTests {
    @Test("the first sync is the inbox and no arrival")
    func firstSync() throws {
        let state = Model(InboxState(mostItems: 100))
        #expect(try state.take(sync(7, notification(2), notification(1), unread: 2)).isEmpty)
        #expect(state.titles == ["2", "1"] && state.version == 7 && state.unread == 2)
    }

    @Test("a notification arrives once")
    func arrivesOnce() throws {
        let state = try Self.state(sync(0))
        #expect(try state.take(arrival(1, #","silent":true"#)) == ["1"])
        #expect(state.items.first?.isSilent == true)
        #expect(try state.take(arrival(1)).isEmpty)
        #expect(state.titles == ["1"] && state.version == 1 && state.unread == 1)
    }

    @Test("a notification that the user brought back does not arrive")
    func again() throws {
        let state = try Self.state(sync(0))
        #expect(try state.take(arrival(1, #","silent":true,"again":true"#)).isEmpty)
        #expect(state.titles == ["1"])
    }

    @Test("a sync after a gap brings arrivals and changes")
    func gap() throws {
        let state = try Self.state(sync(2, notification(1), notification(2)))
        let frame = sync(
            9, notification(5), notification(4), notification(2, version: 6, isRead: true),
            notification(3, version: 7, isRead: true), unread: 2, deleted: ["001"])
        #expect(try state.take(frame) == ["4", "5"])
        #expect(state.titles == ["5", "4", "3r", "2r"] && state.version == 9)
        #expect(try state.take(frame).isEmpty)
    }

    @Test("a notification that the user brought back while the socket was away does not arrive")
    func againWhileAway() throws {
        let state = try Self.state(
            sync(2, notification(1), notification(2)), change("deleted", 3, unread: 1, #""ids":["001"]"#), arrival(4),
            arrival(5), mostItems: 2)
        let frame = sync(
            9, notification(1, version: 6), notification(2, version: 7), notification(3, version: 8),
            notification(6, version: 9))
        #expect(try state.take(frame) == ["3", "6"])
        _ = try state.take(change("deleted", 10, unread: 1, #""ids":["006"]"#))
        #expect(try state.take(sync(11, notification(6, version: 11))).isEmpty)
        #expect(state.titles == ["6", "5"])
    }

    @Test("an older id that is stored later arrives")
    func olderID() throws {
        let state = try Self.state(sync(2, notification(9, version: 2)))
        #expect(try state.take(sync(3, notification(8, version: 3))) == ["8"])
    }

    @Test("a resumed inbox begins with what changed")
    func resume() throws {
        let state = Model(InboxState(resume: 2, mostItems: 100))
        #expect(try state.take(sync(3, notification(3), unread: 3)) == ["3"])
        #expect(state.titles == ["3"] && state.unread == 3)
    }

    @Test("a reset replaces the items, and old ones do not arrive")
    func reset() throws {
        let state = try Self.state(sync(4, notification(4), notification(3)))
        #expect(try state.take(sync(900, notification(9), notification(4), notification(2), isReset: true)) == ["9"])
        #expect(state.titles == ["9", "4", "2"])
    }

    @Test("reads and deletions apply by id")
    func byID() throws {
        let state = try Self.state(sync(3, notification(1), notification(2), notification(3)))
        _ = try state.take(change("read", 4, unread: 2, #""ids":["002","999"]"#))
        #expect(state.titles == ["3", "2r", "1"] && state.unread == 2)
        _ = try state.take(change("deleted", 5, unread: 1, #""ids":["003","999"]"#))
        #expect(state.titles == ["2r", "1"] && state.version == 5)
    }

    @Test("reads and deletions apply up to a version")
    func upToVersion() throws {
        let state = try Self.state(sync(3, notification(1), notification(2), notification(3)))
        _ = try state.take(change("read", 600, unread: 1, #""all":true,"up_to_version":2"#))
        #expect(state.titles == ["3", "2r", "1r"])
        _ = try state.take(change("deleted", 1_200, unread: 1, #""all_read":true,"up_to_version":3"#))
        #expect(state.titles == ["3"])
    }

    @Test("the time of the first read stays")
    func firstRead() throws {
        let state = try Self.state(sync(1, notification(1, isRead: true)))
        let before = state.items.first?.readAt
        _ = try state.take(change("read", 2, unread: 0, #""ids":["001"]"#))
        #expect(before != nil && state.items.first?.readAt == before)
    }

    @Test("the oldest items leave beyond the bound")
    func bound() throws {
        let state = try Self.state(sync(0), arrival(1), arrival(2), arrival(3), arrival(4), mostItems: 3)
        #expect(state.titles == ["4", "3", "2"] && state.isFull)
    }

    @Test("a page adds old notifications, without those that changed after it was read")
    func page() throws {
        let state = try Self.state(
            sync(9, notification(9)), change("deleted", 10, unread: 1, #""ids":["001"]"#),
            change("read", 11, unread: 1, #""ids":["002"]"#))
        let page = try Self.page(
            9, notification(9, version: 8), notification(3, version: 12), notification(2), notification(1))
        #expect(state.merge(page))
        #expect(state.titles == ["9", "2r"])
        #expect(state.items.first?.version == 9)
    }

    @Test("a page adds notifications that were read before the frame of the read comes")
    func pageBeforeRead() throws {
        let state = try Self.state(sync(11, notification(9)))
        #expect(try state.merge(Self.page(12, notification(3, version: 12, isRead: true), notification(2))))
        _ = try state.take(change("read", 12, unread: 1, #""ids":["003"]"#))
        #expect(state.titles == ["9", "3r", "2"])
    }

    @Test("a page from before a reset is refused")
    func outdatedPage() throws {
        let state = try Self.state(sync(4), sync(900, isReset: true))
        #expect(try !state.merge(Self.page(899, notification(1))))
        #expect(state.items.isEmpty)
    }

    @Test("a page from before the oldest change that is remembered is refused")
    func forgottenChanges() throws {
        let state = try Self.state(sync(1))
        for version in 2...300 { _ = try state.take(change("read", version, unread: 0, #""ids":["001"]"#)) }
        #expect(try !state.merge(Self.page(2, notification(1))))
        #expect(try state.merge(Self.page(299, notification(1))))
        #expect(state.titles == ["1r"])
    }

    @Test("JSON of the app keeps its names and numbers")
    func data() throws {
        let frame = arrival(1).replacingOccurrences(of: #""data":{}"#, with: #""data":{"an_id":7,"x":[1.5,null]}"#)
        let state = try Self.state(sync(0))
        _ = try state.take(frame)
        let data = try #require(state.items.first?.data)
        #expect(data["an_id"] == .integer(7) && data["x"] == .array([.number(1.5), .null]))
    }

    @Test("a number beyond a double is null, and its notification arrives")
    func hugeNumbers() throws {
        let numbers = "[9e308,\(String(repeating: "9", count: 5_000)),1]"
        let frame = arrival(1).replacingOccurrences(of: #""data":{}"#, with: #""data":{"x":\#(numbers)}"#)
        let state = try Self.state(sync(0))
        #expect(try state.take(frame) == ["1"])
        #expect(state.items.first?.data?["x"] == .array([.null, .null, .integer(1)]))
    }

    private static func state(_ frames: String..., mostItems: Int = 100) throws -> Model {
        let state = Model(InboxState(mostItems: mostItems))
        for frame in frames { _ = try state.take(frame) }
        return state
    }

    private static func page(_ version: Int, _ notifications: String...) throws -> InboxPage {
        let json = """
            {"notifications":[\(notifications.joined(separator: ","))],"next_cursor":null,"unread":0,"total":0,\
            "version":\(version)}
            """
        return try JSON.decode(InboxPage.self, from: Data(json.utf8))
    }
}

/// A state that a test changes in its expectations.
@dynamicMemberLookup
private final class Model {
    private var state: InboxState

    init(_ state: InboxState) {
        self.state = state
    }

    subscript<Value>(dynamicMember path: KeyPath<InboxState, Value>) -> Value { self.state[keyPath: path] }

    /// The titles of the items, with a mark after those that are read.
    var titles: [String] { self.state.items.map { $0.title + ($0.isRead ? "r" : "") } }

    func merge(_ page: InboxPage) -> Bool { self.state.merge(page) }

    /// Applies a frame, and returns the titles of the arrivals.
    func take(_ frame: String) throws -> [String] {
        guard case .update(let update) = try JSON.decode(Frame.self, from: Data(frame.utf8)) else { return [] }
        return self.state.apply(update).arrivals.map(\.title)
    }
}
