// Carillon · HTTPStub.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOPosix
import Synchronization

/// A plain HTTP/1.1 server that answers every request the way it was last told to, and counts them.
package final class HTTPStub: Sendable {
    /// What it says.
    package struct Answer: Sendable {
        package var status: Int
        package var body: [UInt8]

        package init(status: Int = 200, body: String) {
            self.status = status
            self.body = Array(body.utf8)
        }
    }

    private struct State {
        var answer: Answer
        var requests = 0
    }

    private final class Memory: Sendable {
        let state: Mutex<State>

        init(_ answer: Answer) {
            self.state = Mutex(State(answer: answer))
        }
    }

    package let port: Int
    private let channel: any Channel
    private let memory: Memory

    package var url: String { "http://127.0.0.1:\(self.port)" }
    package var requests: Int { self.memory.state.withLock { $0.requests } }

    private init(channel: any Channel, memory: Memory) {
        self.channel = channel
        self.memory = memory
        self.port = channel.localAddress?.port ?? 0
    }

    /// Runs `body` with a server that is closed in the end.
    ///
    /// - Parameter port: 0 for one that is free.
    package static func with<Result>(
        _ answer: Answer,
        port: Int = 0,
        _ body: (HTTPStub) async throws -> Result
    ) async throws -> Result {
        let memory = Memory(answer)
        let channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Handler(memory: memory))
                }
            }
            .bind(host: "127.0.0.1", port: port).get()
        let stub = HTTPStub(channel: channel, memory: memory)
        do {
            let result = try await body(stub)
            try? await channel.close().get()
            return result
        } catch {
            try? await channel.close().get()
            throw error
        }
    }

    /// What it says from now on.
    package func answer(_ answer: Answer) {
        self.memory.state.withLock { $0.answer = answer }
    }

    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        private let memory: Memory
        private var read: [UInt8] = []

        init(memory: Memory) {
            self.memory = memory
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            self.read += self.unwrapInboundIn(data).readableBytesView
            guard self.read.suffix(4).elementsEqual("\r\n\r\n".utf8) else { return }
            self.read = []
            let answer = self.memory.state.withLock { state in
                state.requests += 1
                return state.answer
            }
            let head =
                "HTTP/1.1 \(answer.status) Said\r\ncontent-length: \(answer.body.count)\r\nconnection: close\r\n\r\n"
            let bytes = ByteBuffer(bytes: Array(head.utf8) + answer.body)
            let bound = NIOLoopBound(context, eventLoop: context.eventLoop)
            context.writeAndFlush(self.wrapOutboundOut(bytes)).whenComplete { _ in bound.value.close(promise: nil) }
        }
    }
}
