// Carillon · EventStreamTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HummingbirdCore
import NIOCore
import NIOEmbedded
import NIOPosix
import Support
import Synchronization
import Testing

@testable import Sockets

/// Server-Sent Events on a network, from a hub without stores.
@Suite("Event streams", .timeLimit(.minutes(10)))
struct EventStreamTests {
    /// Collects what a server sends.
    private final class Collector: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer

        private let received = Mutex("")

        var text: String { self.received.withLock { $0 } }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let text = String(buffer: self.unwrapInboundIn(data))
            self.received.withLock { $0 += text }
        }
    }

    /// Runs `body` with a stream that was opened by `request`, and its client.
    private static func with(
        _ request: String = "GET /v1/stream?ticket=ada HTTP/1.1\r\nhost: x\r\n\r\n",
        pingInterval: Duration = .seconds(25),
        _ body: (RunningHub, any Channel, Collector) async throws -> Void
    ) async throws {
        try await RunningHub.with(ScriptedBackend(), { $0.pingInterval = pingInterval }) { running in
            let connections = ConnectionChannel(
                responder: { _, _, _ in },
                endpoints: [EventStreamEndpoint(hub: running.hub)],
                http: HTTP1Channel.Configuration()
            )
            let listener = try await ServerBootstrap(group: running.eventLoop)
                .childChannelInitializer { channel in
                    connections.setup(channel: channel, logger: TestLog.logger).map { _ in }
                }
                .bind(host: "127.0.0.1", port: 0).get()
            let collector = Collector()
            let client = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
                .channelInitializer { $0.pipeline.addHandler(collector) }
                .connect(host: "127.0.0.1", port: listener.localAddress?.port ?? 0).get()
            try await client.writeAndFlush(ByteBuffer(string: request)).get()
            try await eventually("the stream has its sync") { collector.text.contains("event: sync\n") }
            try await body(running, client, collector)
            try? await client.close().get()
            try await listener.close().get()
        }
    }

    @Test("sends a comment after silence, so that proxies keep the connection")
    func keepAlive() async throws {
        try await Self.with(pingInterval: .milliseconds(100)) { _, _, collector in
            let events = collector.text.ranges(of: "event:").count
            // A chunk that begins with a colon.
            try await eventually("a comment comes") { collector.text.contains("\r\n:\n") }
            #expect(collector.text.ranges(of: "event:").count == events)
        }
    }

    @Test("begins no session if the connection closes while the head is written")
    func lostHead() throws {
        let harness = try HubHarness()
        let shard = try #require(harness.hub.shard(on: harness.eventLoop))
        let connection = try TestConnection()
        try connection.send("GET /park HTTP/1.1\r\nhost: x\r\n\r\n")
        let exchange = try #require(connection.lot.oldest)
        try connection.channel.pipeline.syncOperations.addHandler(FlushCloser(), position: .first)
        let identity = SocketIdentity(user: "ada", expiresAt: nil)
        let session = SocketSession(connection: "c", identity: identity, since: nil, shard: shard)
        EventStreamWire(session: session, exchange: exchange).begin()
        #expect(!connection.channel.isActive)
        #expect(harness.hub.count == 0)
        // No opening waits for the backend.
        #expect(session.turn == nil)
        #expect(try connection.answers().isEmpty)
    }

    @Test("awaits no proof of a notification")
    func unproven() async throws {
        try await Self.with { running, _, collector in
            running.hub.deliver([HubHarness.notification("ada", ScriptedBackend.version + 1)])
            try await eventually("it comes") { collector.text.contains("event: notification\n") }
            let (hub, eventLoop) = (running.hub, running.eventLoop)
            let reference = try await eventLoop.submit {
                hub.shard(on: eventLoop)?.openSockets(of: "ada").first?.reference
            }.get()
            let session = try #require(reference)
            let awaited = session.ask { session in
                let sequence = session.proofs.nextSequence(through: nil)
                return session.proofs.confirm(sequence).count
            }
            #expect(try await awaited.get() == 0)
        }
    }

    @Test("has a client of a user with too many connections wait for an hour")
    func tooManyConnections() async throws {
        try await Self.with { running, _, collector in
            #expect(collector.text.contains("retry: 2000\n"))
            let (hub, eventLoop) = (running.hub, running.eventLoop)
            try await eventLoop.submit {
                hub.shard(on: eventLoop)?.openSockets(of: "ada").first?.reference.call { $0.close(.tooManyConnections) }
            }.get()
            try await eventually("the goodbye comes") { collector.text.contains("event: goodbye\n") }
            #expect(collector.text.contains("retry: 3600000\n"))
        }
    }

    @Test("answers nothing that a client sends behind its stream, and goes on")
    func pipelined() async throws {
        let second = "GET /v1/stream?ticket=ben HTTP/1.1\r\nhost: x\r\n\r\n"
        let first = second.replacing("ben", with: "ada")
        // A whole request, and the beginning of another.
        try await Self.with(first + second + "GET /v1/str") { running, client, collector in
            try await client.writeAndFlush(ByteBuffer(string: "eam?ticket=cid HTTP/1.1\r\n\r\n")).get()
            let frame = NodeFrame(kind: .event, user: "ada", body: Array(#"{"name":"poke","args":[]}"#.utf8))
            running.hub.deliver([frame])
            try await eventually("the event comes") { collector.text.contains("poke") }
            #expect(collector.text.ranges(of: "HTTP/1.1 ").count == 1)
            #expect(running.hub.count == 1)
        }
    }
}
