// Carillon · SocketProgressTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import NIOEmbedded
import Testing

@testable import Sockets

@Suite("Order of one socket's inbox", .timeLimit(.minutes(10)))
struct InboxSequenceTests {
    private static func sequence(at version: Int64) -> InboxSequence {
        var sequence = InboxSequence()
        sequence.reset(to: version)
        return sequence
    }

    @Test("holds everything before the first sync")
    func beforeSync() {
        var sequence = InboxSequence()
        #expect(sequence.judge(previous: 0, version: 1) == .hold)
        #expect(sequence.last == nil)
        sequence.advance(to: 0)
        #expect(sequence.judge(previous: 0, version: 1) == .send)
    }

    @Test("sends the next change, drops duplicates and holds early ones")
    func judges() {
        let table: [(previous: Int64, version: Int64, verdict: InboxSequence.Verdict, last: Int64)] = [
            (10, 11, .send, 11), (10, 14, .send, 14), (9, 10, .known, 10), (8, 9, .known, 10), (0, 1, .known, 10),
            (9, 11, .send, 11), (11, 12, .hold, 10), (12, 13, .hold, 10),
        ]
        for row in table {
            var sequence = Self.sequence(at: 10)
            #expect(sequence.judge(previous: row.previous, version: row.version) == row.verdict, "\(row)")
            #expect(sequence.last == row.last, "\(row)")
        }
    }

    @Test("sends changes that came in any order once each and in order", arguments: 0..<20)
    func anyOrder(seed: Int) {
        var sequence = Self.sequence(at: 0)
        var held: [Int64] = []
        var sent: [Int64] = []
        let order = (Int64(1)...7).sorted { ($0 * 31 + Int64(seed)) * 17 % 13 < ($1 * 31 + Int64(seed)) * 17 % 13 }
        for version in order + order {
            held.append(version)
            // One round per held change: each round sends at least one, or none ever will.
            for _ in held {
                for candidate in held where sequence.judge(previous: candidate - 1, version: candidate) == .send {
                    sent.append(candidate)
                }
            }
        }
        #expect(sent == Array(1...7))
    }

    @Test("moves only forward on a sync; a reset may move back")
    func advances() {
        var sequence = Self.sequence(at: 10)
        sequence.advance(to: 8)
        #expect(sequence.last == 10)
        sequence.advance(to: 12)
        #expect(sequence.last == 12)
        #expect(sequence.judge(previous: 11, version: 12) == .known)
        sequence.reset(to: 3)
        #expect(sequence.judge(previous: 3, version: 4) == .send)
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
        #expect(catchUp.isReading)
        #expect(catchUp.begin() == nil)
        catchUp.ended(isReset: true)
        #expect(!catchUp.isReading)
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

@Suite("Proof by ping and pong", .timeLimit(.minutes(10)))
struct ProofLedgerTests {
    private static func id(_ number: UInt64) -> NotificationID { NotificationID(high: 0, low: number) }

    private static func numbers(_ awaited: [ProofLedger.Awaited]) -> [UInt64] { awaited.map(\.id.low) }

    @Test("proves what came before the ping, and nothing after")
    func pongs() {
        var ledger = ProofLedger()
        _ = ledger.await(Self.id(1), lane: .critical)
        _ = ledger.await(Self.id(2), lane: nil)
        #expect(ledger.nextSequence() == 1)
        _ = ledger.await(Self.id(3), lane: .bulk)
        #expect(ledger.nextSequence() == 2)
        let proven = ledger.confirm(1)
        #expect(Self.numbers(proven) == [1, 2])
        #expect(proven.map(\.lane) == [.critical, nil])
        #expect(ledger.confirm(1).isEmpty)
        #expect(Self.numbers(ledger.confirm(2)) == [3])
        #expect(ledger.confirm(2).isEmpty)
    }

    @Test("proves all earlier pings")
    func laterPong() {
        var ledger = ProofLedger()
        for number: UInt64 in 1...5 {
            _ = ledger.await(Self.id(number), lane: .normal)
            _ = ledger.nextSequence()
        }
        #expect(Self.numbers(ledger.confirm(4)) == [1, 2, 3, 4])
        #expect(Self.numbers(ledger.confirm(5)) == [5])
    }

    @Test("ignores a number that was never sent", arguments: [2, 3, .max] as [UInt64])
    func forged(sequence: UInt64) {
        var ledger = ProofLedger()
        _ = ledger.await(Self.id(1), lane: .normal)
        _ = ledger.nextSequence()
        _ = ledger.await(Self.id(2), lane: .normal)
        #expect(ledger.confirm(sequence).isEmpty)
        #expect(ledger.confirm(0).isEmpty)
        #expect(Self.numbers(ledger.confirm(1)) == [1])
    }

    @Test("accepts an acknowledgement by id once, and only of what was sent")
    func acknowledges() {
        var ledger = ProofLedger()
        for number: UInt64 in 1...3 { _ = ledger.await(Self.id(number), lane: .normal) }
        _ = ledger.nextSequence()
        #expect(Self.numbers(ledger.acknowledge([Self.id(2), Self.id(9)])) == [2])
        #expect(ledger.acknowledge([Self.id(2)]).isEmpty)
        #expect(Self.numbers(ledger.confirm(1)) == [1, 3])
    }

    @Test("leaves more than 4,096 notifications to their deadline")
    func bounded() {
        var ledger = ProofLedger()
        for number: UInt64 in 1...5_000 { _ = ledger.await(Self.id(number), lane: .normal) }
        #expect(ledger.confirm(ledger.nextSequence()).count == 4_096)
        _ = ledger.await(Self.id(1), lane: .normal)
        #expect(ledger.confirm(ledger.nextSequence()).count == 1)
    }
}

@Suite("The version that a client has seen", .timeLimit(.minutes(10)))
struct SeenVersionTests {
    @Test("moves to the version of each proof, and never back")
    func proofs() {
        var seen = SeenVersion()
        #expect(seen.version == nil)
        seen.begin(at: 4)
        seen.requested(1, through: 7)
        seen.requested(2, through: 5)
        seen.requested(3, through: 9)
        #expect(seen.version == 4)
        seen.proven(2)
        #expect(seen.version == 7)
        seen.proven(1)
        #expect(seen.version == 7)
        seen.proven(3)
        #expect(seen.version == 9)
    }

    @Test("keeps 32 pending proofs, of which the newest replaces the one before it")
    func bounded() {
        var seen = SeenVersion()
        seen.begin(at: 0)
        for number in UInt64(1)...40 { seen.requested(number, through: Int64(number)) }
        seen.proven(31)
        #expect(seen.version == 31)
        seen.proven(39)
        #expect(seen.version == 31)
        seen.proven(40)
        #expect(seen.version == 40)
    }
}

@Suite("A client that reads its inbox over REST", .timeLimit(.minutes(10)))
struct MissingChangeTests {
    private static func awaited(_ session: SocketSession) -> [UInt64] {
        session.proofs.confirm(session.proofs.nextSequence()).map(\.id.low)
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
