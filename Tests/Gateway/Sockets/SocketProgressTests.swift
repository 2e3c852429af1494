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

@Suite("Proofs by polls", .timeLimit(.minutes(10)))
struct PolledProofsTests {
    @Test("gives the last proof that the client's messages cover, once")
    func settles() {
        var proofs = PolledProofs()
        #expect(proofs.settle(9) == nil && proofs.last == nil)
        proofs.await(1, after: 2)
        proofs.await(2, after: 2)
        proofs.await(3, after: 5)
        proofs.await(4, after: 8)
        #expect(proofs.settle(1) == nil)
        #expect(proofs.settle(5) == 3)
        #expect(proofs.settle(5) == nil)
        #expect(proofs.last == 4)
        #expect(proofs.settle(9) == 4)
        #expect(proofs.last == nil)
    }

    @Test("awaits nothing once all are removed")
    func removes() {
        var proofs = PolledProofs()
        proofs.await(1, after: 0)
        proofs.removeAll()
        #expect(proofs.settle(9) == nil && proofs.last == nil)
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
        // The shard's next look at the gaps.
        harness.eventLoop.advanceTime(by: .milliseconds(50))
        #expect(ended == nil)
    }
}
