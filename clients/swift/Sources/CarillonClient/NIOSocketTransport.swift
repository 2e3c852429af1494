// Carillon · NIOSocketTransport.swift
// SPDX-License-Identifier: Apache-2.0

#if !canImport(Darwin) && canImport(NIOWebSocket)
import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import NIOWebSocket

/// Opens WebSockets with SwiftNIO.
///
/// Foundation's WebSockets need a libcurl that most Linux systems lack.
public struct NIOSocketTransport: SocketTransport {
    private enum Handshake: Sendable {
        case open(NIOSocket)
        case refused(NIOAsyncChannel<HTTPClientResponsePart, HTTPClientRequestPart>)
    }

    private static let handshakeTimeout = TimeAmount.seconds(10)
    /// Problem documents of a refused handshake are shorter.
    private static let mostRefusalBytes = 64 * 1024

    private let group: any EventLoopGroup
    private let tls: TLSConfiguration

    /// Creates a transport.
    ///
    /// - Parameters:
    ///   - group: the event loops of the sockets.
    ///   - tls: the settings for `wss`, such as a certificate authority of your own.
    public init(
        group: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton, tls: TLSConfiguration = .clientDefault
    ) {
        self.group = group
        self.tls = tls
    }

    /// Opens a socket; fails if the handshake has no answer within 10 s.
    public func open(_ url: URL, headers: [String: String]) async throws(SocketEnd) -> any Socket {
        do {
            switch try await self.connect(url, headers) {
            case .open(let socket): return socket
            case .refused(let channel): throw try await Self.refusal(channel)
            }
        } catch let end as SocketEnd {
            throw end
        } catch {
            throw .unreachable("\(error)")
        }
    }

    private func connect(_ url: URL, _ headers: [String: String]) async throws -> Handshake {
        guard let host = url.host(percentEncoded: false) else { throw SocketEnd.unreachable("the URL has no host") }
        let isSecure = url.scheme == "wss"
        let port = url.port ?? (isSecure ? 443 : 80)
        let context = isSecure ? try NIOSSLContext(configuration: self.tls) : nil
        let path = url.path(percentEncoded: true)
        var head = HTTPRequestHead(version: .http1_1, method: .GET, uri: path.isEmpty ? "/" : path)
        if let query = url.query(percentEncoded: true) { head.uri += "?\(query)" }
        let name = host.contains(":") ? "[\(host)]" : host
        head.headers.add(name: "Host", value: url.port.map { "\(name):\($0)" } ?? name)
        for (name, value) in headers { head.headers.add(name: name, value: value) }
        let handshake = try await ClientBootstrap(group: self.group)
            .connectTimeout(Self.handshakeTimeout)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .connect(host: host, port: port) { [head] channel in
                channel.eventLoop.makeCompletedFuture {
                    if let context {
                        // A certificate for an address has no name to send (RFC 6066 section 3).
                        let isAddress = (try? SocketAddress(ipAddress: host, port: port)) != nil
                        let handler = try NIOSSLClientHandler(context: context, serverHostname: isAddress ? nil : host)
                        try channel.pipeline.syncOperations.addHandler(handler)
                    }
                    return try Self.upgrade(channel, head)
                }
            }
        return try await handshake.get()
    }

    private static func upgrade(_ channel: any Channel, _ head: HTTPRequestHead) throws -> EventLoopFuture<Handshake> {
        let timeout = channel.eventLoop.scheduleTask(in: Self.handshakeTimeout) { channel.close(promise: nil) }
        let upgrader = NIOTypedWebSocketClientUpgrader<Handshake>(maxFrameSize: SocketLimits.mostBytes) { channel, _ in
            timeout.cancel()
            return channel.eventLoop.makeCompletedFuture {
                let handler = SocketHandler()
                try channel.pipeline.syncOperations.addHandlers([
                    NIOWebSocketFrameAggregator(
                        minNonFinalFragmentSize: 0, maxAccumulatedFrameCount: 4_096,
                        maxAccumulatedFrameSize: SocketLimits.mostBytes),
                    handler,
                ])
                // The handler reads only on demand, so TCP slows down a fast gateway.
                try channel.syncOptions?.setOption(.autoRead, value: false)
                return .open(NIOSocket(channel, handler))
            }
        }
        let configuration = NIOTypedHTTPClientUpgradeConfiguration<Handshake>(
            upgradeRequestHead: head, upgraders: [upgrader]
        ) { channel in
            channel.eventLoop.makeCompletedFuture {
                .refused(try NIOAsyncChannel(wrappingChannelSynchronously: channel))
            }
        }
        var pipeline = NIOUpgradableHTTPClientPipelineConfiguration(upgradeConfiguration: configuration)
        // The first frames may come in the same read as the answer to the handshake.
        pipeline.leftOverBytesStrategy = .forwardBytes
        return try channel.pipeline.syncOperations.configureUpgradableHTTPClientPipeline(configuration: pipeline)
    }

    /// Reads the answer of a gateway that refused the handshake.
    private static func refusal(
        _ channel: NIOAsyncChannel<HTTPClientResponsePart, HTTPClientRequestPart>
    ) async throws -> SocketEnd {
        try await channel.executeThenClose { inbound, _ in
            var status = 0
            var body = Data()
            reading: for try await part in inbound {
                switch part {
                case .head(let head): status = Int(head.status.code)
                case .body(let bytes):
                    body.append(contentsOf: bytes.readableBytesView)
                    if body.count > Self.mostRefusalBytes { break reading }
                case .end: break reading
                }
            }
            return .refused(status: status, body: body)
        }
    }
}

/// A socket of SwiftNIO.
private final class NIOSocket: Socket {
    private let channel: any Channel
    private let handler: NIOLoopBound<SocketHandler>

    /// Call this on the channel's event loop.
    init(_ channel: any Channel, _ handler: SocketHandler) {
        self.channel = channel
        self.handler = NIOLoopBound(handler, eventLoop: channel.eventLoop)
    }

    deinit { self.channel.close(promise: nil) }

    func receive() async throws(SocketEnd) -> String {
        try await self.ask { handler, promise in handler.receive(promise) }
    }

    func send(_ text: String) async throws(SocketEnd) {
        try await self.ask { handler, promise in handler.send(.text, ByteBuffer(string: text), promise) }
    }

    func ping() async throws(SocketEnd) {
        try await self.ask { handler, promise in handler.ping(promise) }
    }

    func close() {
        self.channel.eventLoop.execute { [handler] in handler.value.close() }
    }

    /// Runs an operation of the handler on its event loop.
    private func ask<Answer: Sendable>(
        _ operation: @escaping @Sendable (SocketHandler, EventLoopPromise<Answer>) -> Void
    ) async throws(SocketEnd) -> Answer {
        let promise = self.channel.eventLoop.makePromise(of: Answer.self)
        self.channel.eventLoop.execute { [handler] in operation(handler.value, promise) }
        do {
            return try await promise.futureResult.get()
        } catch {
            throw error as? SocketEnd ?? .unreachable("\(error)")
        }
    }
}

/// The state of a socket, on its event loop.
///
/// It reads only when a caller waits for a message or a pong, and buffers at most ``mostMessages``
/// plus those of one read. The rest stays in the connection, where TCP slows down the gateway.
private final class SocketHandler: ChannelDuplexHandler {
    typealias InboundIn = WebSocketFrame
    typealias OutboundIn = WebSocketFrame
    typealias OutboundOut = WebSocketFrame

    private static let mostMessages = 64

    private var context: ChannelHandlerContext?
    private var messages: CircularBuffer<String> = []
    private var reader: EventLoopPromise<String>?
    private var pings: [ByteBuffer: EventLoopPromise<Void>] = [:]
    private var lastPing: UInt64 = 0
    private var end: SocketEnd?

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    func handlerRemoved(context: ChannelHandlerContext) { self.finish(.closed(code: 1006, reason: "")) }

    // MARK: Operations

    func receive(_ promise: EventLoopPromise<String>) {
        if let message = self.messages.popFirst() { return promise.succeed(message) }
        if let end { return promise.fail(end) }
        self.reader = promise
        self.context?.read()
    }

    func send(_ kind: WebSocketOpcode, _ data: ByteBuffer, _ promise: EventLoopPromise<Void>?) {
        guard let context, self.end == nil else {
            promise?.fail(self.end ?? .closed(code: 1006, reason: ""))
            return
        }
        let frame = WebSocketFrame(fin: true, opcode: kind, maskKey: .random(), data: data)
        context.writeAndFlush(self.wrapOutboundOut(frame), promise: promise)
    }

    func ping(_ promise: EventLoopPromise<Void>) {
        if let end { return promise.fail(end) }
        self.lastPing += 1
        let data = ByteBuffer(integer: self.lastPing)
        self.pings[data] = promise
        self.send(.ping, data, nil)
        self.context?.read()
    }

    func close() {
        guard let context, self.end == nil else { return }
        self.send(.connectionClose, Self.closing(1001), nil)
        self.finish(.closed(code: 1006, reason: "closed here"))
        context.close(promise: nil)
    }

    private static func closing(_ code: UInt16) -> ByteBuffer { ByteBuffer(integer: code) }

    private func finish(_ end: SocketEnd) {
        if self.end == nil { self.end = end }
        let (reader, pings) = (self.reader, self.pings)
        (self.reader, self.pings, self.context) = (nil, [:], nil)
        reader?.fail(self.end ?? end)
        for promise in pings.values { promise.fail(self.end ?? end) }
    }

    // MARK: Events

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let frame = self.unwrapInboundIn(data)
        var payload = frame.unmaskedData
        switch frame.opcode {
        case .text:
            let text = String(buffer: payload)
            if let reader {
                self.reader = nil
                reader.succeed(text)
            } else {
                self.messages.append(text)
            }
        case .ping:
            // This pong is the proof of receipt for all frames before the ping.
            self.send(.pong, payload, nil)
        case .pong:
            self.pings.removeValue(forKey: payload)?.succeed(())
        case .connectionClose:
            let code = payload.readInteger(as: UInt16.self)
            let reason = String(buffer: payload)
            self.send(.connectionClose, Self.closing(code ?? 1000), nil)
            self.finish(.closed(code: code.map { Int($0) } ?? 1005, reason: reason))
            context.close(promise: nil)
        default:
            break
        }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        // The read may have brought only a part of the message, or only a ping.
        let awaitsPong = !self.pings.isEmpty && self.messages.count < Self.mostMessages
        if self.reader != nil || awaitsPong { context.read() }
    }

    func channelInactive(context: ChannelHandlerContext) { self.finish(.closed(code: 1006, reason: "")) }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        self.finish(.closed(code: 1006, reason: "\(error)"))
        context.close(promise: nil)
    }
}
#endif
