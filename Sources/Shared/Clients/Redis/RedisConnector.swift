// Carillon · RedisConnector.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOPosix
import NIOSSL

/// Opens channels to one Redis server and builds its login commands.
struct RedisConnector: Sendable {
    private let configuration: RedisConfiguration
    private let tls: NIOSSLContext?

    /// - Throws: ``RedisError`` with code `configuration` if the certificate authorities cannot be
    ///   read.
    init(_ configuration: RedisConfiguration) throws(RedisError) {
        self.configuration = configuration
        guard configuration.address.usesTLS else {
            self.tls = nil
            return
        }
        var tls = TLSConfiguration.makeClientConfiguration()
        if let file = configuration.certificateAuthorityFile { tls.trustRoots = .file(file) }
        do {
            self.tls = try NIOSSLContext(configuration: tls)
        } catch {
            throw RedisError(.configuration, "cannot load the certificate authorities: \(NetworkFault.words(error))")
        }
    }

    /// Opens a channel on `eventLoop`; `handler` gets the decrypted bytes.
    func connect(
        on eventLoop: any EventLoop,
        handler: @escaping @Sendable () -> any ChannelInboundHandler & Sendable
    ) -> EventLoopFuture<any Channel> {
        let tls = self.tls
        let address = self.configuration.address
        let bootstrap = ClientBootstrap(group: eventLoop)
            .connectTimeout(TimeAmount(self.configuration.connectTimeout))
            .channelOption(.socketOption(.so_keepalive), value: 1)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    if let tls, case .tcp(let host, _) = address.endpoint {
                        try channel.pipeline.syncOperations.addHandler(Self.tlsHandler(tls, host: host))
                    }
                    try channel.pipeline.syncOperations.addHandler(handler())
                }
            }
        return switch address.endpoint {
        case .tcp(let host, let port): bootstrap.connect(host: host, port: port)
        case .unixSocket(let path): bootstrap.connect(unixDomainSocketPath: path)
        }
    }

    private static func tlsHandler(_ context: NIOSSLContext, host: String) throws -> NIOSSLClientHandler {
        do {
            return try NIOSSLClientHandler(context: context, serverHostname: host)
        } catch let error as NIOSSLExtraError where error == .cannotUseIPAddressInSNI {
            // Server name indication takes no IP address; the certificate is still checked against
            // it.
            return try NIOSSLClientHandler(context: context, serverHostname: nil)
        }
    }

    /// Returns the commands that log in and name the connection; none may fail.
    func login() -> RedisBatch {
        var batch = RedisBatch()
        let address = self.configuration.address
        if let password = address.password {
            if let username = address.username {
                batch.append("AUTH", .text(username), .text(password))
            } else {
                batch.append("AUTH", .text(password))
            }
        }
        batch.append("CLIENT", "SETNAME", .text(self.configuration.clientName))
        if address.database != 0 { batch.append("SELECT", .integer(Int64(address.database))) }
        return batch
    }
}

/// An event of a channel, always delivered on the channel's event loop.
enum RedisChannelEvent: Sendable {
    case bytes(ByteBuffer)
    case failed(String)
    case closed
}

/// Forwards a channel's bytes and its end to its owner on the same event loop.
final class RedisChannelHandler: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer

    private let receive: @Sendable (RedisChannelEvent) -> Void

    init(receive: @escaping @Sendable (RedisChannelEvent) -> Void) {
        self.receive = receive
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        self.receive(.bytes(self.unwrapInboundIn(data)))
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.receive(.closed)
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        self.receive(.failed(NetworkFault.words(error)))
        context.close(promise: nil)
    }
}
