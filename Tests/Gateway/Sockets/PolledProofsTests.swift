// Carillon · PolledProofsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Sockets

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
