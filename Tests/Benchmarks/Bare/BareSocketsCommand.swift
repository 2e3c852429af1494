// Carillon · BareSocketsCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import NIOCore
import NIOPosix
import Storage

/// The yardstick of sockets: plain NIO channels on one event loop, which get the same messages through the same Redis
/// client as a gateway and write them as they are.
///
/// Without a channel they get none, as connects and idle sockets need none.
///
/// It checks no token, keeps no inbox in order and bounds no buffer. A frame's body is the whole text.
struct BareSocketsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bare-sockets",
        abstract: "A WebSocket server without Carillon, for comparison.",
        shouldDisplay: false
    )

    @Option(help: "The channel with the frames; none come, and Redis is not asked, without it.")
    var channel: String?
    @Option(help: "Where it listens; 0 takes any port.")
    var port = 0

    func run() async throws {
        let eventLoop = MultiThreadedEventLoopGroup(numberOfThreads: 1).next()
        let roster = NIOLoopBoundBox.makeBoxSendingValue(BareRoster(), eventLoop: eventLoop)
        let listener = try await ServerBootstrap(group: eventLoop)
            .serverChannelOption(.backlog, value: 4_096)
            // Started anew, it listens where connections of the one before still fade.
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            // As a gateway's: an idle socket keeps its last buffer.
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
