// Carillon · TransferProxyTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import NIOCore
import NIOPosix
import Sandbox
import Support
import Synchronization
import Testing

@testable import Clients

@Suite("Transfers through a proxy", .transfer, .timeLimit(.minutes(10)))
struct TransferProxyTests {
    /// Carries bytes to the other side; the client's side first answers its CONNECT.
    private final class Forwarder: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        private let peer: any Channel
        /// The CONNECT request so far; nil once it is answered.
        private var request: [UInt8]?

        init(peer: any Channel, awaitsConnect: Bool) {
            self.peer = peer
            self.request = awaitsConnect ? [] : nil
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let buffer = self.unwrapInboundIn(data)
            guard let request else { return self.peer.writeAndFlush(buffer, promise: nil) }
            // A client sends nothing more before the answer.
            let head = request + Array(buffer.readableBytesView)
            guard head.suffix(4).elementsEqual("\r\n\r\n".utf8) else {
                self.request = head
                return
            }
            self.request = nil
            let answer = ByteBuffer(string: "HTTP/1.1 200 Connection established\r\n\r\n")
            context.writeAndFlush(self.wrapOutboundOut(answer), promise: nil)
        }

        func channelInactive(context: ChannelHandlerContext) {
            self.peer.close(promise: nil)
        }
    }

    /// Starts a proxy whose tunnels lead to a port of this machine; returns its channel.
    private static func tunnel(to port: Int) async throws -> any Channel {
        try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelOption(.autoRead, value: false)
            .childChannelInitializer { inbound in
                ClientBootstrap(group: inbound.eventLoop)
                    .connect(host: "127.0.0.1", port: port)
                    .flatMap { outbound in
                        inbound.eventLoop.makeCompletedFuture {
                            try inbound.pipeline.syncOperations.addHandler(
                                Forwarder(peer: outbound, awaitsConnect: true))
                            try outbound.pipeline.syncOperations.addHandler(
                                Forwarder(peer: inbound, awaitsConnect: false))
                        }
                    }
                    .flatMap { inbound.setOption(.autoRead, value: true) }
            }
            .bind(host: "127.0.0.1", port: 0).get()
    }

    @Test("a request whose tunnel the proxy refuses was not sent", arguments: [403, 407, 502])
    func refused(status: Int) async throws {
        try await HTTPStub.with(HTTPStub.Answer(status: status, body: "no", type: "text/html")) { proxy in
            try await TransferScope.withClient {
                $0.proxy = proxy.url
            } _: { client, sandbox in
                let outcome = await client.perform(sandbox.push())
                let failure = try #require(outcome.failure, "\(outcome)")
                #expect(!failure.mayHaveBeenSent, "\(failure)")
                #expect(proxy.received.first?.head.first?.hasPrefix("CONNECT ") == true)
            }
        }
    }

    @Test("a request that waits for its tunnel was not sent when it times out")
    func silent() async throws {
        try await HTTPStub.with(HTTPStub.Answer(body: "", isSilent: true)) { proxy in
            try await TransferScope.withClient {
                $0.proxy = proxy.url
            } _: { client, sandbox in
                let failure = try #require(await client.perform(sandbox.push(timeout: .seconds(1))).failure)
                #expect(failure.reason == .timeout && !failure.mayHaveBeenSent, "\(failure)")
            }
        }
    }

    @Test("a request that may no longer start before it has a tunnel is not sent")
    func fenced() async throws {
        try await HTTPStub.with(HTTPStub.Answer(body: "", isSilent: true)) { proxy in
            try await TransferScope.withClient {
                $0.proxy = proxy.url
                // The fence comes first.
                $0.connectTimeout = .seconds(600)
            } _: { client, sandbox in
                let mayStart = Mutex(true)
                let push = sandbox.push(timeout: .seconds(600), mayStart: { mayStart.withLock { $0 } })
                let waiter = Task { await client.perform(push) }
                try await eventually("the proxy has the CONNECT") { proxy.requests == 1 }
                mayStart.withLock { $0 = false }
                #expect(await waiter.value.failure == TransferFailure(.fenced))
            }
        }
    }

    @Test("through a tunnel, libcurl resends a stream that was refused once")
    func refusedStream() async throws {
        let sandbox = try #require(TransferScope.sandbox)
        let port = try #require(URLComponents(string: sandbox.url)?.port)
        let proxy = try await Self.tunnel(to: port)
        try await TransferScope.withClient {
            $0.proxy = "http://127.0.0.1:\(proxy.localAddress?.port ?? 0)"
        } _: { client, _ in
            let first = sandbox.push()
            #expect(await client.perform(first).response?.status == 200)
            let push = sandbox.push("deade501")
            #expect(await client.perform(push).response?.status == 200)
            #expect(sandbox.faultAttempts()[String(push.url.suffix(64))] == 2)
            let lost = try #require(await client.perform(sandbox.push("deade300")).failure)
            #expect(lost.mayHaveBeenSent, "\(lost)")
        }
        try await proxy.close().get()
    }
}
