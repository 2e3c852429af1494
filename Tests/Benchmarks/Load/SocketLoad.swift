// Carillon · SocketLoad.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation
import NIOCore
import NIOPosix
import Synchronization

/// Many native sockets from one process, each a bare channel handler that counts and answers pings.
final class SocketLoad: Sendable {
    /// What all sockets saw.
    struct Seen: Sendable {
        var open = 0
        var closed = 0
        var frames = 0
        /// Seconds from the `sent_us` of a notification's data to its arrival.
        var latencies: [Double] = []
        /// How often each notification id was seen, where ids are kept.
        var ids: [String: Int] = [:]
    }

    let seen = Mutex(Seen())
    let keepsIDs: Bool
    private let channels = Mutex<[any Channel]>([])
    private let group: any EventLoopGroup

    init(group: any EventLoopGroup, keepsIDs: Bool = false) {
        self.group = group
        self.keepsIDs = keepsIDs
    }

    /// Opens a socket for each user, `width` at a time, and waits until all are in sync.
    func connect(host: String, port: Int, users: [String], width: Int = 200) async throws {
        let before = self.seen.withLock { $0.open }
        var index = 0
        while index < users.count {
            let batch = users[index..<min(index + width, users.count)]
            try await withThrowingTaskGroup(of: Void.self) { tasks in
                for (offset, user) in batch.enumerated() {
                    let token = try Environment.token(user: user)
                    // Ports of one address pair run out at 28,000, so sockets spread over loopback addresses.
                    let source = "127.0.0.\(1 + (index + offset) / 10_000)"
                    tasks.addTask { try await self.open(host, port, token, source: source) }
                }
                try await tasks.waitForAll()
            }
            index += batch.count
        }
        let deadline = ContinuousClock.now + .seconds(60)
        while self.seen.withLock({ $0.open }) < before + users.count {
            guard ContinuousClock.now < deadline else {
                throw ValidationError("only \(self.seen.withLock { $0.open } - before) of \(users.count) sockets opened")
            }
            try await Task.sleep(for: .milliseconds(20))
        }
    }

    private func open(_ host: String, _ port: Int, _ token: String, source: String) async throws {
        let channel = try await ClientBootstrap(group: self.group)
            .bind(to: SocketAddress(ipAddress: source, port: 0))
            .channelOption(.recvAllocator, value: AdaptiveRecvByteBufferAllocator(minimum: 64, initial: 512, maximum: 65_536))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(SocketLoadHandler(self))
                }
            }
            .connect(host: host, port: port).get()
        let request = """
            GET /v1/socket HTTP/1.1\r
            host: \(host):\(port)\r
            upgrade: websocket\r
            connection: Upgrade\r
            sec-websocket-version: 13\r
            sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r
            authorization: Bearer \(token)\r
            \r

            """
        try await channel.writeAndFlush(ByteBuffer(string: request)).get()
        self.channels.withLock { $0.append(channel) }
    }

    /// Closes all sockets.
    func close() async {
        for channel in self.channels.withLock({ $0 }) { try? await channel.close().get() }
    }
}

/// One client socket. Reads frames of a server: final, unmasked.
private final class SocketLoadHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private static let marker = Array(#""sent_us":"#.utf8)
    private static let identifier = Array(#""id":""#.utf8)

    private let load: SocketLoad
    private var isUpgraded = false
    private var isOpen = false
    private var unread: ByteBuffer?

    init(_ load: SocketLoad) {
        self.load = load
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.load.seen.withLock { $0.closed += 1 }
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
        case 1: self.read(payload)
        default: break
        }
    }

    private func read(_ payload: ByteBuffer) {
        let view = payload.readableBytesView
        if !self.isOpen, view.starts(with: Array(#"{"type":"sync""#.utf8)) {
            self.isOpen = true
            self.load.seen.withLock { $0.open += 1 }
            self.noteIDs(view)
            return
        }
        guard view.starts(with: Array(#"{"type":"notification""#.utf8)) || view.starts(with: Array(#"{"type":"sync""#.utf8))
        else { return }
        var latency: Double?
        if let marker = view.firstRange(of: Self.marker) {
            let digits = view[marker.upperBound...].prefix { $0 >= 0x30 && $0 <= 0x39 }
            let sent = digits.reduce(Int64(0)) { $0 * 10 + Int64($1 - 0x30) }
            latency = Date.now.timeIntervalSince1970 - Double(sent) / 1_000_000
        }
        self.load.seen.withLock { seen in
            seen.frames += 1
            if let latency { seen.latencies.append(latency) }
        }
        self.noteIDs(view)
    }

    private func noteIDs(_ view: ByteBufferView) {
        guard self.load.keepsIDs else { return }
        var rest = view[...]
        while let range = rest.firstRange(of: Self.identifier) {
            let id = String(decoding: rest[range.upperBound...].prefix(36), as: UTF8.self)
            self.load.seen.withLock { $0.ids[id, default: 0] += 1 }
            rest = rest[range.upperBound...]
        }
    }
}
