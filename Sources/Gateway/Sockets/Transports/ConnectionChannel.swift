// Carillon · ConnectionChannel.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import Glibc
import HummingbirdCore
import Logging
import NIOCore
import NIOHTTP1
import NIOHTTPTypes

/// A server channel that passes requests to the endpoints that claim them and the rest to the HTTP
/// server.
///
/// The server's task for a connection begins with its first request for the server. A connection
/// that becomes a socket before that needs no task; otherwise the task sleeps until the close.
package struct ConnectionChannel: HTTPChannelHandler {
    enum Outcome: Sendable {
        case http(NIOAsyncChannel<HTTPRequestPart, HTTPResponsePart>)
        /// The connection will never need the server.
        case taken
    }

    package struct Value: ServerChildChannelValue {
        let outcome: EventLoopFuture<Outcome>
        package let channel: any Channel
    }

    package let responder: HTTPChannelHandler.Responder
    let endpoints: [any TransportEndpoint]
    let timeouts: ConnectionTimeouts
    let policy: ConnectionPolicy
    let http: HTTP1Channel.Configuration

    package init(
        responder: @escaping HTTPChannelHandler.Responder,
        endpoints: [any TransportEndpoint],
        timeouts: ConnectionTimeouts = ConnectionTimeouts(),
        policy: ConnectionPolicy = ConnectionPolicy(),
        http: HTTP1Channel.Configuration
    ) {
        self.responder = responder
        self.endpoints = endpoints
        self.timeouts = timeouts
        self.policy = policy
        self.http = http
    }

    package func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<Value> {
        let hasPlace = self.count(channel, in: self.policy.connections)
        guard hasPlace || self.count(channel, in: self.policy.spare) else {
            ConnectionMetrics.refusedFiles.increment()
            channel.close(promise: nil)
            let outcome = channel.eventLoop.makeSucceededFuture(Outcome.taken)
            return channel.eventLoop.makeSucceededFuture(Value(outcome: outcome, channel: channel))
        }
        return channel.eventLoop.makeCompletedFuture {
            try channel.syncOptions?.setOption(.recvAllocator, value: ReceiveBufferAllocator())
            // One buffer per turn, so that little arrives after the request that stops the reading.
            try channel.syncOptions?.setOption(.maxMessagesPerRead, value: 1)
            // Without this, a vanished peer stays until TCP gives up a quarter of an hour later.
            let patience = TimeAmount(self.timeouts.acknowledgement).nanoseconds / 1_000_000
            try? channel.syncOptions?.setOption(
                .tcpOption(NIOBSDSocket.Option(rawValue: TCP_USER_TIMEOUT)), value: SocketOptionValue(patience))
            var limits = NIOHTTPDecoderLimitConfiguration()
            limits.maxHeaderFieldSize = self.http.httpDecoder.maxHeaderFieldSize
            limits.maxHeaderListSize = self.http.httpDecoder.maxHeaderListSize
            limits.maxHeaderFieldCount = self.http.httpDecoder.maxHeaderFieldCount
            let codec = ConnectionCodec(limits)
            let promise = channel.eventLoop.makePromise(of: Outcome.self)
            let handler = ConnectionHandler(
                self, codec: codec, isSpare: !hasPlace, outcome: promise, logger: logger)
            try channel.pipeline.syncOperations.addHandlers([codec.encoder, codec.decoding, handler])
            return Value(outcome: promise.futureResult, channel: channel)
        }
    }

    /// Counts a connection while it lasts; false if there are too many.
    ///
    /// A process without free file descriptors could not reach its stores, and would loop on
    /// connections that it cannot accept.
    private func count(_ channel: any Channel, in tally: Budget?) -> Bool {
        guard let tally else { return true }
        guard tally.reserve() else { return false }
        channel.closeFuture.whenComplete { _ in tally.release() }
        return true
    }

    package func handle(value: Value, logger: Logger) async {
        guard let outcome = try? await value.outcome.get() else { return }
        if case .http(let channel) = outcome { await self.handleHTTP(asyncChannel: channel, logger: logger) }
    }
}

/// Sizes receive buffers by what connections send, and lets idle ones keep next to none.
///
/// NIO keeps the first buffer of a channel that reads once a turn, and reuses it until a larger one
/// may be needed. So the first is small, and each later one is freed after its turn.
struct ReceiveBufferAllocator: RecvByteBufferAllocator {
    private static let first = 64
    /// Holds most requests.
    private static let second = 1_024
    private static let sizes = 256...16_384

    private var size = Self.first

    func buffer(allocator: ByteBufferAllocator) -> ByteBuffer { allocator.buffer(capacity: self.size) }

    /// - Returns: true, so that NIO does not reuse the first buffer.
    mutating func record(actualReadBytes: Int) -> Bool {
        if self.size == Self.first {
            self.size = Self.second
        } else if actualReadBytes >= self.size {
            self.size = min(self.size * 2, Self.sizes.upperBound)
        } else if actualReadBytes <= self.size / 4 {
            self.size = max(self.size / 2, Self.sizes.lowerBound)
        }
        return true
    }
}

/// Time limits of connections.
package struct ConnectionTimeouts: Sendable {
    /// Until the first request has arrived.
    var firstRequest: Duration = .seconds(10)
    /// Until a connection beyond the limit has sent its request; short, because there are few of
    /// them.
    var spareRequest: Duration = .seconds(2)
    /// Until the body of a request, or the rest of a socket's message, has arrived.
    var body: Duration = .seconds(20)
    /// For a slow client to read 4 KB; of an answer, a tenth of the waiting bytes, if that is more.
    var stall: Duration = .seconds(30)
    /// For a client's system to acknowledge what was sent (TCP_USER_TIMEOUT, RFC 5482).
    var acknowledgement: Duration = .seconds(60)
    /// Between two requests.
    var idle: Duration = .seconds(75)
    /// For a client to read the rest of a stream that has ended.
    var end: Duration = .seconds(5)

    package init() {}
}
