// Carillon · DoorHandler.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import HummingbirdCore
import Logging
import NIOCore
import NIOHTTP1
import NIOHTTPTypes
import NIOHTTPTypesHTTP1
import Protocols

/// Stands between a connection's HTTP and whoever answers it: an endpoint, a WebSocket, or the HTTP server.
///
/// Requests are answered in their order: while one is being answered by one side, the next one waits here if it is the
/// other side's.
final class DoorHandler: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias InboundOut = HTTPServerRequestPart
    typealias OutboundIn = HTTPServerResponsePart
    typealias OutboundOut = HTTPServerResponsePart

    // Parts, and bytes, of requests that wait for the ones before them; a client that sends more is
    // closed. Nothing is read meanwhile, so more than that comes only as the client leaves.
    private static let longestQueue = 256
    private static let largestQueue = 32 * 1024

    enum Phase {
        /// Waits for a request.
        case idle
        /// A request of an endpoint's is coming in.
        case collecting(HTTPExchange, ByteBuffer, any TransportEndpoint)
        /// A WebSocket is being decided about.
        case deciding
        /// An endpoint answers.
        case answering
        /// A request of the server's is coming in.
        case forwarding
        /// Too much came in: the rest is not read.
        case refusing
        case over
    }

    private let endpoints: [any TransportEndpoint]
    let timeouts: DoorTimeouts
    let policy: DoorPolicy
    private let http: HTTP1Channel.Configuration
    private let encoder: HTTPResponseEncoder
    private let decoder: ByteToMessageHandler<HTTPRequestDecoder>
    private let outcome: EventLoopPromise<DoorChannel.Outcome>
    private let logger: Logger

    private(set) var context: ChannelHandlerContext?
    var phase = Phase.idle
    var exchange: HTTPExchange?
    private var waiting: [HTTPServerRequestPart] = []
    private var waitingBytes = 0
    private var isDraining = false
    /// A read that was asked for while none may be made.
    private var isReadHeld = false
    /// Bytes of the body that is coming in, and those of them that are kept.
    private var received = 0
    private var kept = 0
    /// Counts what the connection holds of requests that are not answered.
    private var share: TallyShare
    var timeout: Scheduled<Void>?
    private(set) var hasServer = false
    private var isSettled = false
    /// Whether it counts for its client's address.
    var isCounted = false
    /// Requests of the server's that it has not answered.
    private var owed = 0
    /// What the pages that sent those may do with their answers, in order.
    private var grants: [AllowedOrigins.Grant?] = []
    /// Runs while the client does not read what was written.
    var stall: Scheduled<Void>?
    /// The server wants the connection closed once the endpoint has answered.
    var mustClose = false

    init(
        endpoints: [any TransportEndpoint],
        timeouts: DoorTimeouts,
        policy: DoorPolicy,
        http: HTTP1Channel.Configuration,
        encoder: HTTPResponseEncoder,
        decoder: ByteToMessageHandler<HTTPRequestDecoder>,
        outcome: EventLoopPromise<DoorChannel.Outcome>,
        logger: Logger
    ) {
        self.endpoints = endpoints
        self.timeouts = timeouts
        self.policy = policy
        self.share = TallyShare(of: policy.bodies)
        self.http = http
        self.encoder = encoder
        self.decoder = decoder
        self.outcome = outcome
        self.logger = logger
    }

    // MARK: Channel

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        self.closeAfter(self.timeouts.firstRequest)
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.leave()
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.leave()
        context.fireChannelInactive()
    }

    private func leave() {
        self.timeout?.cancel()
        self.stall?.cancel()
        self.settle(.taken)
        self.context = nil
        self.waiting = []
        self.waitingBytes = 0
        self.forgetBody()
        let incoming = self.incoming
        self.phase = .over
        incoming?.abort()
        let exchange = self.exchange
        self.exchange = nil
        exchange?.abort()
    }

    /// The exchange whose body is coming in.
    var incoming: HTTPExchange? {
        guard case .collecting(let exchange, _, _) = self.phase else { return nil }
        return exchange
    }

    func settle(_ outcome: DoorChannel.Outcome) {
        guard !self.isSettled else { return }
        self.isSettled = true
        self.outcome.succeed(outcome)
    }

    func closeAfter(_ duration: Duration) {
        self.timeout?.cancel()
        guard let context else { return }
        let bound = NIOLoopBound(context, eventLoop: context.eventLoop)
        self.timeout = context.eventLoop.scheduleTask(in: TimeAmount(duration)) { bound.value.close(promise: nil) }
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        self.stall?.cancel()
        self.stall = nil
        if context.channel.isWritable {
            self.resumeReading()
        } else {
            self.watchReader(context, waiting: self.backlog)
        }
        context.fireChannelWritabilityChanged()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard let fault = error as? HTTPParserError else {
            if self.hasServer, self.exchange == nil { return context.fireErrorCaught(error) }
            return context.close(promise: nil)
        }
        // A client that leaves in the middle of a request is not refused.
        if fault != .invalidEOFState { DoorMetrics.refusedHeads.increment() }
        guard case .idle = self.phase, self.owed == 0 else { return context.close(promise: nil) }
        let refusal: TransportRefusal =
            switch fault {
            case .headerOverflow: .problem(.requestHeaderFieldsTooLarge, "the request's head is too large")
            default: .problem(.badRequest, "the request is not valid HTTP")
            }
        self.answer(nil, refusal)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case is ChannelShouldQuiesceEvent where self.isBusy:
            self.mustClose = true
            // The server need not wait for it: whoever answers it ends with the sockets.
            if !self.hasServer { self.settle(.taken) }
        case is ChannelShouldQuiesceEvent where !self.hasServer: context.close(promise: nil)
        case ChannelEvent.inputClosed where self.exchange != nil || !self.hasServer: context.close(promise: nil)
        default: context.fireUserInboundEventTriggered(event)
        }
    }

    /// Whether a request of an endpoint's is coming in or being answered.
    private var isBusy: Bool {
        switch self.phase {
        case .collecting, .answering: true
        case .idle, .deciding, .forwarding, .refusing, .over: false
        }
    }

    /// The server may not end the connection while an endpoint answers on it.
    func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        guard self.exchange != nil, mode != .input else { return context.close(mode: mode, promise: promise) }
        self.mustClose = true
        promise?.succeed()
    }

    // MARK: Requests

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let part = self.unwrapInboundIn(data)
        guard self.waiting.isEmpty, self.accepts(part) else { return self.keep(part, context) }
        self.take(part, context)
    }

    /// Has a part wait for the request before it.
    private func keep(_ part: HTTPServerRequestPart, _ context: ChannelHandlerContext) {
        let bytes = self.waitingBytes + part.bytes
        guard self.waiting.count < Self.longestQueue, bytes <= Self.largestQueue else {
            DoorMetrics.refusedPipelines.increment()
            return context.close(promise: nil)
        }
        self.waiting.append(part)
        self.waitingBytes = bytes
        guard self.count() else {
            DoorMetrics.refusedMemory.increment()
            return context.close(promise: nil)
        }
    }

    /// Whether a part can be dealt with now.
    private func accepts(_ part: HTTPServerRequestPart) -> Bool {
        switch self.phase {
        case .deciding, .answering: return false
        case .idle:
            guard case .head(let head) = part, self.endpoint(of: head) != nil || head.hostFault != nil else {
                return true
            }
            return self.owed == 0
        case .collecting, .forwarding, .refusing, .over: return true
        }
    }

    // MARK: Reading

    /// Whether reads wait: a request is being answered, others wait for it, or the client does not
    /// read its answers.
    ///
    /// A client that leaves is noticed all the same: epoll reports the end of its half, and NIO
    /// then reads all that it had sent.
    private var holdsReads: Bool {
        switch self.phase {
        case .deciding, .answering: true
        case .idle: !self.waiting.isEmpty || self.context?.channel.isWritable == false
        case .collecting, .forwarding, .refusing, .over: false
        }
    }

    func read(context: ChannelHandlerContext) {
        if self.holdsReads { self.isReadHeld = true } else { context.read() }
    }

    /// Makes the read that was held, if it may be made now.
    private func resumeReading() {
        guard self.isReadHeld, !self.holdsReads, let context else { return }
        self.isReadHeld = false
        context.read()
    }

    /// Counts what is held; false if the process has too much of it.
    private func count() -> Bool { self.share.hold(self.kept + self.waitingBytes) }

    /// The body that came in is not needed any more.
    func forgetBody() {
        self.kept = 0
        // It can only become less.
        _ = self.count()
    }

    private func endpoint(of head: HTTPRequestHead) -> (any TransportEndpoint)? {
        if DoorPolicy.isPreflight(head) { return PreflightEndpoint(policy: self.policy) }
        return self.owner(of: head)
    }

    /// Whose path it is; nil for the server's.
    func owner(of head: HTTPRequestHead) -> (any TransportEndpoint)? {
        let path = head.uri.prefix { $0 != "?" }
        return self.endpoints.first { $0.claims(path) }
    }

    private func take(_ part: HTTPServerRequestPart, _ context: ChannelHandlerContext) {
        switch (self.phase, part) {
        case (.idle, .head(let head)):
            self.timeout?.cancel()
            if let endpoint = self.endpoint(of: head) {
                self.begin(head, endpoint, context)
            } else {
                self.forward(head, context)
            }
        case (.forwarding, _):
            if case .end = part {
                self.phase = .idle
                self.timeout?.cancel()
            }
            context.fireChannelRead(self.wrapInboundOut(part))
        case (.collecting(let exchange, var body, let endpoint), .body(let bytes)):
            self.received += bytes.readableBytes
            guard self.received <= endpoint.maximumBody else {
                DoorMetrics.refusedBodies.increment()
                return self.answer(exchange.head, endpoint.refusal(.payloadTooLarge, reason: "the body is too large"))
            }
            guard exchange.keepsBody else { return }
            self.kept += bytes.readableBytes
            guard self.count() else {
                DoorMetrics.refusedMemory.increment()
                let reason = "too many bodies are coming in, try again later"
                return self.answer(exchange.head, endpoint.refusal(.serviceUnavailable, reason: reason))
            }
            self.phase = .idle
            body.writeImmutableBuffer(bytes)
            self.phase = .collecting(exchange, body, endpoint)
        case (.collecting(let exchange, let body, let endpoint), .end):
            self.timeout?.cancel()
            self.exchange = exchange
            self.phase = .answering
            exchange.complete(body, endpoint)
        default: break
        }
    }

    private func begin(_ head: HTTPRequestHead, _ endpoint: any TransportEndpoint, _ context: ChannelHandlerContext) {
        guard WebSocketHandshake.isAskedFor(by: head) else {
            let exchange = HTTPExchange(
                head: head,
                address: context.remoteAddress,
                eventLoop: context.eventLoop,
                door: self
            )
            if let fault = head.hostFault {
                DoorMetrics.refusedHeads.increment()
                return self.answer(head, endpoint.refusal(.badRequest, reason: fault))
            }
            self.received = 0
            self.phase = .collecting(exchange, ByteBuffer(), endpoint)
            self.limitBody()
            return endpoint.begin(exchange)
        }
        self.phase = .deciding
        if let fault = WebSocketHandshake.fault(head) {
            var refusal = endpoint.refusal(fault.status, reason: fault.reason)
            // The client is told which version would do, in whatever words it is refused (RFC 6455 section 4.4).
            if fault.status == .upgradeRequired {
                refusal.headers.replaceOrAdd(name: "sec-websocket-version", value: "13")
            }
            self.answer(nil, refusal)
        } else if !self.policy.admitsOrigin(head) {
            DoorMetrics.refusedOrigins.increment()
            self.answer(nil, endpoint.refusal(.forbidden, reason: "pages of this origin may not open sockets here"))
        } else if !self.countAddress(head) {
            self.answer(nil, endpoint.refusal(.tooManyRequests, reason: "too many sockets of this address are open"))
        } else {
            self.decide(head, endpoint, context)
        }
    }

    // MARK: The server

    private func forward(_ head: HTTPRequestHead, _ context: ChannelHandlerContext) {
        if let fault = head.hostFault {
            DoorMetrics.refusedHeads.increment()
            return self.answer(head, .problem(.badRequest, fault))
        }
        let length = head.headers.first(name: "content-length").flatMap { Int($0) } ?? 0
        if length > self.policy.maximumBody, self.owed == 0 {
            DoorMetrics.refusedBodies.increment()
            return self.answer(head, .problem(.payloadTooLarge, "the body is too large"))
        }
        self.phase = .forwarding
        self.limitBody()
        do {
            if !self.hasServer { try self.addServer(context) }
            self.owed += 1
            self.grants.append(self.policy.grant(head))
            context.fireChannelRead(self.wrapInboundOut(.head(head)))
        } catch {
            self.logger.error("connection cannot be set up", metadata: ["error": "\(error)"])
            context.close(promise: nil)
        }
    }

    private func addServer(_ context: ChannelHandlerContext) throws {
        guard !self.isSettled else { throw ChannelError.operationUnsupported }
        let pipeline = context.channel.pipeline.syncOperations
        try pipeline.addHandler(HTTP1ToHTTPServerCodec(secure: false))
        try pipeline.addHandlers(self.http.additionalChannelHandlers())
        try pipeline.addHandler(
            HTTPConnectionStateHandler(idleTimeout: self.http.idleTimeout.map { .init($0) }, logger: self.logger)
        )
        let channel = try NIOAsyncChannel<HTTPRequestPart, HTTPResponsePart>(
            wrappingChannelSynchronously: context.channel,
            configuration: .init(isOutboundHalfClosureEnabled: true)
        )
        self.hasServer = true
        self.settle(.http(channel))
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        // A socket's frame, while this handler leaves.
        if case .over = self.phase { return context.write(data, promise: promise) }
        switch self.unwrapOutboundIn(data) {
        case .head(var head) where head.status.code >= 200:
            self.policy.protect(&head.headers, self.grants.first ?? nil)
            return context.write(self.wrapOutboundOut(.head(head)), promise: promise)
        case .head, .body: return context.write(data, promise: promise)
        case .end: context.write(data, promise: promise)
        }
        self.owed = max(0, self.owed - 1)
        if !self.grants.isEmpty { self.grants.removeFirst() }
        if self.owed == 0, !self.waiting.isEmpty { self.drain() }
    }

    /// Goes on with what came in meanwhile.
    func drain() {
        guard !self.isDraining else { return }
        self.isDraining = true
        var isForwarded = false
        while let part = self.waiting.first, let context, self.accepts(part) {
            self.waiting.removeFirst()
            self.waitingBytes -= part.bytes
            self.take(part, context)
            if case .forwarding = self.phase { isForwarded = true }
        }
        self.isDraining = false
        _ = self.count()
        // The server looks at what was read when a read is complete, and this one was long ago.
        if isForwarded { self.context?.fireChannelReadComplete() }
        self.resumeReading()
    }

    // MARK: WebSockets

    private func decide(_ head: HTTPRequestHead, _ endpoint: any TransportEndpoint, _ context: ChannelHandlerContext) {
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        let address = context.remoteAddress
        let admission = context.eventLoop.makeFutureWithTask { try await endpoint.admit(head, from: address) }
        admission.whenComplete { result in
            let (handler, context) = bound.value
            guard case .deciding = handler.phase, context.channel.isActive else { return }
            switch result {
            case .success(let admission): handler.accept(head, admission, endpoint, context)
            case .failure(let refusal as TransportRefusal): handler.answer(nil, refusal)
            case .failure(let error):
                handler.logger.warning("socket cannot be admitted", metadata: ["error": "\(error)"])
                handler.answer(nil, endpoint.refusal(.serviceUnavailable, reason: "try again later"))
            }
        }
    }

    private func accept(
        _ head: HTTPRequestHead,
        _ admission: WebSocketAdmission,
        _ endpoint: any TransportEndpoint,
        _ context: ChannelHandlerContext
    ) {
        guard !self.hasServer, let application = admission.open(context.eventLoop) else {
            return self.answer(nil, endpoint.refusal(.serviceUnavailable, reason: "try again later"))
        }
        let response = WebSocketHandshake.acceptance(of: head, subprotocol: admission.subprotocol)
        context.write(self.wrapOutboundOut(.head(response)), promise: nil)
        context.writeAndFlush(self.wrapOutboundOut(.end(nil)), promise: nil)
        self.phase = .over
        let channel = context.channel
        let pipeline = channel.pipeline.syncOperations
        do {
            // First, since the socket may speak as soon as it is there.
            pipeline.removeHandler(self.encoder, promise: nil)
            try pipeline.addHandler(
                WebSocketHandler(application: application, limits: admission.limits, bodies: self.policy.bodies))
            self.settle(.taken)
            // What came after the request is the socket's; the decoder gives it up as it leaves.
            pipeline.removeHandler(self.decoder, promise: nil)
            pipeline.removeHandler(context: context, promise: nil)
            if self.isReadHeld { channel.read() }
        } catch {
            self.logger.error("socket cannot be set up", metadata: ["error": "\(error)"])
            channel.close(promise: nil)
        }
    }
}

extension HTTPServerRequestPart {
    /// About as many bytes as it came in.
    fileprivate var bytes: Int {
        switch self {
        case .head(let head):
            head.headers.reduce(head.uri.utf8.count) { $0 + $1.name.utf8.count + $1.value.utf8.count }
        case .body(let bytes): bytes.readableBytes
        case .end: 0
        }
    }
}

extension HTTPRequestHead {
    /// The fault of the `Host` field (RFC 9112 section 3.2); nil if it has none.
    fileprivate var hostFault: String? {
        let hosts = self.headers["host"]
        if hosts.count > 1 { return "the Host header must be there once" }
        guard let host = hosts.first else {
            return (self.version.major, self.version.minor) < (1, 1) ? nil : "the Host header is missing"
        }
        return host.utf8.allSatisfy(Self.isOfHost) ? nil : "the Host header must be a host and its port"
    }

    private static func isOfHost(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: "-._~%!$&'()*+;=:[]".utf8.contains(byte)
        }
    }
}
