// Carillon · OutputSlicesTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOEmbedded
import Testing

@testable import Sockets

@Suite("Output to a TLS handler", .timeLimit(.minutes(10)))
struct OutputSlicesTests {
    /// Records what each flush sends, and writes in the first one, as a handler may when the
    /// connection has room again.
    private final class TLS: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer

        private(set) var flushes: [[UInt8]] = []
        private(set) var flushesBeforeClose: Int?
        private var written: [UInt8] = []
        private var reaction: ((any Channel) -> Void)?

        init(reaction: ((any Channel) -> Void)? = nil) {
            self.reaction = reaction
        }

        func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
            self.written += Array(self.unwrapOutboundIn(data).readableBytesView)
            promise?.succeed()
        }

        func flush(context: ChannelHandlerContext) {
            self.flushes.append(self.written)
            self.written = []
            let reaction = self.reaction
            self.reaction = nil
            reaction?(context.channel)
        }

        func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
            self.flushesBeforeClose = self.flushes.count
            promise?.succeed()
        }
    }

    @Test("goes in flushes of one record, of which the last waits for the writer's flush")
    func slices() {
        let tls = TLS()
        let channel = EmbeddedChannel(handlers: [tls, OutputSlices()])
        let bytes = (0..<60_000).map { UInt8($0 % 251) }
        channel.write(ByteBuffer(bytes: bytes.prefix(10_000)), promise: nil)
        #expect(tls.flushes.isEmpty)
        channel.write(ByteBuffer(bytes: bytes.dropFirst(10_000)), promise: nil)
        #expect(tls.flushes.map(\.count) == [16_000, 16_000, 16_000])
        channel.flush()
        #expect(tls.flushes.map(\.count) == [16_000, 16_000, 16_000, 12_000])
        channel.writeAndFlush(ByteBuffer(bytes: bytes.prefix(16_000)), promise: nil)
        #expect(tls.flushes.map(\.count) == [16_000, 16_000, 16_000, 12_000, 16_000])
        #expect(Array(tls.flushes.prefix(4).joined()) == bytes)
    }

    @Test("keeps its order when a handler writes and closes during a flush")
    func order() {
        let tls = TLS { channel in
            channel.writeAndFlush(ByteBuffer(string: "next"), promise: nil)
            channel.close(mode: .output, promise: nil)
        }
        let channel = EmbeddedChannel(handlers: [tls, OutputSlices()])
        let bytes = [UInt8](repeating: 0x78, count: 40_000)
        channel.writeAndFlush(ByteBuffer(bytes: bytes), promise: nil)
        #expect(Array(tls.flushes.joined()) == bytes + Array("next".utf8))
        #expect(tls.flushesBeforeClose == tls.flushes.count)
    }
}
