// Carillon · ProofLedgerTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import Protocols
import Support
import Testing

@testable import Sockets

@Suite("Proof by ping and pong", .timeLimit(.minutes(10)))
struct ProofLedgerTests {
    private static func id(_ number: UInt64) -> NotificationID { NotificationID(high: 0, low: number) }

    private static func numbers(_ awaited: [ProofLedger.Awaited]) -> [UInt64] { awaited.map(\.id.low) }

    @Test("proves what came before the ping, and nothing after")
    func pongs() {
        var ledger = ProofLedger()
        _ = ledger.await(Self.id(1), lane: .critical)
        _ = ledger.await(Self.id(2), lane: nil)
        #expect(ledger.nextSequence(through: nil) == 1)
        _ = ledger.await(Self.id(3), lane: .bulk)
        #expect(ledger.nextSequence(through: nil) == 2)
        let proven = ledger.confirm(1)
        #expect(Self.numbers(proven) == [1, 2])
        #expect(proven.map(\.lane) == [.critical, nil])
        #expect(ledger.confirm(1).isEmpty)
        #expect(Self.numbers(ledger.confirm(2)) == [3])
        #expect(ledger.confirm(2).isEmpty)
    }

    @Test("wants one ping for all that waits")
    func wanted() {
        var ledger = ProofLedger()
        #expect(!ledger.isWanted)
        for number: UInt64 in 1...2 { _ = ledger.await(Self.id(number), lane: .normal) }
        #expect(ledger.isWanted)
        _ = ledger.nextSequence(through: nil)
        #expect(!ledger.isWanted)
        ledger.want()
        #expect(ledger.isWanted)
    }

    @Test("proves all earlier pings")
    func laterPong() {
        var ledger = ProofLedger()
        for number: UInt64 in 1...5 {
            _ = ledger.await(Self.id(number), lane: .normal)
            _ = ledger.nextSequence(through: nil)
        }
        #expect(Self.numbers(ledger.confirm(4)) == [1, 2, 3, 4])
        #expect(Self.numbers(ledger.confirm(5)) == [5])
    }

    @Test("ignores a number that was never sent", arguments: [2, 3, .max] as [UInt64])
    func forged(sequence: UInt64) {
        var ledger = ProofLedger()
        ledger.begin(at: 4)
        _ = ledger.await(Self.id(1), lane: .normal)
        _ = ledger.nextSequence(through: 5)
        _ = ledger.await(Self.id(2), lane: .normal)
        #expect(ledger.confirm(sequence).isEmpty)
        #expect(ledger.confirm(0).isEmpty)
        #expect(ledger.seen == 4)
        #expect(Self.numbers(ledger.confirm(1)) == [1])
        #expect(ledger.seen == 5)
    }

    @Test("accepts an acknowledgement by id once, and only of what was sent")
    func acknowledges() {
        var ledger = ProofLedger()
        for number: UInt64 in 1...3 { _ = ledger.await(Self.id(number), lane: .normal) }
        _ = ledger.nextSequence(through: nil)
        #expect(Self.numbers(ledger.acknowledge([Self.id(2), Self.id(9)])) == [2])
        #expect(ledger.acknowledge([Self.id(2)]).isEmpty)
        #expect(Self.numbers(ledger.confirm(1)) == [1, 3])
    }

    @Test("leaves more than 4,096 notifications to their deadline")
    func bounded() {
        var ledger = ProofLedger()
        for number: UInt64 in 1...5_000 { _ = ledger.await(Self.id(number), lane: .normal) }
        #expect(ledger.confirm(ledger.nextSequence(through: nil)).count == 4_096)
        _ = ledger.await(Self.id(1), lane: .normal)
        #expect(ledger.confirm(ledger.nextSequence(through: nil)).count == 1)
    }
}

@Suite("Proof over Socket.IO", .timeLimit(.minutes(10)))
struct SocketIOProofTests {
    /// A connection without a transport, for which the test answers.
    private struct Client {
        private let running: RunningHub
        private let bound: NIOLoopBound<SocketIOConnection>

        static func opened(_ running: RunningHub) async throws -> Client {
            let (hub, eventLoop) = (running.hub, running.eventLoop)
            let bound = try await eventLoop.submit {
                guard let shard = hub.shard(on: eventLoop) else { throw ChannelError.operationUnsupported }
                let wire = SocketIOWire(shard: shard, handshakeToken: nil, idle: Budget(limit: 1))
                let connection = SocketIOConnection(wire, configuration: SocketIOConfiguration())
                wire.socketIOOpened(connection)
                return NIOLoopBound(connection, eventLoop: eventLoop)
            }.get()
            return Client(running: running, bound: bound)
        }

        func on(_ body: @escaping @Sendable (SocketIOConnection) -> Void) async throws {
            let bound = self.bound
            try await bound.eventLoop.submit { body(bound.value) }.get()
        }

        /// Joins, and gets a notification that awaits proof.
        func joinAndReceive() async throws {
            try await self.on { $0.engineIOReceived(.text(Array(#"0{"token":"ada"}"#.utf8))) }
            try await eventually("it has joined") { try await self.lastVersion() == ScriptedBackend.version }
            self.running.hub.deliver([HubHarness.notification("ada", 5)])
            try await eventually("it has the notification") { try await self.lastVersion() == 5 }
        }

        /// The version of the user's session; nil if there is none.
        private func lastVersion() async throws -> Int64? {
            let (hub, eventLoop) = (self.running.hub, self.running.eventLoop)
            let session = try await eventLoop.submit {
                hub.shard(on: eventLoop)?.openSockets(of: "ada").first?.reference
            }.get()
            return try await session?.ask { $0.lastVersion }.get() ?? nil
        }
    }

    @Test("a late pong for a session that has ended proves nothing of the next one on its connection")
    func sessions() async throws {
        let recorded = Notes<UInt64>()
        var backend = ScriptedBackend()
        backend.onConfirm = { proofs in recorded.note(proofs.map(\.id.low)) }
        try await RunningHub.with(backend) { running in
            let client = try await Client.opened(running)
            try await withCleanUp {
                try await client.on { $0.engineIOClosed(.forcedClose) }
            } _: {
                try await client.joinAndReceive()
                try await client.on { $0.engineIOReceived(.text(Array("1".utf8))) }
                try await client.joinAndReceive()
                try await client.on { $0.engineIOProven(1) }
                try await client.on { _ in }
                // The queue keeps the order, so a proof that came before would be recorded before.
                let now = Timestamp(seconds: 1_795_000_000)
                let id = NotificationID(high: 1, low: 9)
                running.hub.enqueueProofs([ReceiptProof(user: "ben", id: id, awaitingLane: nil, at: now)])
                try await eventually("the other's proof is recorded") { recorded.all.contains(9) }
                #expect(recorded.all == [9])
                try await client.on { $0.engineIOProven(2) }
                try await eventually("its own pong proves it") { recorded.all == [9, 5] }
            }
        }
    }
}

@Suite("The version that a client has seen", .timeLimit(.minutes(10)))
struct ProvenVersionTests {
    @Test("moves to the version of each proof, and never back")
    func proofs() {
        var ledger = ProofLedger()
        #expect(ledger.seen == nil)
        ledger.begin(at: 4)
        for version: Int64 in [7, 5, 9] { _ = ledger.nextSequence(through: version) }
        #expect(ledger.seen == 4)
        _ = ledger.confirm(2)
        #expect(ledger.seen == 7)
        _ = ledger.confirm(1)
        #expect(ledger.seen == 7)
        _ = ledger.confirm(3)
        #expect(ledger.seen == 9)
    }

    @Test("keeps 32 pending proofs, of which the newest replaces the one before it")
    func bounded() {
        var ledger = ProofLedger()
        ledger.begin(at: 0)
        for version in Int64(1)...40 { _ = ledger.nextSequence(through: version) }
        _ = ledger.confirm(31)
        #expect(ledger.seen == 31)
        _ = ledger.confirm(39)
        #expect(ledger.seen == 31)
        _ = ledger.confirm(40)
        #expect(ledger.seen == 40)
    }
}
