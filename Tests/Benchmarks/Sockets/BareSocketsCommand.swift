// Carillon · BareSocketsCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Foundation
import NIOCore
import NIOPosix
import Storage

/// The yardstick for sockets: plain NIO channels on one event loop.
///
/// They get the same messages through the same Redis client as a gateway and write them unchanged.
/// Without a channel they get no messages, as for connects and idle sockets. The server checks no
/// token, keeps no inbox order and limits no buffer.
struct BareSocketsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bare-sockets",
        abstract: "Runs a WebSocket server without Carillon as a yardstick.",
        shouldDisplay: false
    )

    @Option(help: "Redis channel with the frames; without it no Redis is used.")
    var channel: String?
    @Option(help: "Port to listen on; 0 for any free port.")
    var port = 0

    func run() async throws {
        let eventLoop = MultiThreadedEventLoopGroup(numberOfThreads: 1).next()
        let roster = NIOLoopBoundBox.makeBoxSendingValue(BareRoster(), eventLoop: eventLoop)
        let listener = try await ServerBootstrap(group: eventLoop)
            .serverChannelOption(.backlog, value: 4_096)
            // A restarted server must listen while old connections are in TIME_WAIT.
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            // Same as in the gateway: an idle socket keeps its last buffer.
            .childChannelOption(
                .recvAllocator,
                value: AdaptiveRecvByteBufferAllocator(minimum: 64, initial: 256, maximum: 16_384)
            )
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(BareSocketHandler(roster: roster.value))
                }
            }
            .bind(host: "127.0.0.1", port: self.port).get()
        var subscription: RedisSubscription?
        if let channel { subscription = try Self.subscribe(to: channel, for: roster, on: eventLoop) }
        FileHandle.standardOutput.write(Data("ready http://127.0.0.1:\(listener.localAddress?.port ?? 0)\n".utf8))
        try await listener.closeFuture.get()
        await subscription?.close()
    }

    private static func subscribe(
        to channel: String,
        for roster: NIOLoopBoundBox<BareRoster>,
        on eventLoop: any EventLoop
    ) throws -> RedisSubscription {
        try RedisSubscription(
            RedisConfiguration(
                address: RedisAddress(url: Environment.require("REDIS_URL")),
                clientName: "bare-sockets"
            ),
            channels: [channel],
            on: eventLoop,
            logger: Environment.quiet
        ) { event in
            guard case .message(_, let payload) = event, let frames = NodeFrameBatch.decode(payload) else { return }
            roster.value.deliver(frames)
        }
    }
}

/// The bare server's sockets by user; confined to its event loop.
final class BareRoster {
    private var sockets: [String: [BareSocketHandler]] = [:]

    func add(_ socket: BareSocketHandler, user: String) {
        self.sockets[user, default: []].append(socket)
    }

    /// Writes each frame to its user's sockets, then flushes every socket written to.
    func deliver(_ frames: [NodeFrame]) {
        var touched: [BareSocketHandler] = []
        for frame in frames {
            guard let sockets = self.sockets[frame.user.text] else { continue }
            let bytes = BareSocketHandler.text(frame.body)
            for socket in sockets {
                socket.write(bytes)
                touched.append(socket)
            }
        }
        for socket in touched { socket.flush() }
    }
}

/// A socket of the bare server: accepts any upgrade, uses the bearer token as the user's name, and
/// ignores all later input.
final class BareSocketHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private static let agreement = """
        HTTP/1.1 101 Switching Protocols\r
        upgrade: websocket\r
        connection: Upgrade\r
        sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r
        \r

        """

    private let roster: BareRoster
    private var request: ByteBuffer?
    private var isAgreed = false
    private var context: ChannelHandlerContext?

    init(roster: BareRoster) {
        self.roster = roster
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !self.isAgreed else { return }
        var bytes = self.request ?? ByteBuffer()
        var more = self.unwrapInboundIn(data)
        bytes.writeBuffer(&more)
        let request = String(buffer: bytes)
        guard request.hasSuffix("\r\n\r\n") else {
            self.request = bytes
            return
        }
        self.request = nil
        self.isAgreed = true
        let credential = "authorization: Bearer "
        let line = request.split(separator: "\r\n").first { $0.hasPrefix(credential) } ?? ""
        self.roster.add(self, user: String(line.dropFirst(credential.count)))
        var answer = ByteBuffer(string: Self.agreement)
        answer.writeImmutableBuffer(Self.text(Array(#"{"type":"sync"}"#.utf8)))
        context.writeAndFlush(self.wrapOutboundOut(answer), promise: nil)
    }

    /// Encodes a final text frame from a server (RFC 6455 section 5.2).
    static func text(_ payload: [UInt8]) -> ByteBuffer {
        var frame = ByteBuffer()
        frame.reserveCapacity(payload.count + 10)
        frame.writeInteger(UInt8(0x81))
        if payload.count < 126 {
            frame.writeInteger(UInt8(payload.count))
        } else if payload.count <= Int(UInt16.max) {
            frame.writeInteger(UInt8(126))
            frame.writeInteger(UInt16(payload.count))
        } else {
            frame.writeInteger(UInt8(127))
            frame.writeInteger(UInt64(payload.count))
        }
        frame.writeBytes(payload)
        return frame
    }

    func write(_ frame: ByteBuffer) {
        self.context?.write(self.wrapOutboundOut(frame), promise: nil)
    }

    func flush() {
        self.context?.flush()
    }
}
