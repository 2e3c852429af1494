// Carillon · LoadSocketHandler.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOPosix

/// What takes the text messages of one socket, or the pieces of one event stream, on its event loop.
protocol LoadSocketReader {
    mutating func read(_ text: ByteBuffer)
    /// The connection is gone.
    mutating func end()
}

/// One client connection: begins it as its dialect does, reads a server's frames, which are final and unmasked, and
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

    /// Connects from the loopback address `source`.
    ///
    /// - Parameters:
    ///   - token: the user's.
    ///   - resume: the inbox version that a native client has.
    static func connect(
        group: any EventLoopGroup,
        host: String,
        port: Int,
        source: String = "127.0.0.1",
        dialect: LoadDialect = .native,
        token: String,
        resume: Int64? = nil,
        reader: @escaping @Sendable () -> Reader
    ) -> EventLoopFuture<any Channel> {
        let request = dialect.request(host: host, port: port, token: token, resume: resume)
        let bootstrap = ClientBootstrap(group: group)
            // IP_BIND_ADDRESS_NO_PORT (ip(7)): else a port is looked for that is free whatever the peer, through all that have
            // just been given up.
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
            return bootstrap.bind(to: try SocketAddress(ipAddress: source, port: 0)).connect(host: host, port: port)
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

    /// Writes a frame; a mask of zeros leaves the payload as it is.
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
