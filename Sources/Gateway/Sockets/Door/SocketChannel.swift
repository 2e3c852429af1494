// Carillon · SocketChannel.swift
// SPDX-License-Identifier: Apache-2.0

package import HummingbirdCore
package import Logging
package import NIOCore
import NIOHTTP1
package import NIOHTTPTypes

/// A server channel that is HTTP until its first request asks for a socket.
///
/// Sockets stay plain channel handlers; the server's task for the connection ends with the upgrade.
package struct SocketChannel: HTTPChannelHandler {
    package enum Outcome: Sendable {
        case http(NIOAsyncChannel<HTTPRequestPart, HTTPResponsePart>)
        case socket
        case refused
    }

    package struct Value: ServerChildChannelValue {
        let outcome: EventLoopFuture<Outcome>
        package let channel: any Channel
    }

    package let responder: HTTPChannelHandler.Responder
    private let hub: SocketHub
    private let door: SocketDoor
    private let http: HTTP1Channel.Configuration

    package init(
        responder: @escaping HTTPChannelHandler.Responder,
        hub: SocketHub,
        door: SocketDoor,
        http: HTTP1Channel.Configuration
    ) {
        self.responder = responder
        self.hub = hub
        self.door = door
        self.http = http
    }

    package func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<Value> {
        channel.eventLoop.makeCompletedFuture {
            // Small receive buffers: an idle socket keeps its last one.
            try channel.syncOptions?.setOption(
                .recvAllocator,
                value: AdaptiveRecvByteBufferAllocator(minimum: 64, initial: 256, maximum: 16_384)
            )
            let pipeline = channel.pipeline.syncOperations
            var limits = NIOHTTPDecoderLimitConfiguration()
            limits.maxHeaderFieldSize = self.http.httpDecoder.maxHeaderFieldSize
            limits.maxHeaderListSize = self.http.httpDecoder.maxHeaderListSize
            limits.maxHeaderFieldCount = self.http.httpDecoder.maxHeaderFieldCount
            let encoder = HTTPResponseEncoder()
            let decoder = ByteToMessageHandler(
                HTTPRequestDecoder(leftOverBytesStrategy: .forwardBytes, limitConfiguration: limits)
            )
            let promise = channel.eventLoop.makePromise(of: Outcome.self)
            let handler = DoorHandler(
                hub: self.hub,
                door: self.door,
                http: self.http,
                encoder: encoder,
                decoder: decoder,
                outcome: promise,
                logger: logger
            )
            try pipeline.addHandlers([encoder, decoder, handler])
            return Value(outcome: promise.futureResult, channel: channel)
        }
    }

    package func handle(value: Value, logger: Logger) async {
        guard let outcome = try? await value.outcome.get() else { return }
        if case .http(let channel) = outcome { await self.handleHTTP(asyncChannel: channel, logger: logger) }
    }
}
