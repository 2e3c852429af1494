// Carillon · HubTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import Protocols
import Testing

@testable import Sockets

@Suite("The hub at its bounds", .timeLimit(.minutes(10)))
struct HubTests {
    @Test("a socket that finds too many waiting to be opened is told to come back later")
    func openings() throws {
        let harness = try HubHarness { $0.waitingOpenings = 2 }
        let (_, first) = harness.open("a", .native)
        let (_, second) = harness.open("b", .native)
        let (_, third) = harness.open("c", .native)
        #expect(first.end == nil && second.end == nil)
        #expect(third.end == .tryAgainLater)
        #expect(third.end?.webSocketClose.code == .tryAgainLater)
    }

    @Test("a change without the socket's shape waits for the inbox, and what follows it waits behind it")
    func incomplete() throws {
        let harness = try HubHarness()
        let (session, wire) = harness.open("a", .signalr)
        session.opened(InboxSnapshot(version: 4, unread: 0, total: 0))
        harness.deliver([HubHarness.notification("a", 5)])
        harness.deliver([HubHarness.notification("a", 6, camelCase: "{}")])
        #expect(wire.versions.isEmpty)
        #expect(session.isHolding)
        // The inbox knew nothing new: it is asked again later, and nothing is lost.
        session.filled(nil)
        #expect(wire.versions.isEmpty && session.isHolding)
        session.filled(InboxSnapshot(version: 5, unread: 1, total: 1))
        #expect(wire.syncs == [4, 5])
        #expect(wire.versions == [6])
        #expect(!session.isHolding)
        harness.deliver([HubHarness.notification("a", 5)])
        #expect(wire.versions == [6] && !session.isHolding)
    }

    @Test("a change that is in no inbox and lacks the socket's shape is passed over")
    func nowhere() throws {
        let harness = try HubHarness()
        let (session, wire) = harness.open("a", .signalr)
        session.opened(InboxSnapshot(version: 4, unread: 0, total: 0))
        harness.deliver([HubHarness.notification("a", 0)])
        #expect(wire.versions.isEmpty && !session.isHolding)
        harness.deliver([HubHarness.notification("a", 0, camelCase: "{}")])
        #expect(wire.versions == [0])
    }

    @Test("an answer tells nothing that changes have told while it was under way")
    func overtaken() throws {
        let harness = try HubHarness()
        let (session, wire) = harness.open("a", .signalr)
        session.opened(InboxSnapshot(version: 4, unread: 0, total: 0))
        harness.deliver((5...6).map { HubHarness.notification("a", $0, camelCase: "{}") })
        #expect(wire.versions == [5, 6])
        for version in Int64(5)...6 {
            let items = (5...version).map { HubHarness.item($0) }
            session.filled(InboxSnapshot(version: version, unread: 9, total: 9, items: items))
        }
        #expect(wire.syncs == [4] && wire.unread == [0])
        let deleted = [Int64(6), 8].map { InboxSnapshot.Deletion(id: HubHarness.item($0).id, version: $0) }
        let later = InboxSnapshot(
            version: 8, unread: 2, total: 2, items: [5, 7].map { HubHarness.item($0) }, deleted: deleted)
        session.filled(later)
        #expect(wire.syncs == [4, 8] && wire.rows == [7, 8] && wire.unread == [0, 2])
        harness.deliver([HubHarness.notification("a", 8, camelCase: "{}")])
        harness.deliver([HubHarness.notification("a", 9, camelCase: "{}")])
        #expect(wire.versions == [5, 6, 9])
        // A client that asks by itself says what it has.
        session.filled(later, answering: Resumption(version: 4, reference: Array("1".utf8)))
        #expect(wire.syncs == [4, 8, 8] && wire.rows == [7, 8, 5, 7, 6, 8])
        #expect(session.lastVersion == 9)
    }

    @Test("a loop that is too far behind gets nothing more until it has caught up")
    func backlog() {
        let backlog = LoopBacklog(limit: 10)
        #expect(backlog.take(8))
        #expect(backlog.take(3) == false)
        // What would fit is left out too: it would only wait for what was left out before it.
        #expect(backlog.take(1) == false)
        #expect(backlog.giveBack(8))
        #expect(backlog.take(2))
        #expect(backlog.giveBack(2) == false)
        // One batch that is larger than the bound is not stuck for ever.
        #expect(backlog.take(11))
        #expect(backlog.giveBack(11) == false)
    }

    @Test("what was kept from a loop is read from the inboxes when it has caught up")
    func shed() throws {
        let harness = try HubHarness { $0.changesPerLoop = 2 }
        let (session, wire) = harness.open("a", .native)
        session.opened(InboxSnapshot(version: 0, unread: 0, total: 0))
        // Without a turn of the loop in between.
        harness.hub.deliver([HubHarness.notification("a", 1), HubHarness.notification("a", 2)])
        harness.hub.deliver([HubHarness.notification("a", 3)])
        harness.deliver([HubHarness.notification("a", 4)])
        #expect(wire.versions == [1, 2])
        harness.deliver([HubHarness.notification("a", 5)])
        #expect(wire.versions == [1, 2] && session.isHolding)
        session.filled(InboxSnapshot(version: 4, unread: 4, total: 4))
        #expect(wire.versions == [1, 2, 5])
    }
}
