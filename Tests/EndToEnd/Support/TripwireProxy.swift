// Carillon · TripwireProxy.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOPosix
import Support
import Synchronization

/// A proxy between a program and a server that stops or drops their traffic.
///
/// It stops everything at a chosen byte, so that a test can kill the program at an exact boundary.
/// It can also drop the server's replies, or all traffic, for a while.
final class TripwireProxy: Sendable {
    /// Where the traffic stops, seen from the trigger text.
    enum Side: Sendable {
        /// The server gets the bytes before the text and nothing after.
        case before
        /// The server gets the text, and its answer is dropped.
        case after
    }

    /// Traffic that the proxy drops.
    enum Loss: Sendable {
        case nothing
        /// The server gets the requests; its replies are dropped.
        case replies
        case everything
    }

    private struct Losses {
        var loss = Loss.nothing
        /// Connections that lost bytes, by number; nothing may follow a gap.
        var torn: [Int: any Channel] = [:]
        /// Those that lost bytes towards the server.
        var tornToServer: Set<Int> = []
        var connections = 0
    }

    private struct Wire {
        let words: [UInt8]
        let side: Side
        var skip: Int
    }

    private let state = Mutex<(wire: Wire?, isTripped: Bool)>((nil, false))
    private let losses = Mutex(Losses())
    private let channel: any Channel
    let port: Int

    private init(channel: any Channel, port: Int) {
        self.channel = channel
        self.port = port
    }

    /// Listens on a free port and forwards to a server on this machine.
    static func start(port target: Int) async throws -> TripwireProxy {
        let group = MultiThreadedEventLoopGroup.singleton
        let holder = ProxyHolder()
        let server = try await ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 64)
            .childChannelOption(.autoRead, value: false)
            .childChannelInitializer { inbound in
                let proxy = holder.proxy
                return ClientBootstrap(group: inbound.eventLoop)
                    .connectTimeout(TimeAmount(longestWait))
                    .connect(host: "127.0.0.1", port: target)
                    .flatMap { outbound in
                        let number = proxy?.nextConnection() ?? 0
                        return inbound.eventLoop.makeCompletedFuture {
                            try inbound.pipeline.syncOperations.addHandler(
                                Forwarder(peer: outbound, proxy: proxy, connection: number, isToServer: true))
                            try outbound.pipeline.syncOperations.addHandler(
                                Forwarder(peer: inbound, proxy: proxy, connection: number, isToServer: false))
                        }
                    }
                    .flatMap { inbound.setOption(.autoRead, value: true) }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let proxy = TripwireProxy(channel: server, port: server.localAddress?.port ?? 0)
        holder.set(proxy)
        return proxy
    }

    /// Stops traffic at `words`.
    ///
    /// - Parameter skip: the number of occurrences that pass first.
    func arm(_ words: String, _ side: Side, skip: Int = 0) {
        self.state.withLock { $0 = (Wire(words: Array(words.utf8), side: side, skip: skip), false) }
    }

    /// Drops traffic from now on.
    ///
    /// With `.nothing`, cuts the connections that lost bytes.
    func lose(_ loss: Loss) {
        let torn = self.losses.withLock { losses -> [any Channel] in
            losses.loss = loss
            return loss == .nothing ? Array(losses.torn.values) : []
        }
        for channel in torn { channel.close(promise: nil) }
    }

    fileprivate func nextConnection() -> Int {
        self.losses.withLock { losses in
            losses.connections += 1
            return losses.connections
        }
    }

    /// Whether bytes in this direction are dropped now.
    fileprivate func loses(_ connection: Int, isToServer: Bool, _ channel: any Channel) -> Bool {
        self.losses.withLock { losses in
            let isLost =
                switch losses.loss {
                case .nothing: losses.torn[connection] != nil
                case .replies: !isToServer || losses.tornToServer.contains(connection)
                case .everything: true
                }
            if isLost {
                losses.torn[connection] = channel
                if isToServer { losses.tornToServer.insert(connection) }
            }
            return isLost
        }
    }

    var isTripped: Bool { self.state.withLock { $0.isTripped } }

    func close() async { try? await self.channel.close().get() }

    /// The part of `bytes` that still goes to the server.
    fileprivate func pass(_ bytes: [UInt8]) -> ArraySlice<UInt8> {
        self.state.withLock { state in
            if state.isTripped { return state.wire?.side == .before ? [] : bytes[...] }
            guard var wire = state.wire else { return bytes[...] }
            var start = 0
            while let found = Self.find(wire.words, in: bytes, from: start) {
                guard wire.skip == 0 else {
                    wire.skip -= 1
                    start = found + wire.words.count
                    state.wire = wire
                    continue
                }
                state.isTripped = true
                return wire.side == .before ? bytes[..<found] : bytes[...]
            }
            return bytes[...]
        }
    }

    /// Finds `words` in one buffer only: programs write short commands in one piece.
    private static func find(_ words: [UInt8], in bytes: [UInt8], from start: Int) -> Int? {
        guard bytes.count - start >= words.count, !words.isEmpty else { return nil }
        return (start...bytes.count - words.count).first { position in
            bytes[position] == words[0] && bytes[position..<position + words.count].elementsEqual(words)
        }
    }

    /// Hands the proxy to handlers that are created before it.
    private final class ProxyHolder: Sendable {
        private let value = Mutex<TripwireProxy?>(nil)

        var proxy: TripwireProxy? { self.value.withLock { $0 } }

        func set(_ proxy: TripwireProxy) { self.value.withLock { $0 = proxy } }
    }

    private final class Forwarder: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        private let peer: any Channel
        private let proxy: TripwireProxy?
        private let connection: Int
        private let isToServer: Bool

        init(peer: any Channel, proxy: TripwireProxy?, connection: Int, isToServer: Bool) {
            self.peer = peer
            self.proxy = proxy
            self.connection = connection
            self.isToServer = isToServer
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let buffer = self.unwrapInboundIn(data)
            guard let proxy = self.proxy else {
                self.peer.writeAndFlush(buffer, promise: nil)
                return
            }
            guard !proxy.loses(self.connection, isToServer: self.isToServer, context.channel) else { return }
            if self.isToServer {
                let passed = proxy.pass(Array(buffer.readableBytesView))
                if !passed.isEmpty { self.peer.writeAndFlush(ByteBuffer(bytes: passed), promise: nil) }
            } else if !proxy.isTripped {
                self.peer.writeAndFlush(buffer, promise: nil)
            }
        }

        func channelInactive(context: ChannelHandlerContext) {
            self.peer.close(promise: nil)
        }
    }
}
