// Carillon · RedisConnector.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOPosix
import NIOSSL
import Synchronization

/// Opens channels to a Redis server, finds it through Sentinels or in a cluster, and logs in.
struct RedisConnector: Sendable {
    /// A channel, and the address of the server at its other end.
    struct Opened: Sendable {
        let channel: any Channel
        let server: RedisAddress
    }

    /// How often a connected process asks Sentinels whether the master is still the same; Sentinels
    /// also announce a switch, but a client can miss that.
    static let sentinelInterval: Duration = .seconds(5)
    /// Connections that were lost together share an answer of this age.
    private static let sharedAge: Duration = .milliseconds(50)

    private let configuration: RedisConfiguration
    /// Nil without TLS.
    let tls: NIOSSLContext?

    /// - Throws: ``RedisError`` with code `configuration` if the certificate authorities cannot be
    ///   read.
    init(_ configuration: RedisConfiguration) throws(RedisError) {
        self.configuration = configuration
        self.tls =
            try configuration.address.usesTLS
            ? configuration.trust.context(authorities: configuration.certificateAuthorityFile) : nil
    }

    /// Whether Sentinels name the server.
    var usesSentinels: Bool {
        if case .sentinels = self.configuration.address.endpoint { true } else { false }
    }

    /// Opens a channel on `eventLoop`.
    ///
    /// - Parameters:
    ///   - turn: picks the master if the address is of a cluster; the next number picks the next
    ///     master.
    ///   - receive: called on `eventLoop` with the channel's events.
    func connect(
        on eventLoop: any EventLoop,
        turn: Int = 0,
        receive: @escaping @Sendable (RedisChannelEvent) -> Void
    ) -> EventLoopFuture<Opened> {
        let configuration = self.configuration
        let address: EventLoopFuture<RedisAddress>
        switch configuration.address.endpoint {
        case .tcp, .unixSocket: return self.connect(to: configuration.address, on: eventLoop, receive)
        case .sentinels:
            address = eventLoop.makeFutureWithTask { try await self.master(within: Self.sharedAge, on: eventLoop) }
        case .cluster:
            address = eventLoop.makeFutureWithTask {
                let map = try await configuration.topology.refresh(configuration, within: Self.sharedAge, on: eventLoop)
                return configuration.of(map.servers[turn % map.servers.count]).address
            }
        }
        return address.flatMap { self.connect(to: $0, on: eventLoop, receive) }
    }

    /// Closes a channel that opened too late for its owner.
    static func close(_ result: Result<Opened, any Error>) {
        if case .success(let opened) = result { opened.channel.close(promise: nil) }
    }

    /// Whether Sentinels still name `server` as the master; true if none answers.
    func isMaster(_ server: RedisAddress, on eventLoop: any EventLoop) async -> Bool {
        let age = Self.sentinelInterval / 2
        guard let master = try? await self.master(within: age, on: eventLoop) else { return true }
        return master == server
    }

    private func master(within age: Duration, on eventLoop: any EventLoop) async throws -> RedisAddress {
        try await self.configuration.sentinels.master(self.configuration, within: age, on: eventLoop)
    }

    private func connect(
        to address: RedisAddress,
        on eventLoop: any EventLoop,
        _ receive: @escaping @Sendable (RedisChannelEvent) -> Void
    ) -> EventLoopFuture<Opened> {
        let tls = self.tls
        let bootstrap = ClientBootstrap(group: eventLoop)
            .connectTimeout(TimeAmount(self.configuration.connectTimeout))
            .channelOption(.socketOption(.so_keepalive), value: 1)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    if let tls, case .tcp(let server) = address.endpoint {
                        try channel.pipeline.syncOperations.addHandler(Self.tlsHandler(tls, host: server.host))
                    }
                    try channel.pipeline.syncOperations.addHandler(RedisChannelHandler(receive: receive))
                }
            }
        let channel: EventLoopFuture<any Channel> =
            switch address.endpoint {
            case .tcp(let server):
                bootstrap.resolver(server.isAddress ? nil : self.resolver(on: eventLoop))
                    .connect(host: server.host, port: server.port)
            case .unixSocket(let path): bootstrap.connect(unixDomainSocketPath: path)
            case .sentinels, .cluster:
                eventLoop.makeFailedFuture(RedisError(.configuration, "the address names no single server"))
            }
        return channel.map { Opened(channel: $0, server: address) }
    }

    private func resolver(on eventLoop: any EventLoop) -> RedisResolver {
        RedisResolver(
            names: self.configuration.names, limit: self.configuration.connectTimeout / 2, eventLoop: eventLoop)
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

    /// Returns the commands that log in, name the connection and ask for its id.
    ///
    /// ``identifier(_:checksRole:)`` takes the replies.
    ///
    /// - Parameter checksRole: whether only a master will do.
    func login(checksRole: Bool) -> RedisBatch {
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
        if checksRole { batch.append("ROLE") }
        batch.append("CLIENT", "ID")
        return batch
    }

    /// Returns why the server closed the connection during the login; nil if it did not say.
    ///
    /// A server at its `maxclients`, or in its protected mode, sends a single error first.
    ///
    /// - Parameter replies: the replies to ``login(checksRole:)`` so far.
    static func refusal(_ replies: [RedisReply]) -> RedisError? {
        guard case .error(let error) = replies.first else { return nil }
        return RedisError(error.code, "login refused: \(error.message ?? "")")
    }

    /// Checks the replies to ``login(checksRole:)``, and returns the server's id of the connection;
    /// 0 if the server does not tell.
    ///
    /// - Throws: ``RedisError`` if a command failed, or if the server must be a master and is not.
    static func identifier(_ replies: [RedisReply], checksRole: Bool) throws(RedisError) -> Int {
        var replies = replies
        let identifier = try? replies.popLast()?.integer()
        let role = checksRole ? replies.popLast() : nil
        for case .error(let error) in replies {
            throw RedisError(error.code, "login refused: \(error.message ?? "")")
        }
        // An access list may refuse ROLE; a replica then refuses the first write.
        if case .error(let error) = role, error.serverCode == "NOPERM" { return Int(identifier ?? 0) }
        if var role = try role?.cursor(), try role.array() != nil, try role.string() != "master" {
            throw RedisError(.unavailable, "the server is a replica")
        }
        return Int(identifier ?? 0)
    }
}

/// Looks up the addresses of one host for an attempt to connect.
struct RedisResolver: Resolver {
    let names: NameResolver
    /// The time limit of a lookup while earlier addresses are known; without any, twice as long.
    let limit: Duration
    let eventLoop: any EventLoop

    func initiateAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        self.addresses(of: host, port: port, .inet)
    }

    func initiateAAAAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        self.addresses(of: host, port: port, .inet6)
    }

    // A running lookup continues, and serves the next attempt.
    func cancelQueries() {}

    private func addresses(
        of host: String,
        port: Int,
        _ family: NIOBSDSocket.ProtocolFamily
    ) -> EventLoopFuture<[SocketAddress]> {
        self.eventLoop.makeFutureWithTask {
            var found = await self.names.addresses(of: host, within: self.limit)
            // Without earlier addresses, wait as long as the attempt does.
            if found == nil { found = await self.names.addresses(of: host, within: self.limit) }
            return (found ?? []).compactMap { try? SocketAddress(ipAddress: $0, port: port) }
                .filter { $0.protocol == family }
        }
    }
}

/// The TLS contexts of all connections with copies of one configuration.
///
/// A context has a copy of all certificate authorities, about 1 MB of the system's.
final class RedisTrust: Sendable {
    private let contexts = Mutex<[String?: NIOSSLContext]>([:])

    /// Returns the context that trusts the authorities in a file; nil means the system's.
    ///
    /// Reads each file once.
    ///
    /// - Throws: ``RedisError`` with code `configuration` if the file cannot be read.
    func context(authorities file: String?) throws(RedisError) -> NIOSSLContext {
        do {
            return try self.contexts.withLock { contexts in
                if let known = contexts[file] { return known }
                var tls = TLSConfiguration.makeClientConfiguration()
                if let file { tls.trustRoots = .file(file) }
                let context = try NIOSSLContext(configuration: tls)
                contexts[file] = context
                return context
            }
        } catch {
            throw RedisError(.configuration, "cannot load the certificate authorities: \(NetworkFault.words(error))")
        }
    }
}

/// An event of a channel, always delivered on the channel's event loop.
enum RedisChannelEvent: Sendable {
    /// Bytes arrived, decrypted.
    case bytes(ByteBuffer)
    /// The channel closed; the text is the reason.
    case closed(String)
}

/// Forwards a channel's bytes and its end to its owner on the same event loop.
private final class RedisChannelHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let receive: @Sendable (RedisChannelEvent) -> Void
    /// The first error on the channel.
    private var fault: String?

    init(receive: @escaping @Sendable (RedisChannelEvent) -> Void) {
        self.receive = receive
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        self.receive(.bytes(self.unwrapInboundIn(data)))
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.receive(.closed(self.fault ?? "the connection was closed"))
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        self.fault = self.fault ?? NetworkFault.words(error)
        context.close(promise: nil)
    }
}
