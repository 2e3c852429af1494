// Carillon · BareSocketsCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation
import NIOCore
import NIOPosix
import Redis
import Streams

/// The yardstick of what reaches sockets: plain NIO channels on one event loop, which get the same messages through the
/// same Redis client as a gateway and write them as they are.
///
/// It checks no token, keeps no inbox in order and bounds no buffer. A frame's body is the whole text.
struct BareSocketsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bare-sockets",
        abstract: "A WebSocket server without Carillon, for comparison.",
        shouldDisplay: false
    )

    @Option(help: "The channel with the frames.")
    var channel: String

    func run() async throws {
        let eventLoop = MultiThreadedEventLoopGroup(numberOfThreads: 1).next()
        let roster = NIOLoopBoundBox.makeBoxSendingValue(BareRoster(), eventLoop: eventLoop)
        let listener = try await ServerBootstrap(group: eventLoop)
            .serverChannelOption(.backlog, value: 4_096)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(BareSocketHandler(roster: roster.value))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let subscription = try RedisSubscription(
            RedisConfiguration(
                address: RedisAddress(url: Environment.require("REDIS_URL")),
                clientName: "bare-sockets"
            ),
            channels: [self.channel],
            on: eventLoop,
            logger: Environment.quiet
        ) { event in
            guard case .message(_, let payload) = event, let frames = NodeFrameBatch.decode(payload) else { return }
            roster.value.deliver(frames)
        }
        FileHandle.standardOutput.write(Data("ready http://127.0.0.1:\(listener.localAddress?.port ?? 0)\n".utf8))
        try await listener.closeFuture.get()
        await subscription.close()
    }
}
