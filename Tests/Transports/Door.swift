// Carillon · Door.swift
// SPDX-License-Identifier: Apache-2.0

import HTTPTypes
import HummingbirdCore
import Logging
import NIOCore
import NIOEmbedded
import NIOHTTP1
import Transports

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

/// A connection to a door, without a network.
final class Door {
    let channel = EmbeddedChannel()

    init(timeouts: DoorTimeouts = DoorTimeouts(), policy: DoorPolicy = DoorPolicy()) throws {
        let door = DoorChannel(
            responder: { _, _, _ in },
            endpoints: [LengthEndpoint(), PlainEndpoint()],
            timeouts: timeouts,
            policy: policy,
            http: HTTP1Channel.Configuration()
        )
        _ = try door.setup(channel: self.channel, logger: Logger(label: "test")).map { _ in }.wait()
        try self.channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 1)).wait()
    }

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
