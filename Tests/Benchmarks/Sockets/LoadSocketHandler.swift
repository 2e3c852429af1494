// Carillon · LoadSocketHandler.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import NIOCore
import NIOPosix

/// Reads the text messages of one socket, or the chunks of one event stream, on its event loop.
protocol LoadSocketReader {
    mutating func read(_ text: ByteBuffer)
    /// Called when the connection has closed.
    mutating func end()
}

/// A client connection: opens it in its dialect, parses the server's frames (final, unmasked) and
/// answers pings.
final class LoadSocketHandler<Reader: LoadSocketReader>: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let dialect: LoadDialect
    private let token: String
    private let request: String
    private var reader: Reader
    private var isAgreed = false
    private var unread: ByteBuffer?

    private init(dialect: LoadDialect, token: String, request: String, reader: Reader) {
        self.dialect = dialect
        self.token = token
        self.request = request
        self.reader = reader
    }

    /// Connects from the loopback address `source` to a port of this machine.
    ///
    /// - Parameters:
    ///   - token: the user's token.
    ///   - resume: the inbox version of a native client.
    static func connect(
        group: any EventLoopGroup,
        port: Int,
        source: String = "127.0.0.1",
        dialect: LoadDialect = .native,
        token: String,
        resume: Int64? = nil,
        reader: @escaping @Sendable () -> Reader
    ) -> EventLoopFuture<any Channel> {
        let request = dialect.request(port: port, token: token, resume: resume)
        let bootstrap = ClientBootstrap(group: group)
            // IP_BIND_ADDRESS_NO_PORT (ip(7)). Without it `bind` searches for a port that is free
            // for every peer, which is slow after many disconnects.
            .channelOption(.ipOption(NIOBSDSocket.Option(rawValue: 24)), value: 1)
            .channelOption(
                .recvAllocator,
                value: AdaptiveRecvByteBufferAllocator(minimum: 64, initial: 512, maximum: 65_536)
            )
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(
                        LoadSocketHandler(dialect: dialect, token: token, request: request, reader: reader())
                    )
                }
            }
        do {
            let address = try SocketAddress(ipAddress: source, port: 0)
            return bootstrap.bind(to: address).connect(host: "127.0.0.1", port: port)
        } catch {
            return group.next().makeFailedFuture(error)
        }
    }

    func channelActive(context: ChannelHandlerContext) {
        context.writeAndFlush(self.wrapOutboundOut(ByteBuffer(string: self.request)), promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.reader.end()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = self.unwrapInboundIn(data)
        if var unread {
            unread.writeBuffer(&bytes)
            bytes = unread
            self.unread = nil
        }
        if !self.isAgreed {
            guard let end = bytes.readableBytesView.firstRange(of: Array("\r\n\r\n".utf8)) else {
                self.unread = bytes
                return
            }
            guard bytes.begins(with: self.dialect.agreement) else { return context.close(promise: nil) }
            bytes.moveReaderIndex(to: end.upperBound)
            self.isAgreed = true
            if let greeting = self.dialect.greeting { self.write(1, ByteBuffer(string: greeting), context) }
        }
        guard self.dialect.isWebSocket else {
            if bytes.readableBytes > 0 { self.reader.read(bytes) }
            return
        }
        while let (opcode, payload) = Self.frame(&bytes) { self.take(opcode, payload, context) }
        if bytes.readableBytes > 0 { self.unread = bytes.slice() }
    }

    private static func frame(_ bytes: inout ByteBuffer) -> (UInt8, ByteBuffer)? {
        let start = bytes
        guard let first: UInt8 = bytes.readInteger(), let short: UInt8 = bytes.readInteger() else {
            bytes = start
            return nil
        }
        var length = Int(short)
        if short == 126 { length = bytes.readInteger(as: UInt16.self).map { Int($0) } ?? .max }
        if short == 127 { length = bytes.readInteger(as: UInt64.self).map { Int($0) } ?? .max }
        guard length <= bytes.readableBytes, let payload = bytes.readSlice(length: length) else {
            bytes = start
            return nil
        }
        return (first & 0x0F, payload)
    }

    private func take(_ opcode: UInt8, _ payload: ByteBuffer, _ context: ChannelHandlerContext) {
        switch opcode {
        case 9: self.write(10, payload, context)
        case 8: context.close(promise: nil)
        case 1:
            if let reply = self.dialect.reply(to: payload, token: self.token) {
                self.write(1, ByteBuffer(string: reply), context)
            }
            self.reader.read(payload)
        default: break
        }
    }

    /// Writes a frame with a mask of zeros, which leaves the payload unchanged.
    private func write(_ opcode: UInt8, _ payload: ByteBuffer, _ context: ChannelHandlerContext) {
        var frame = context.channel.allocator.buffer(capacity: 8 + payload.readableBytes)
        frame.writeInteger(0x80 | opcode)
        if payload.readableBytes < 126 {
            frame.writeInteger(UInt8(0x80 | UInt8(payload.readableBytes)))
        } else {
            frame.writeInteger(UInt8(0x80 | 126))
            frame.writeInteger(UInt16(payload.readableBytes))
        }
        frame.writeInteger(UInt32(0))
        frame.writeImmutableBuffer(payload)
        context.writeAndFlush(self.wrapOutboundOut(frame), promise: nil)
    }
}

/// The client's side of a dialect, as far as an idle or listening socket needs it.
enum LoadDialect: String, CaseIterable, ExpressibleByArgument {
    case native, socketio, signalr, sse

    /// Returns the HTTP request that opens the connection.
    ///
    /// - Parameter resume: the inbox version of a native client.
    func request(port: Int, token: String, resume: Int64?) -> String {
        let path =
            switch self {
            case .native: "/v1/socket" + (resume.map { "?resume=\($0)" } ?? "")
            case .socketio: "/socket.io/?EIO=4&transport=websocket"
            case .signalr: "/hubs/notifications"
            case .sse: "/v1/stream"
            }
        var lines = ["GET \(path) HTTP/1.1", "host: 127.0.0.1:\(port)"]
        if self.isWebSocket {
            lines += [
                "upgrade: websocket", "connection: Upgrade", "sec-websocket-version: 13",
                "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
            ]
        } else {
            lines.append("accept: text/event-stream")
        }
        // Socket.IO sends the token in the CONNECT packet.
        if self != .socketio { lines.append("authorization: Bearer \(token)") }
        return lines.joined(separator: "\r\n") + "\r\n\r\n"
    }

    var isWebSocket: Bool { self != .sse }

    /// The beginning of a successful response.
    var agreement: StaticString { self.isWebSocket ? "HTTP/1.1 101" : "HTTP/1.1 200" }

    /// The first message, in dialects where the client speaks first.
    var greeting: String? { self == .signalr ? "{\"protocol\":\"json\",\"version\":1}\u{1E}" : nil }

    /// Returns the required reply to a message, if any.
    ///
    /// SignalR's pings are answered with the client's own, which are due as often.
    func reply(to message: ByteBuffer, token: String) -> String? {
        switch self {
        case .native, .sse: nil
        case .socketio:
            if message.begins(with: "0{") {
                #"40{"token":"\#(token)"}"#
            } else {
                message.readableBytes == 1 && message.begins(with: "2") ? "3" : nil
            }
        case .signalr: message.begins(with: "{\"type\":6}") ? "{\"type\":6}\u{1E}" : nil
        }
    }

    /// Whether a message completes the connection; for native sockets and streams, that is the
    /// first sync.
    func isOpening(_ message: ByteBuffer) -> Bool {
        switch self {
        case .native: message.begins(with: #"{"type":"sync""#)
        case .socketio: message.begins(with: "40")
        case .signalr: message.begins(with: "{}")
        case .sse: message.readableBytesView.firstRange(of: Array("event: sync".utf8)) != nil
        }
    }
}

extension ByteBuffer {
    func begins(with text: StaticString) -> Bool {
        // The bytes of a static string are never freed.
        let bytes = UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount)
        return self.readableBytesView.starts(with: bytes)
    }
}
