// Carillon · SandboxServer.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1
import NIOHTTP2
import NIOPosix
import NIOSSL
import Synchronization

/// The listeners: TLS with ALPN for the providers, plain HTTP/1.1 for the control calls, SMTP for
/// e-mail.
struct SandboxServer: Sendable {
    private let group: MultiThreadedEventLoopGroup

    /// The port of the TLS listener.
    let port: Int
    /// The port of the control listener.
    let controlPort: Int
    /// The port for SMTP with STARTTLS.
    let smtpPort: Int
    /// The port for SMTP over implicit TLS.
    let smtpsPort: Int

    /// Starts all listeners.
    static func start(
        _ configuration: SandboxConfiguration, credentials: SandboxCredentials, service: SandboxService,
        mail: MailEndpoint
    ) async throws -> SandboxServer {
        let context = try NIOSSLContext(
            configuration: Self.tls(
                credentials, protocols: configuration.speaksHTTP1Only ? ["http/1.1"] : ["h2", "http/1.1"]))
        let mailContext = try NIOSSLContext(configuration: Self.tls(credentials, protocols: []))
        let group = MultiThreadedEventLoopGroup(numberOfThreads: configuration.threads)
        do {
            let secure = try await Self.bootstrap(group)
                .childChannelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: context))
                    }.flatMap {
                        channel.configureHTTP2SecureUpgrade(
                            h2ChannelConfigurator: { Self.configureHTTP2($0, service: service) },
                            http1ChannelConfigurator: { Self.configureHTTP1($0, service: service, transport: .http1) }
                        )
                    }
                }
                .bind(host: configuration.host, port: configuration.port).get()
            let plain = try await Self.bootstrap(group)
                .childChannelInitializer { Self.configureHTTP1($0, service: service, transport: .plain) }
                .bind(host: configuration.host, port: configuration.controlPort).get()
            func listenForMail(_ port: Int, isSecure: Bool) async throws -> any Channel {
                try await Self.bootstrap(group)
                    .childChannelInitializer { channel in
                        channel.eventLoop.makeCompletedFuture {
                            if isSecure {
                                let handler = NIOSSLServerHandler(context: mailContext)
                                try channel.pipeline.syncOperations.addHandler(handler)
                            }
                            try channel.pipeline.syncOperations.addHandler(
                                SMTPConnectionHandler(
                                    mail, tls: mailContext, isSecure: isSecure, slowPause: configuration.slowPause))
                        }
                    }
                    .bind(host: configuration.host, port: port).get()
            }
            let smtp = try await listenForMail(configuration.smtpPort, isSecure: false)
            let smtps = try await listenForMail(configuration.smtpsPort, isSecure: true)
            return SandboxServer(
                group: group, port: secure.localAddress?.port ?? 0, controlPort: plain.localAddress?.port ?? 0,
                smtpPort: smtp.localAddress?.port ?? 0, smtpsPort: smtps.localAddress?.port ?? 0)
        } catch {
            try? await group.shutdownGracefully()
            throw error
        }
    }

    /// Closes the listeners and all connections.
    func stop() async throws {
        try await self.group.shutdownGracefully()
    }

    private static func tls(_ credentials: SandboxCredentials, protocols: [String]) throws -> TLSConfiguration {
        let chain = try NIOSSLCertificate.fromPEMFile(credentials.path(of: .serverCertificate))
        let key = try NIOSSLPrivateKey(file: credentials.path(of: .serverKey), format: .pem)
        var tls = TLSConfiguration.makeServerConfiguration(
            certificateChain: chain.map { .certificate($0) }, privateKey: .privateKey(key))
        tls.minimumTLSVersion = .tlsv12
        tls.shutdownTimeout = .milliseconds(100)  // a peer without close_notify must not delay stop()
        tls.applicationProtocols = protocols
        return tls
    }

    private static func bootstrap(_ group: MultiThreadedEventLoopGroup) -> ServerBootstrap {
        ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 1024)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
    }

    private static func configureHTTP2(_ channel: any Channel, service: SandboxService) -> EventLoopFuture<Void> {
        channel.eventLoop.makeCompletedFuture {
            var configuration = NIOHTTP2Handler.ConnectionConfiguration()
            configuration.initialSettings = HTTP2ConnectionHandler.initialSettings
            // Clients legitimately reset many streams after timeouts, so raise the limits against
            // rapid resets.
            configuration.maximumConnectionGlitches = 100_000
            var streams = NIOHTTP2Handler.StreamConfiguration()
            streams.streamResetFrameRateLimit.maximumCount = 100_000
            streams.streamErrorRateLimit.maximumCount = 100_000
            let frames = NIOHTTP2Handler(
                mode: .server, connectionConfiguration: configuration, streamConfiguration: streams)
            try channel.pipeline.syncOperations.addHandlers(frames, HTTP2ConnectionHandler(service: service))
        }
    }

    private static func configureHTTP1(
        _ channel: any Channel, service: SandboxService, transport: SandboxRequest.Transport
    ) -> EventLoopFuture<Void> {
        channel.eventLoop.makeCompletedFuture {
            try channel.pipeline.syncOperations.configureHTTPServerPipeline(withErrorHandling: true)
            let handler = HTTP1ConnectionHandler(service: service, transport: transport)
            try channel.pipeline.syncOperations.addHandler(handler)
        }
    }
}

/// The address of a sandbox, known once it listens.
final class SandboxLocation: Sendable {
    private let text = Mutex("")

    /// The TLS address, such as `https://127.0.0.1:40001`.
    var url: String {
        get { self.text.withLock { $0 } }
        set { self.text.withLock { $0 = newValue } }
    }
}

/// Routes each request to its endpoint.
final class SandboxService: Sendable {
    private let tokens: TokenEndpoint
    private let fcm: FCMEndpoint
    private let apns: APNSEndpoint
    private let webPush: WebPushEndpoint
    private let webhook: WebhookEndpoint
    private let control: ControlEndpoint

    init(
        tokens: TokenEndpoint, fcm: FCMEndpoint, apns: APNSEndpoint, webPush: WebPushEndpoint,
        webhook: WebhookEndpoint, control: ControlEndpoint
    ) {
        self.tokens = tokens
        self.fcm = fcm
        self.apns = apns
        self.webPush = webPush
        self.webhook = webhook
        self.control = control
    }

    /// Answers a request; runs on the connection's event loop and never blocks.
    func answer(_ request: SandboxRequest, on connection: inout SandboxConnection) -> SandboxAnswer {
        if request.transport == .plain { return .respond(self.control.respond(to: request)) }
        if request.path.hasPrefix("/3/") { return self.apns.answer(request, on: &connection) }
        connection.isTrusted = true
        if request.path.hasPrefix("/v1/projects/") { return self.fcm.answer(request) }
        if request.path.hasPrefix(SandboxSubscription.path) { return self.webPush.answer(request) }
        if request.path == WebhookEndpoint.path { return self.webhook.answer(request) }
        if request.path == "/token" { return self.tokens.answer(request) }
        return .respond(self.control.respond(to: request))
    }
}
