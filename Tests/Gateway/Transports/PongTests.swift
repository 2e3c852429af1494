// Carillon · PongTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOEmbedded
import Protocols
import Sockets
import Testing

@Suite("Pongs", .timeLimit(.minutes(10)))
struct PongTests {
    private let listener = Listener()
    private let handler: WebSocketHandler
    private let channel: EmbeddedChannel

    init() throws {
        self.handler = WebSocketHandler(application: self.listener, limits: WebSocketLimits(maximumMessage: 1_024))
        self.channel = EmbeddedChannel(handler: self.handler)
        try self.channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 1)).wait()
    }

    private func ping(_ sequence: UInt64) {
        self.handler.requestProof(sequence)
        self.handler.flush()
    }

    /// The peer sends a pong, masked with zeros.
    private func pong(_ payload: [UInt8]) throws {
        try self.channel.writeInbound(ByteBuffer(bytes: [0x8A, 0x80 | UInt8(payload.count), 0, 0, 0, 0] + payload))
    }

    private func pong(_ number: UInt8) throws { try self.pong([0, 0, 0, 0, 0, 0, 0, number]) }

    @Test("a pong that answers a ping tells its number; all others count as pings do")
    func answers() throws {
        try self.pong(1)
        #expect(self.listener.pongs.isEmpty && self.listener.pings == 1)
        self.ping(7)
        self.ping(9)
        for number in [6, 7, 7, 10, 9, 9] as [UInt8] { try self.pong(number) }
        try self.pong([])
        try self.pong([9])
        #expect(self.listener.pongs.map(\.last) == [7, 9])
        #expect(self.listener.pings == 7)
        // The newest answers those before it, which are not answered once more.
        self.ping(10)
        self.ping(11)
        for number in [11, 10] as [UInt8] { try self.pong(number) }
        #expect(self.listener.pongs.map(\.last) == [7, 9, 11])
        #expect(self.listener.pings == 8)
    }

    @Test("numbers may begin anew, as they do with every session on a connection")
    func restart() throws {
        self.ping(5)
        self.ping(1)
        self.ping(2)
        for number in [1, 2] as [UInt8] { try self.pong(number) }
        #expect(self.listener.pongs.map(\.last) == [1, 2])
        self.ping(1)
        try self.pong(1)
        #expect(self.listener.pongs.map(\.last) == [1, 2, 1])
        #expect(self.listener.pings == 0)
    }
}
