// Carillon · WebSocketHandlerTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOEmbedded
import Protocols
import Testing

@testable import Sockets

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

    @Test("reports the number of an answered ping and counts other pongs as pings")
    func answers() throws {
        try self.pong(1)
        #expect(self.listener.pongs.isEmpty && self.listener.pings == 1)
        self.ping(7)
        self.ping(9)
        for number in [6, 7, 7, 10, 9, 9] as [UInt8] { try self.pong(number) }
        try self.pong([])
        try self.pong([9])
        #expect(self.listener.pongs == [7, 9])
        #expect(self.listener.pings == 7)
        // The newest answer settles the earlier pings, which cannot be answered again.
        self.ping(10)
        self.ping(11)
        for number in [11, 10] as [UInt8] { try self.pong(number) }
        #expect(self.listener.pongs == [7, 9, 11])
        #expect(self.listener.pings == 8)
    }

    @Test("accepts numbers that restart, as every session of a connection does")
    func restart() throws {
        self.ping(5)
        self.ping(1)
        self.ping(2)
        for number in [1, 2] as [UInt8] { try self.pong(number) }
        #expect(self.listener.pongs == [1, 2])
        self.ping(1)
        try self.pong(1)
        #expect(self.listener.pongs == [1, 2, 1])
        #expect(self.listener.pings == 0)
    }

    @Test("takes answers to its pings after its own close frame, and ignores other pongs")
    func closing() throws {
        self.ping(1)
        self.handler.close(.serviceRestart, reason: "restart")
        self.handler.flush()
        for number in [2, 1, 1] as [UInt8] { try self.pong(number) }
        #expect(self.listener.pongs == [1])
        #expect(self.listener.pings == 0)
        #expect(self.listener.closed == 0)
        // A masked close frame without a code.
        try self.channel.writeInbound(ByteBuffer(bytes: [0x88, 0x80, 0, 0, 0, 0]))
        self.channel.embeddedEventLoop.run()
        #expect(self.listener.closed == 1)
    }
}

/// Peers that vanished without a close.
@Suite("Half-open sockets", .timeLimit(.minutes(10)))
struct HalfOpenTests {
    private static let interval = Duration.seconds(25)
    private static let timeout = Duration.seconds(20)

    @Test("pings a silent peer after the interval and drops it after the timeout unless it answers")
    func pings() throws {
        let listener = Listener()
        let handler = WebSocketHandler(application: listener, limits: WebSocketLimits(maximumMessage: 1_024))
        let channel = EmbeddedChannel(handler: handler)
        try channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 1)).wait()
        let start = NIODeadline.now()
        func isPingDue(after seconds: Int64) -> Bool {
            handler.isPingDue(now: start + .seconds(seconds), interval: Self.interval, timeout: Self.timeout)
        }
        #expect(!isPingDue(after: 20))
        #expect(isPingDue(after: 30))
        // One ping is enough until it is answered.
        #expect(!isPingDue(after: 31))
        #expect(!isPingDue(after: 49))
        // A masked pong without a payload.
        try channel.writeInbound(ByteBuffer(bytes: [0x8A, 0x80, 0, 0, 0, 0]))
        #expect(isPingDue(after: 60))
        #expect(channel.isActive && listener.closed == 0)
        #expect(!isPingDue(after: 81))
        channel.embeddedEventLoop.run()
        #expect(!channel.isActive && listener.closed == 1)
    }

    @Test("drops a peer that does not answer a close frame within 5 s")
    func closes() throws {
        let listener = Listener()
        let handler = WebSocketHandler(application: listener, limits: WebSocketLimits(maximumMessage: 1_024))
        let channel = EmbeddedChannel(handler: handler)
        try channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 1)).wait()
        handler.close(.serviceRestart, reason: "restart")
        handler.flush()
        channel.embeddedEventLoop.advanceTime(by: .seconds(4))
        #expect(channel.isActive && listener.closed == 0)
        channel.embeddedEventLoop.advanceTime(by: .seconds(2))
        #expect(!channel.isActive && listener.closed == 1)
    }

    @Test("drops a peer that breaks the framing and keeps its half open")
    func violations() throws {
        let listener = Listener()
        let handler = WebSocketHandler(application: listener, limits: WebSocketLimits(maximumMessage: 1_024))
        // The peer never closes its half, so closing the output closes nothing.
        let channel = EmbeddedChannel(handlers: [OutputEnd(), handler])
        try channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 1)).wait()
        // A frame without a mask.
        try channel.writeInbound(ByteBuffer(bytes: [0x81, 0x01, 0x61]))
        let frame = try #require(try channel.readOutbound(as: ByteBuffer.self))
        #expect(Array(frame.readableBytesView.prefix(4).suffix(2)) == [0x03, 0xEA])
        channel.embeddedEventLoop.advanceTime(by: .seconds(4))
        #expect(channel.isActive && listener.closed == 0)
        channel.embeddedEventLoop.advanceTime(by: .seconds(2))
        #expect(!channel.isActive && listener.closed == 1)
    }
}

/// Messages that begin and do not end.
@Suite("Late messages", .timeLimit(.minutes(10)))
struct LateMessageTests {
    /// A text of ten bytes, masked with zeros.
    private static let text: [UInt8] = [0x81, 0x8A, 0, 0, 0, 0] + [UInt8](repeating: 0x78, count: 10)

    private let listener = Listener()
    private let handler: WebSocketHandler
    private let channel: EmbeddedChannel

    init() throws {
        self.handler = WebSocketHandler(application: self.listener, limits: WebSocketLimits(maximumMessage: 1_024))
        self.channel = EmbeddedChannel(handler: self.handler)
        try self.channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 1)).wait()
    }

    private func send(_ bytes: [UInt8], thenWait seconds: Int64) throws {
        try self.channel.writeInbound(ByteBuffer(bytes: bytes))
        self.channel.embeddedEventLoop.advanceTime(by: .seconds(seconds))
    }

    @Test("closes a peer whose message does not end within 20 s, however it trickles", arguments: [false, true])
    func trickle(isFragment: Bool) throws {
        let fragment: [UInt8] = [0x01, 0x81, 0, 0, 0, 0, 0x78]
        let ping: [UInt8] = [0x89, 0x80, 0, 0, 0, 0]
        if isFragment { try self.send(fragment, thenWait: 0) }
        for byte in Self.text.dropLast() { try self.send(isFragment ? ping : [byte], thenWait: 1) }
        self.channel.embeddedEventLoop.advanceTime(by: .seconds(4))
        #expect(self.channel.isActive)
        self.channel.embeddedEventLoop.advanceTime(by: .seconds(2))
        #expect(!self.channel.isActive && self.listener.closed == 1)
        var last: ByteBuffer?
        while let frame = try self.channel.readOutbound(as: ByteBuffer.self) { last = frame }
        // A close frame with 1008.
        #expect(last.map { Array($0.readableBytesView.dropFirst(2).prefix(2)) } == [0x03, 0xF0])
    }

    @Test("gives each message its own time, and none to a peer between messages")
    func inTime() throws {
        let (begun, rest) = (Array(Self.text.prefix(9)), Array(Self.text.dropFirst(9)))
        try self.send(begun, thenWait: 15)
        try self.send(rest + begun, thenWait: 15)
        try self.send(rest + begun, thenWait: 15)
        try self.send(rest, thenWait: 100)
        #expect(self.channel.isActive && self.listener.texts.count == 3)
    }

    @Test("does not count the time in which reading is paused")
    func paused() throws {
        try self.send(Array(Self.text.prefix(9)), thenWait: 15)
        self.handler.setReading(false)
        self.channel.embeddedEventLoop.advanceTime(by: .seconds(100))
        self.handler.setReading(true)
        self.channel.embeddedEventLoop.advanceTime(by: .seconds(19))
        #expect(self.channel.isActive)
        self.channel.embeddedEventLoop.advanceTime(by: .seconds(2))
        #expect(!self.channel.isActive)
    }
}

/// Ignores the close of the output, because an embedded channel would close altogether.
private final class OutputEnd: ChannelOutboundHandler {
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        guard mode == .output else { return context.close(mode: mode, promise: promise) }
        promise?.succeed()
    }
}

/// An application that records its events.
final class Listener: WebSocketApplication {
    private(set) var opened = 0
    private(set) var closed = 0
    private(set) var texts: [String] = []
    private(set) var pings = 0
    private(set) var pongs: [UInt64] = []
    private(set) var isTooSlow = false
    private(set) var socket: WebSocketHandler?

    func webSocketOpened(_ socket: WebSocketHandler) {
        self.opened += 1
        self.socket = socket
    }
    func webSocketReceived(text: String) { self.texts.append(text) }
    func webSocketReceived(binary: [UInt8]) {}
    func webSocketReceivedPing() -> Bool {
        self.pings += 1
        return true
    }
    func webSocketProven(_ sequence: UInt64) { self.pongs.append(sequence) }
    func webSocketIsTooSlow() { self.isTooSlow = true }
    func webSocketReadComplete() {}
    func webSocketClosed() {
        self.closed += 1
        self.socket = nil
    }
}
