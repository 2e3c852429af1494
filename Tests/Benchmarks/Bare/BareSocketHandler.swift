// Carillon · BareSocketHandler.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Storage

/// The sockets of the bare server by user; confined to its event loop.
final class BareRoster {
    private var sockets: [String: [BareSocketHandler]] = [:]

    func add(_ socket: BareSocketHandler, user: String) {
        self.sockets[user, default: []].append(socket)
    }

    /// Writes each frame to the sockets of its user, then flushes every socket that got some.
    func deliver(_ frames: [NodeFrame]) {
        var touched: [BareSocketHandler] = []
        for frame in frames {
            guard let sockets = self.sockets[frame.user] else { continue }
            let bytes = BareSocketHandler.text(frame.body)
            for socket in sockets {
                socket.write(bytes)
                touched.append(socket)
            }
        }
        for socket in touched { socket.flush() }
    }
}

/// One socket of the bare server: agrees to any upgrade, takes the bearer token for the user's name, and hears nothing
/// after that.
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

    /// A final text frame of a server (RFC 6455 section 5.2).
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
