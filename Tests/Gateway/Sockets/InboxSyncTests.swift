// Carillon · InboxSyncTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import NIOEmbedded
import Testing

@testable import Sockets

@Suite("Order of one client's inbox", .timeLimit(.minutes(10)))
struct InboxSyncTests {
    private static func change(
        _ version: Int64, after previous: Int64? = nil, camelCase: String = "{}"
    ) -> LoopChange {
        var frame = HubHarness.notification("a", version, camelCase: camelCase)
        if let previous { frame.previous = previous }
        return LoopChange(frame)
    }

    private static func snapshot(_ version: Int64, hasMore: Bool = false) -> InboxSnapshot {
        var snapshot = InboxSnapshot(version: version, unread: 0, total: 0)
        snapshot.hasMore = hasMore
        return snapshot
    }

    private static func inbox(_ first: InboxSnapshot, _ dialect: Dialect = .native) -> InboxSync {
        var inbox = InboxSync()
        _ = inbox.apply(first, isRequested: false, for: dialect)
        return inbox
    }

    /// Whether a read of changes is the next one.
    private static func readsChanges(_ inbox: inout InboxSync) -> Bool {
        if case .changes = inbox.catchUp.begin() { true } else { false }
    }

    @Test("holds everything before the first sync")
    func beforeSync() {
        var inbox = InboxSync()
        for version in Int64(0)...1 { #expect(inbox.judge(Self.change(version), for: .native) == .hold) }
        #expect(inbox.last == nil)
        #expect(inbox.apply(Self.snapshot(0), isRequested: false, for: .native) != nil)
        #expect(inbox.judge(Self.change(1), for: .native) == .sendNext)
    }

    @Test("sends the next change, drops repeats and holds what follows a gap")
    func order() {
        let table: [(previous: Int64, version: Int64, verdict: InboxSync.Verdict, last: Int64)] = [
            (10, 11, .sendNext, 11), (10, 14, .sendNext, 14), (9, 11, .sendNext, 11), (9, 10, .known, 10),
            (8, 9, .known, 10), (0, 1, .known, 10), (11, 12, .hold, 10), (12, 13, .hold, 10), (0, 0, .send, 10),
        ]
        for row in table {
            var inbox = Self.inbox(Self.snapshot(10))
            #expect(inbox.judge(Self.change(row.version, after: row.previous), for: .native) == row.verdict, "\(row)")
            #expect(inbox.last == row.last, "\(row)")
        }
    }

    @Test("reads a change that lacks the dialect's shape, unless the client has it or no inbox does")
    func incomplete() {
        let table: [(version: Int64, verdict: InboxSync.Verdict)] = [
            (0, .drop), (4, .skip), (5, .known), (6, .read), (7, .read),
        ]
        for row in table {
            var inbox = Self.inbox(Self.snapshot(4), .signalr)
            #expect(inbox.judge(Self.change(5), for: .signalr) == .sendNext)
            #expect(inbox.judge(Self.change(row.version, camelCase: ""), for: .signalr) == row.verdict, "\(row)")
            #expect(inbox.last == 5, "\(row)")
        }
    }

    @Test("awaits no proof of what a cut snapshot may have left out")
    func cut() {
        let table: [(dialect: Dialect, hasMore: Bool, verdict: InboxSync.Verdict)] = [
            (.native, false, .known), (.native, true, .skip), (.signalr, false, .skip), (.signalr, true, .skip),
        ]
        for row in table {
            var inbox = Self.inbox(Self.snapshot(4, hasMore: row.hasMore), row.dialect)
            #expect(inbox.judge(Self.change(5), for: row.dialect) == .sendNext, "\(row)")
            // The next snapshot is not cut, but does not list what the first left out.
            #expect(inbox.apply(Self.snapshot(6), isRequested: false, for: row.dialect) != nil, "\(row)")
            for version in Int64(3)...4 {
                #expect(inbox.judge(Self.change(version), for: row.dialect) == row.verdict, "\(row)")
            }
            for version in Int64(5)...6 {
                #expect(inbox.judge(Self.change(version), for: row.dialect) == .known, "\(row)")
            }
        }
    }

    @Test("sends what is new of a snapshot, or all of it if it was requested or is a reset")
    func snapshots() {
        let all: [Int64] = [5, 7, 6, 8]
        let table:
            [(last: Int64?, version: Int64, isRequested: Bool, isReset: Bool, rows: [Int64]?, readsAgain: Bool)] = [
                (nil, 8, false, false, all, false), (nil, 8, false, true, all, false),
                (6, 8, false, false, [7, 8], false), (8, 8, false, false, nil, false), (9, 8, false, false, nil, false),
                (6, 8, true, false, all, false), (8, 8, true, false, all, false), (9, 8, true, false, all, true),
                (6, 8, false, true, all, false), (8, 8, false, true, all, false), (9, 8, false, true, all, true),
            ]
        for row in table {
            var inbox = row.last.map { Self.inbox(Self.snapshot($0)) } ?? InboxSync()
            var snapshot = Self.snapshot(row.version)
            snapshot.isReset = row.isReset
            snapshot.items = [5, 7].map { HubHarness.item($0) }
            snapshot.deleted = [6, 8].map { InboxSnapshot.Deletion(id: HubHarness.item($0).id, version: $0) }
            let sent = inbox.apply(snapshot, isRequested: row.isRequested, for: .native)
            #expect(sent.map { $0.items.map(\.version) + $0.deleted.map(\.version) } == row.rows, "\(row)")
            #expect(inbox.last == (row.rows == nil ? row.last : row.version), "\(row)")
            #expect(Self.readsChanges(&inbox) == row.readsAgain, "\(row)")
        }
    }

    @Test("releases held changes by version, and reads those above 1,024")
    func held() {
        var inbox = Self.inbox(Self.snapshot(0))
        let versions = Array((Int64(2)..<1_026).reversed())
        for version in versions { #expect(inbox.hold(Self.change(version), now: .now()) == true) }
        #expect(Self.readsChanges(&inbox) == false)
        #expect(inbox.hold(Self.change(1_026), now: .now()) == false)
        #expect(Self.readsChanges(&inbox) == true)
        #expect(inbox.isHolding)
        #expect(inbox.release().map(\.frame.version) == versions.reversed())
        #expect(!inbox.isHolding)
        #expect(inbox.release().isEmpty)
    }

    @Test("is overdue once a change has waited too long, and again after the same time")
    func overdue() {
        var inbox = Self.inbox(Self.snapshot(0))
        let start = NIODeadline.now()
        #expect(inbox.isOverdue(now: start, limit: .zero) == false)
        for second in Int64(0)...1 { _ = inbox.hold(Self.change(second + 2), now: start + .seconds(second)) }
        let table: [(second: Int64, isOverdue: Bool)] = [(2, false), (3, true), (4, false), (5, false), (6, true)]
        for row in table {
            let now = start + .seconds(row.second)
            #expect(inbox.isOverdue(now: now, limit: .seconds(2)) == row.isOverdue, "\(row)")
        }
        _ = inbox.release()
        #expect(inbox.isOverdue(now: start + .seconds(60), limit: .seconds(2)) == false)
    }
}

@Suite("Reads of one socket's inbox", .timeLimit(.minutes(10)))
struct CatchUpTests {
    /// A read in short: a reset, changes, or the version of a resumption.
    private static func word(_ read: CatchUp.Read?) -> String? {
        switch read {
        case nil: nil
        case .reset: "reset"
        case .changes: "changes"
        case .resumption(let resumption): "\(resumption.version)"
        }
    }

    private static func resumption(_ version: Int64) -> Resumption { Resumption(version: version, reference: nil) }

    /// Ends each read with an answer until none is wanted, and returns them.
    private static func drain(_ catchUp: inout CatchUp) -> [String] {
        var reads: [String] = []
        while let read = catchUp.begin() {
            if let word = Self.word(read) { reads.append(word) }
            catchUp.ended(isReset: reads.last == "reset")
        }
        return reads
    }

    /// Wants everything.
    private static func wanting() -> CatchUp {
        var catchUp = CatchUp()
        catchUp.wantChanges()
        for version in Int64(1)...2 { _ = catchUp.want(Self.resumption(version)) }
        catchUp.wantReset()
        return catchUp
    }

    @Test("begins one read at a time: a reset, then the resumptions in order, then changes")
    func order() {
        var catchUp = Self.wanting()
        #expect(Self.word(catchUp.begin()) == "reset")
        #expect(catchUp.begin() == nil)
        catchUp.ended(isReset: true)
        #expect(Self.drain(&catchUp) == ["1", "2", "changes"])
    }

    @Test("repeats a read that failed")
    func failures() {
        var catchUp = Self.wanting()
        for word in ["reset", "1", "2"] {
            for isLast in [false, true] {
                let read = catchUp.begin()
                #expect(Self.word(read) == word)
                var failed: Resumption?
                if case .resumption(let resumption) = read { failed = resumption }
                if isLast { catchUp.ended(isReset: word == "reset") } else { catchUp.failed(failed) }
            }
        }
        #expect(Self.word(catchUp.begin()) == "changes")
        catchUp.failed(nil)
        #expect(Self.drain(&catchUp) == ["changes"])
    }

    @Test("does not repeat a read of changes that failed after a reset was wanted")
    func superseded() {
        var catchUp = CatchUp()
        catchUp.wantChanges()
        #expect(Self.word(catchUp.begin()) == "changes")
        catchUp.wantReset()
        catchUp.failed(nil)
        #expect(Self.drain(&catchUp) == ["reset"])
    }

    @Test("repeats a reset that failed once, and reads changes that were wanted meanwhile")
    func failedReset() {
        var catchUp = CatchUp()
        catchUp.wantReset()
        #expect(Self.word(catchUp.begin()) == "reset")
        catchUp.wantChanges()
        catchUp.failed(nil)
        #expect(Self.drain(&catchUp) == ["reset", "changes"])
    }

    @Test("reads changes again after a read that may have missed them, not after one that may bring them")
    func duringRead() {
        for (isMissed, reads) in [(false, []), (true, ["changes"])] as [(Bool, [String])] {
            var catchUp = CatchUp()
            catchUp.wantMissing()
            #expect(Self.word(catchUp.begin()) == "changes")
            if isMissed { catchUp.wantChanges() } else { catchUp.wantMissing() }
            catchUp.ended(isReset: false)
            #expect(Self.drain(&catchUp) == reads)
        }
    }

    @Test("drops a wanted reset once another read is answered with one")
    func answered() {
        var catchUp = CatchUp()
        catchUp.wantChanges()
        #expect(Self.word(catchUp.begin()) == "changes")
        catchUp.wantReset()
        catchUp.ended(isReset: true)
        #expect(Self.drain(&catchUp) == [])
    }

    @Test("drops refused reads, except changes")
    func refusals() {
        var catchUp = Self.wanting()
        for word in ["reset", "1", "2", "changes", "changes"] {
            guard let read = catchUp.begin() else {
                Issue.record("nothing is wanted, not \(word)")
                return
            }
            #expect(Self.word(read) == word)
            catchUp.refused(read)
        }
        #expect(Self.drain(&catchUp) == ["changes"])
    }

    @Test("lets at most 16 resumptions wait")
    func bound() {
        var catchUp = CatchUp()
        for version in Int64(0)..<16 { #expect(catchUp.want(Self.resumption(version)) == true) }
        #expect(catchUp.want(Self.resumption(16)) == false)
        #expect(catchUp.begin() != nil)
        #expect(catchUp.want(Self.resumption(17)) == true)
    }
}

@Suite("A client that reads its inbox over REST", .timeLimit(.minutes(10)))
struct MissingChangeTests {
    private static func awaited(_ session: SocketSession) -> [UInt64] {
        session.proofs.confirm(session.proofs.nextSequence(through: nil)).map(\.id.low)
    }

    @Test("gets what awaits proof and then what is new, oldest first, and proves nothing else")
    func proofs() throws {
        let harness = try HubHarness()
        let (session, wire) = harness.open("a", .signalr)
        let items = [HubHarness.item(8), HubHarness.item(7, awaitsProof: true)]
        session.opened(InboxSnapshot(version: 8, unread: 2, total: 2, items: items))
        #expect(wire.rows == [7])
        #expect(Self.awaited(session) == [7])
        var reset = InboxSnapshot(version: 10, unread: 4, total: 4)
        reset.isReset = true
        reset.items = [10, 9, 8, 7].map { HubHarness.item($0, awaitsProof: true) }
        session.caughtUp(reset, answering: nil)
        #expect(wire.rows == [7, 9, 10])
        #expect(Self.awaited(session) == [9, 10])
        // An inbox that was reset starts its versions again.
        reset.version = 3
        reset.items = [3, 2].map { HubHarness.item($0, awaitsProof: true) }
        session.caughtUp(reset, answering: nil)
        #expect(wire.rows == [7, 9, 10, 2, 3])
        #expect(Self.awaited(session) == [2, 3])
    }

    @Test("gets all that it missed when it returns")
    func returns() throws {
        let harness = try HubHarness()
        let (session, wire) = harness.open("a", .signalr)
        var snapshot = InboxSnapshot(version: 9, unread: 2, total: 2, items: [7, 8].map { HubHarness.item($0) })
        snapshot.deleted = [InboxSnapshot.Deletion(id: HubHarness.item(9).id, version: 9)]
        snapshot.isReturn = true
        session.opened(snapshot)
        #expect(wire.rows == [7, 8, 9])
    }
}

@Suite("Changes that a socket holds", .timeLimit(.minutes(10)))
struct HeldChangeTests {
    @Test("are sent once each and in order, in whatever order they came", arguments: 0..<20)
    func anyOrder(seed: Int) throws {
        let harness = try HubHarness()
        let (session, wire) = harness.open("a", .native)
        session.opened(InboxSnapshot(version: 0, unread: 0, total: 0))
        let order = (Int64(1)...7).sorted { ($0 * 31 + Int64(seed)) * 17 % 13 < ($1 * 31 + Int64(seed)) * 17 % 13 }
        for version in order + order { harness.deliver([HubHarness.notification("a", version)]) }
        #expect(wire.versions == Array(1...7))
        #expect(!session.isHolding)
    }

    @Test("keeps no socket that ends while it is written to and holds changes")
    func endsWhileHolding() throws {
        let harness = try HubHarness()
        weak var ended: SocketSession?
        do {
            let (session, wire) = harness.open("a", .native)
            ended = session
            session.opened(InboxSnapshot(version: 4, unread: 0, total: 0))
            harness.deliver([HubHarness.notification("a", 6)])
            #expect(session.isHolding)
            wire.onChange = { [weak session] in session?.end() }
            harness.deliver([HubHarness.notification("a", 0)])
            #expect(wire.versions == [0] && !session.isHolding)
        }
        // The shard's next look at the catch-ups.
        harness.eventLoop.advanceTime(by: .milliseconds(50))
        #expect(ended == nil)
    }
}
