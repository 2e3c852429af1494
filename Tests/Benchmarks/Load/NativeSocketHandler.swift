// Carillon · NativeSocketHandler.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOPosix

/// What takes the text messages of one native socket, on its event loop.
protocol NativeSocketReader {
    mutating func read(_ text: ByteBuffer)
    /// The connection is gone.
    mutating func end()
}

/// One client socket: asks for the upgrade, reads a server's frames, which are final and unmasked, and answers pings.
final class NativeSocketHandler<Reader: NativeSocketReader>: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let request: String
    private var reader: Reader
    private var isUpgraded = false
    private var unread: ByteBuffer?

    private init(request: String, reader: Reader) {
        self.request = request
        self.reader = reader
    }

    /// Connects from the loopback address `source`.
    ///
    /// - Parameters:
    ///   - token: the user's.
    ///   - resume: the inbox version that the client has.
    static func connect(
        group: any EventLoopGroup,
        host: String,
        port: Int,
        source: String = "127.0.0.1",
        token: String,
        resume: Int64? = nil,
        reader: @escaping @Sendable () -> Reader
    ) async throws -> any Channel {
        let query = resume.map { "?resume=\($0)" } ?? ""
        let request = """
            GET /v1/socket\(query) HTTP/1.1\r
            host: \(host):\(port)\r
            upgrade: websocket\r
            connection: Upgrade\r
            sec-websocket-version: 13\r
            sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r
            authorization: Bearer \(token)\r
            \r

            """
        return try await ClientBootstrap(group: group)
            .bind(to: SocketAddress(ipAddress: source, port: 0))
            .channelOption(
                .recvAllocator,
                value: AdaptiveRecvByteBufferAllocator(minimum: 64, initial: 512, maximum: 65_536)
            )
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(
                        NativeSocketHandler(request: request, reader: reader())
                    )
                }
            }
            .connect(host: host, port: port).get()
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
        if !self.isUpgraded {
            let view = bytes.readableBytesView
            guard let end = view.firstRange(of: Array("\r\n\r\n".utf8)) else {
                self.unread = bytes
                return
            }
            guard view.starts(with: Array("HTTP/1.1 101".utf8)) else { return context.close(promise: nil) }
            bytes.moveReaderIndex(to: end.upperBound)
            self.isUpgraded = true
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
        case 9:
            // A mask of zeros leaves the payload as it is.
            var pong = context.channel.allocator.buffer(capacity: 6 + payload.readableBytes)
            pong.writeInteger(UInt8(0x8A))
            pong.writeInteger(UInt8(0x80 | UInt8(payload.readableBytes)))
            pong.writeInteger(UInt32(0))
            pong.writeImmutableBuffer(payload)
            context.writeAndFlush(self.wrapOutboundOut(pong), promise: nil)
        case 8: context.close(promise: nil)
        case 1: self.reader.read(payload)
        default: break
        }
    }
}
