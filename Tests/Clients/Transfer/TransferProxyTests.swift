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
                    .connectTimeout(TimeAmount(longestWait))
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
                // Later versions of libcurl name the connection.
                let reasons: [TransferFailure.Reason] = [.connectionLost, .connect]
                #expect(reasons.contains(failure.reason) && !failure.mayHaveBeenSent, "\(failure)")
                #expect(proxy.received.first?.head.first?.hasPrefix("CONNECT ") == true)
            }
        }
    }

    @Test("the names of strangers' URLs are left to a proxy")
    func names() async throws {
        try await HTTPStub.with(HTTPStub.Answer(status: 502, body: "no")) { proxy in
            try await TransferScope.withClient {
                $0.proxy = proxy.url
                $0.strangersChooseURLs = true
                $0.lookUp = { _ in [] }
            } _: { client, _ in
                let request = TransferRequest(.get, url: "https://name.invalid/", timeout: .seconds(600))
                _ = await client.perform(request)
                #expect(proxy.received.first?.head.first?.hasPrefix("CONNECT name.invalid:443 ") == true)
            }
        }
    }

    @Test(
        "a proxy of the environment counts as it does for libcurl",
        arguments: [
            ("http_proxy", "http://p:1", true), ("https_proxy", "http://p:1", true),
            ("HTTPS_PROXY", "http://p:1", true), ("all_proxy", "http://p:1", true),
            ("ALL_PROXY", "http://p:1", true), ("HTTPS_PROXY", "", false), ("HTTP_PROXY", "http://p:1", false),
            ("NO_PROXY", "*", false),
        ])
    func environment(name: String, value: String, isProxy: Bool) {
        #expect(TransferConfiguration.namesProxy { $0 == name ? value : nil } == isProxy)
    }

    @Test("a request that waits for its tunnel was not sent when it times out")
    func silent() async throws {
        try await HTTPStub.with(HTTPStub.Answer(body: "", isSilent: true)) { proxy in
            try await TransferScope.withClient {
                $0.proxy = proxy.url
            } _: { client, sandbox in
                let failure = try await valueInTime("the proxy has the CONNECT") { limit in
                    let failure = try #require(await client.perform(sandbox.push(timeout: limit)).failure)
                    return proxy.requests > 0 && failure.reason != .noTurn ? failure : nil
                }
                #expect(failure.reason == .timeout && !failure.mayHaveBeenSent, "\(failure)")
            }
        }
    }

    @Test("a request that may no longer start before it has a tunnel is not sent")
    func fenced() async throws {
        try await HTTPStub.with(HTTPStub.Answer(body: "", isSilent: true)) { proxy in
            try await TransferScope.withClient {
                $0.proxy = proxy.url
            } _: { client, sandbox in
                let mayStart = Mutex(true)
                let push = sandbox.push(mayStart: { mayStart.withLock { $0 } })
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
