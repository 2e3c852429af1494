// Carillon · ConnectionTallyTests.swift
// SPDX-License-Identifier: Apache-2.0

import HummingbirdCore
import Logging
import NIOCore
import NIOPosix
import Sockets
import Testing

/// A listener that has no files left for further connections.
@Suite("Connections beyond what may be open", .timeLimit(.minutes(10)))
struct ConnectionTallyTests {
    @Test("A connection too many is closed at once; one that ends makes room for the next")
    func bound() async throws {
        var policy = DoorPolicy()
        policy.connections = Tally(limit: 1)
        // The first says nothing, however long the machine takes.
        var timeouts = DoorTimeouts()
        timeouts.firstRequest = .seconds(3_600)
        let door = DoorChannel(
            responder: { _, _, _ in },
            endpoints: [LengthEndpoint()],
            timeouts: timeouts,
            policy: policy,
            http: HTTP1Channel.Configuration()
        )
        let group = MultiThreadedEventLoopGroup.singleton
        let server = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                door.setup(channel: channel, logger: Logger(label: "test")).map { _ in }
            }
            .bind(host: "127.0.0.1", port: 0)
            .get()
        let address = try #require(server.localAddress)
        let connect = { () async throws -> any Channel in
            try await ClientBootstrap(group: group).connect(to: address).get()
        }

        let first = try await connect()
        let second = try await connect()
        // Nothing but the door closes it.
        try await second.closeFuture.get()
        #expect(first.isActive)
        try await first.close()

        // The door sees the end of the first when its turn comes.
        var third = try await connect()
        while try await Self.answer(on: third) == nil { third = try await connect() }
        try await third.close()
        try await server.close()
    }

    /// What a request is answered with; nil if the connection is closed without an answer.
    private static func answer(on channel: any Channel) async throws -> String? {
        let answer = channel.eventLoop.makePromise(of: String?.self)
        do {
            try await channel.pipeline.addHandler(FirstAnswer(answer)).get()
        } catch {
            // The channel was closed first.
            answer.succeed(nil)
        }
        channel.writeAndFlush(
            ByteBuffer(string: "POST /length HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi"), promise: nil)
        return try await answer.futureResult.get()
    }
}

/// Keeps the first that comes in, or that nothing came.
private final class FirstAnswer: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer

    private let answer: EventLoopPromise<String?>

    init(_ answer: EventLoopPromise<String?>) {
        self.answer = answer
    }

    func handlerAdded(context: ChannelHandlerContext) {
        if !context.channel.isActive { self.answer.succeed(nil) }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        self.answer.succeed(String(buffer: self.unwrapInboundIn(data)))
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.answer.succeed(nil)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        self.answer.succeed(nil)
    }
}
