// Carillon · ConnectionAttack.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOPosix
import Synchronization

/// Clients that flood a gateway to exhaust its memory.
///
/// Each connection sends as much as the gateway accepts and reconnects when the gateway closes it.
/// The number of connections, the bytes of each and the duration are bounded.
package struct ConnectionAttack: Sendable {
    package enum Kind: CaseIterable, Sendable {
        /// Polls without a token and pipelines a 16 MB body after the poll.
        case poll
        /// Opens the stream of one user and pipelines a 16 MB body after it.
        case stream
        /// Pipelines requests and never reads a response.
        case pipeline
        /// Sends request bodies without a token that never complete.
        case body
        /// Sends WebSocket messages without a token that never complete.
        case message
        /// Asks for another protocol, and sends 16 MB that are no request.
        case upgrade
        /// Posts jobs to REST without a token, each with a body of 16 MB, one after the other.
        case job
        /// The same with a token whose signature is wrong.
        case forgedJob
    }

    package struct Summary: Sendable {
        package var connects = 0
        package var bytes = 0
    }

    private final class Count: Sendable {
        let connects = Atomic(0)
        let bytes = Atomic(0)
    }

    /// A separate event loop, so that the flood does not slow down the other clients of the test.
    private static let loops = MultiThreadedEventLoopGroup(numberOfThreads: 1)

    /// The number of simultaneous connections of each kind in the usual attack.
    package static let usual: [(kind: Kind, count: Int)] = [
        (.poll, 200), (.stream, 32), (.pipeline, 50), (.body, 400), (.message, 400), (.upgrade, 50), (.job, 24),
        (.forgedJob, 24),
    ]

    private let port: Int
    private let token: String
    private let connections: [(kind: Kind, count: Int)]

    /// - Parameters:
    ///   - token: the token of the user whose streams are opened.
    ///   - connections: the number of simultaneous connections of each kind.
    package init(
        port: Int,
        token: String,
        connections: [(kind: Kind, count: Int)] = Self.usual
    ) {
        self.port = port
        self.token = token
        self.connections = connections
    }

    /// Attacks for `duration` and returns the totals.
    package func run(for duration: Duration) async -> Summary {
        let count = Count()
        let deadline = NIODeadline.now() + TimeAmount(duration)
        await withTaskGroup(of: Void.self) { tasks in
            for (kind, number) in self.connections {
                for _ in 0..<number { tasks.addTask { await self.repeatedly(kind, until: deadline, count) } }
            }
        }
        return Summary(
            connects: count.connects.load(ordering: .relaxed), bytes: count.bytes.load(ordering: .relaxed))
    }

    private func repeatedly(_ kind: Kind, until deadline: NIODeadline, _ count: Count) async {
        while NIODeadline.now() < deadline, !Task.isCancelled {
            let channel = try? await ClientBootstrap(group: Self.loops)
                .channelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        let handler = AttackHandler(kind, token: self.token) { bytes in
                            count.bytes.add(bytes, ordering: .relaxed)
                        }
                        try channel.pipeline.syncOperations.addHandler(handler)
                        if kind == .pipeline { try channel.syncOptions?.setOption(.autoRead, value: false) }
                    }
                }
                .connect(host: "127.0.0.1", port: self.port).get()
            if let channel {
                count.connects.add(1, ordering: .relaxed)
                let end = channel.eventLoop.scheduleTask(deadline: deadline) { channel.close(promise: nil) }
                await withTaskCancellationHandler {
                    try? await channel.closeFuture.get()
                } onCancel: {
                    channel.close(promise: nil)
                }
                end.cancel()
            }
            // Reconnect after a short pause.
            try? await Task.sleep(for: .milliseconds(100))
        }
    }
}

/// One connection of an attack.
private final class AttackHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private static let host = "HTTP/1.1\r\nhost: x\r\n"
    private static let part = 64 * 1024
    /// The largest body of jobs; a multiple of ``part``.
    private static let largestBody = 16 * 1024 * 1024

    private let kind: ConnectionAttack.Kind
    private let token: String
    private let sent: @Sendable (Int) -> Void
    private var answer = ""
    private var flood = ByteBuffer()
    /// Bytes still to send.
    private var left = 0
    /// The head of a request that is sent again after its body; nil to send one body only.
    private var nextHead: ByteBuffer?

    init(_ kind: ConnectionAttack.Kind, token: String, sent: @escaping @Sendable (Int) -> Void) {
        self.kind = kind
        self.token = token
        self.sent = sent
    }

    private static var job: String { "POST /v1/jobs \(Self.host)content-length: 16000000\r\n\r\n" }

    func channelActive(context: ChannelHandlerContext) {
        switch self.kind {
        case .poll:
            let text = "GET /socket.io/?EIO=4&transport=polling \(Self.host)\r\n"
            context.writeAndFlush(self.wrapOutboundOut(ByteBuffer(string: text)), promise: nil)
        case .stream:
            let head = "GET /v1/stream \(Self.host)authorization: Bearer \(self.token)\r\n\r\n"
            self.begin(head + Self.job, ByteBuffer(repeating: 0x78, count: Self.part), 16_000_000, context)
        case .pipeline:
            let request = "GET /v1/stream \(Self.host)\r\n"
            let requests = String(repeating: request, count: Self.part / request.utf8.count)
            self.begin("", ByteBuffer(string: requests), 64_000_000, context)
        case .body:
            let head = "POST /hubs/notifications?id=none \(Self.host)content-length: 65000\r\n\r\n"
            self.begin(head, ByteBuffer(repeating: 0x78, count: 64_000), 64_000, context)
        case .message:
            let fields = "upgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-version: 13\r\n"
            let key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            // A text frame of 65,000 bytes, masked with zeros, without its last thousand bytes.
            var frame = ByteBuffer(bytes: [0x81, 0xFE, 0xFD, 0xE8, 0, 0, 0, 0])
            frame.writeRepeatingByte(0x78, count: 64_000)
            self.begin("GET /v1/socket \(Self.host)\(fields)\(key)\r\n", frame, frame.readableBytes, context)
        case .upgrade:
            let head = "GET /healthz \(Self.host)connection: upgrade\r\nupgrade: h2c\r\n\r\n"
            self.begin(head, ByteBuffer(repeating: 0x78, count: Self.part), 16_000_000, context)
        case .job: self.post("", context)
        case .forgedJob:
            self.post("authorization: Bearer \(self.token.dropLast(8))AAAAAAAA\r\n", context)
        }
    }

    /// Posts jobs until the connection closes.
    private func post(_ fields: String, _ context: ChannelHandlerContext) {
        let head = "POST /v1/jobs \(Self.host)\(fields)content-length: \(Self.largestBody)\r\n\r\n"
        self.nextHead = ByteBuffer(string: head)
        self.begin(head, ByteBuffer(repeating: 0x78, count: Self.part), Self.largestBody, context)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard self.kind == .poll, self.left == 0 else { return }
        self.answer += String(buffer: self.unwrapInboundIn(data))
        let parts = self.answer.split(separator: "\"sid\":\"", maxSplits: 1)
        guard parts.count == 2, let end = parts[1].firstIndex(of: "\"") else { return }
        let poll = "GET /socket.io/?EIO=4&transport=polling&sid=\(parts[1][..<end]) \(Self.host)\r\n"
        self.begin(poll + Self.job, ByteBuffer(repeating: 0x78, count: Self.part), 16_000_000, context)
    }

    private func begin(_ head: String, _ flood: ByteBuffer, _ bytes: Int, _ context: ChannelHandlerContext) {
        self.flood = flood
        self.left = bytes
        context.writeAndFlush(self.wrapOutboundOut(ByteBuffer(string: head)), promise: nil)
        self.pour(context)
    }

    /// Writes until the channel is no longer writable.
    private func pour(_ context: ChannelHandlerContext) {
        while self.left > 0, context.channel.isActive, context.channel.isWritable {
            let count = self.flood.readableBytes
            self.left -= count
            let sent = self.sent
            let written = context.eventLoop.makePromise(of: Void.self)
            written.futureResult.whenSuccess { sent(count) }
            context.writeAndFlush(self.wrapOutboundOut(self.flood), promise: written)
        }
        guard self.left <= 0, let nextHead, context.channel.isActive else { return }
        self.left = Self.largestBody
        context.write(self.wrapOutboundOut(nextHead), promise: nil)
        // On the loop's next turn, so that its other connections get theirs.
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        context.eventLoop.execute {
            let (handler, context) = bound.value
            handler.pour(context)
        }
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        self.pour(context)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }
}
