// Carillon · Door.swift
// SPDX-License-Identifier: Apache-2.0

import HTTPTypes
import HummingbirdCore
import Logging
import NIOCore
import NIOEmbedded
import NIOHTTP1
import Sockets
import Synchronization

/// An endpoint that answers with the length of the body.
struct LengthEndpoint: TransportEndpoint {
    let maximumBody = 1_000

    func claims(_ path: Substring) -> Bool { path == "/length" }

    func admit(_ head: HTTPRequestHead, from address: SocketAddress?) async throws -> WebSocketAdmission {
        throw self.refusal(.badRequest, reason: "no sockets here")
    }

    func handle(_ exchange: HTTPExchange) {
        exchange.respond(.ok, body: ByteBuffer(string: "\(exchange.body.readableBytes)"))
    }
}

/// An endpoint that refuses in plain words.
struct PlainEndpoint: TransportEndpoint {
    func claims(_ path: Substring) -> Bool { path == "/plain" }

    func admit(_ head: HTTPRequestHead, from address: SocketAddress?) async throws -> WebSocketAdmission {
        throw self.refusal(.badRequest, reason: "no sockets here")
    }

    func refusal(_ status: HTTPResponseStatus, reason: String) -> TransportRefusal {
        TransportRefusal(status, headers: ["content-type": "text/plain"], body: Array(reason.utf8))
    }
}

/// An endpoint that answers when a test says so, with the length of the body.
struct ParkEndpoint: TransportEndpoint {
    /// The exchanges that wait.
    final class Lot: Sendable {
        private let exchanges = Mutex<[NIOLoopBound<HTTPExchange>]>([])
        private let aborts = Atomic(0)

        var count: Int { self.exchanges.withLock { $0.count } }
        /// How many clients left before their answer.
        var aborted: Int { self.aborts.load(ordering: .relaxed) }

        fileprivate func add(_ exchange: HTTPExchange) {
            exchange.onAbort = { self.aborts.add(1, ordering: .relaxed) }
            let bound = NIOLoopBound(exchange, eventLoop: exchange.eventLoop)
            self.exchanges.withLock { $0.append(bound) }
        }

        /// Answers the oldest; called on its event loop.
        func release() {
            let exchange = self.exchanges.withLock { $0.isEmpty ? nil : $0.removeFirst() }?.value
            exchange?.respond(.ok, body: ByteBuffer(string: "parked \(exchange?.body.readableBytes ?? 0)"))
        }
    }

    let lot: Lot
    let maximumBody = 64 * 1024

    func claims(_ path: Substring) -> Bool { path == "/park" }

    func admit(_ head: HTTPRequestHead, from address: SocketAddress?) async throws -> WebSocketAdmission {
        throw self.refusal(.badRequest, reason: "no sockets here")
    }

    func handle(_ exchange: HTTPExchange) { self.lot.add(exchange) }
}

/// A connection to a door, without a network.
final class Door {
    /// Counts the reads that reach the network.
    private final class ReadCounter: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer

        private(set) var count = 0

        func read(context: ChannelHandlerContext) {
            self.count += 1
            context.read()
        }
    }

    let channel = EmbeddedChannel()
    let lot = ParkEndpoint.Lot()
    private let counter = ReadCounter()

    init(timeouts: DoorTimeouts = DoorTimeouts(), policy: DoorPolicy = DoorPolicy()) throws {
        let door = DoorChannel(
            responder: { _, _, _ in },
            endpoints: [LengthEndpoint(), PlainEndpoint(), ParkEndpoint(lot: self.lot)],
            timeouts: timeouts,
            policy: policy,
            http: HTTP1Channel.Configuration()
        )
        try self.channel.pipeline.syncOperations.addHandler(self.counter)
        _ = try door.setup(channel: self.channel, logger: Logger(label: "test")).map { _ in }.wait()
        try self.channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 1)).wait()
    }

    /// Asks for more, as the channel does after all that it has read; false if nothing is read.
    func reads() -> Bool {
        let before = self.counter.count
        self.channel.read()
        return self.counter.count > before
    }

    /// How often the network was read.
    var readCount: Int { self.counter.count }

    func send(_ text: String) throws {
        try self.channel.writeInbound(ByteBuffer(string: text))
    }

    /// All that was answered so far.
    func answers() throws -> String {
        self.channel.embeddedEventLoop.run()
        var text = ""
        while let buffer = try self.channel.readOutbound(as: ByteBuffer.self) { text += String(buffer: buffer) }
        return text
    }
}
