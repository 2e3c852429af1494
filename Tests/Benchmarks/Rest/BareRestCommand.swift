// Carillon · BareRestCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix

/// The yardstick for REST: plain NIO channels with routes that return fixed JSON.
struct BareRestCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bare-rest",
        abstract: "Runs an HTTP server without Carillon as a yardstick.",
        shouldDisplay: false
    )

    @Option(help: "A path and a file with its response, as PATH=FILE.")
    var route: [String]

    func run() async throws {
        var bodies: [String: ByteBuffer] = [:]
        for route in self.route {
            let parts = route.split(separator: "=", maxSplits: 1)
            guard parts.count == 2 else { throw ValidationError("--route: not PATH=FILE") }
            bodies[String(parts[0])] = ByteBuffer(bytes: try Data(contentsOf: URL(fileURLWithPath: String(parts[1]))))
        }
        let routes = bodies
        // A loop for each core, as in a gateway.
        let listener = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    try pipeline.configureHTTPServerPipeline(withPipeliningAssistance: false, withErrorHandling: false)
                    try pipeline.addHandler(BareRoutes(routes))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let line = "ready http://127.0.0.1:\(listener.localAddress?.port ?? 0)\n"
        FileHandle.standardOutput.write(Data(line.utf8))
        try await listener.closeFuture.get()
    }
}

/// Answers each request with the body of its path.
private final class BareRoutes: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    private let bodies: [String: ByteBuffer]
    private var body: ByteBuffer?

    init(_ bodies: [String: ByteBuffer]) {
        self.bodies = bodies
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch self.unwrapInboundIn(data) {
        case .head(let head): self.body = self.bodies[String(head.uri.prefix { $0 != "?" })]
        case .body: break
        case .end:
            let length = self.body?.readableBytes ?? 0
            let head = HTTPResponseHead(
                version: .http1_1, status: self.body == nil ? .notFound : .ok,
                headers: ["content-type": "application/json", "content-length": "\(length)"])
            context.write(self.wrapOutboundOut(.head(head)), promise: nil)
            if let body { context.write(self.wrapOutboundOut(.body(.byteBuffer(body))), promise: nil) }
            context.writeAndFlush(self.wrapOutboundOut(.end(nil)), promise: nil)
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }
}
