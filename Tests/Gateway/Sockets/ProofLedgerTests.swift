// Carillon · ProofLedgerTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Sockets

@Suite("Proof by ping and pong", .timeLimit(.minutes(10)))
struct ProofLedgerTests {
    private static func id(_ number: UInt64) -> NotificationID { NotificationID(high: 0, low: number) }

    private static func numbers(_ awaited: [ProofLedger.Awaited]) -> [UInt64] { awaited.map(\.id.low) }

    @Test("A pong proves what came before its ping, and nothing after")
    func pongs() {
        var ledger = ProofLedger()
        #expect(ledger.isEmpty)
        _ = ledger.await(Self.id(1), lane: .critical)
        _ = ledger.await(Self.id(2), lane: nil)
        #expect(ledger.nextSequence() == 1)
        _ = ledger.await(Self.id(3), lane: .bulk)
        #expect(ledger.nextSequence() == 2)
        let proven = ledger.confirm(1)
        #expect(Self.numbers(proven) == [1, 2])
        #expect(proven.map(\.lane) == [.critical, nil])
        #expect(ledger.confirm(1).isEmpty)
        #expect(!ledger.isEmpty)
        #expect(Self.numbers(ledger.confirm(2)) == [3])
        #expect(ledger.isEmpty)
    }

    @Test("A pong proves all earlier pings too")
    func laterPong() {
        var ledger = ProofLedger()
        for number: UInt64 in 1...5 {
            _ = ledger.await(Self.id(number), lane: .normal)
            _ = ledger.nextSequence()
        }
        #expect(Self.numbers(ledger.confirm(4)) == [1, 2, 3, 4])
        #expect(Self.numbers(ledger.confirm(5)) == [5])
    }

    @Test("A number that was never sent proves nothing", arguments: [2, 3, .max] as [UInt64])
    func forged(sequence: UInt64) {
        var ledger = ProofLedger()
        _ = ledger.await(Self.id(1), lane: .normal)
        _ = ledger.nextSequence()
        _ = ledger.await(Self.id(2), lane: .normal)
        #expect(ledger.confirm(sequence).isEmpty)
        #expect(ledger.confirm(0).isEmpty)
        #expect(Self.numbers(ledger.confirm(1)) == [1])
    }

    @Test("A client may acknowledge by name, once, and only what it was sent")
    func acknowledges() {
        var ledger = ProofLedger()
        for number: UInt64 in 1...3 { _ = ledger.await(Self.id(number), lane: .normal) }
        _ = ledger.nextSequence()
        #expect(Self.numbers(ledger.acknowledge([Self.id(2), Self.id(9)])) == [2])
        #expect(ledger.acknowledge([Self.id(2)]).isEmpty)
        #expect(Self.numbers(ledger.confirm(1)) == [1, 3])
    }

    @Test("It is bounded: more than 4,096 are left to their deadline")
    func bounded() {
        var ledger = ProofLedger()
        for number: UInt64 in 1...5_000 { _ = ledger.await(Self.id(number), lane: .normal) }
        #expect(ledger.confirm(ledger.nextSequence()).count == 4_096)
        _ = ledger.await(Self.id(1), lane: .normal)
        #expect(ledger.confirm(ledger.nextSequence()).count == 1)
    }
}
