// Carillon · DeadPeerTests.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import HummingbirdCore
import Logging
import NIOCore
import NIOPosix
import Sockets
import Testing

/// Peers whose machines are gone, which only TCP sees on a stream that hears nothing.
@Suite("Dead peers", .timeLimit(.minutes(10)))
struct DeadPeerTests {
    @Test("What a peer's system does not acknowledge ends an accepted connection after the time that is set")
    func acknowledgement() async throws {
        #expect(DoorTimeouts().acknowledgement == .seconds(60))
        var timeouts = DoorTimeouts()
        timeouts.acknowledgement = .seconds(7)
        let door = DoorChannel(
            responder: { _, _, _ in },
            endpoints: [],
            timeouts: timeouts,
            http: HTTP1Channel.Configuration()
        )
        let option: ChannelOptions.Types.SocketOption = .tcpOption(NIOBSDSocket.Option(rawValue: TCP_USER_TIMEOUT))
        let group = MultiThreadedEventLoopGroup.singleton
        let accepted = group.next().makePromise(of: SocketOptionValue.self)
        let server = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                let milliseconds = door.setup(channel: channel, logger: Logger(label: "test")).flatMap { _ in
                    channel.getOption(option)
                }
                milliseconds.cascade(to: accepted)
                return milliseconds.map { _ in }
            }
            .bind(host: "127.0.0.1", port: 0)
            .get()
        let address = try #require(server.localAddress)
        let client = try await ClientBootstrap(group: group).connect(to: address).get()
        let milliseconds = try await accepted.futureResult.get()
        // The system fills the first four bytes only.
        #expect(CInt(truncatingIfNeeded: milliseconds) == 7_000)
        try await client.close()
        try await server.close()
    }
}
