// Carillon · ConnectionHandler.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import HummingbirdCore
import Logging
import NIOCore
import NIOHTTP1
import NIOHTTPTypes
import NIOHTTPTypesHTTP1
import Protocols

/// Routes a connection's requests to an endpoint, a WebSocket or the HTTP server.
///
/// Requests are answered in order: while one is being answered, the next waits here.
final class ConnectionHandler: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias InboundOut = HTTPServerRequestPart
    typealias OutboundIn = HTTPServerResponsePart
    typealias OutboundOut = HTTPServerResponsePart

    /// How many parts of up to 16 KB wait for the server before reading stops.
    ///
    /// No budget counts them. A request without a large body has three.
    private static let serverInput = NIOAsyncSequenceProducerBackPressureStrategies.HighLowWatermark(
        lowWatermark: 2, highWatermark: 4)

    enum Phase {
        /// Waits for a request.
        case idle
        /// Receives a request for an endpoint.
        case collecting(HTTPExchange, ByteBuffer, any TransportEndpoint)
        /// Waits for an endpoint to admit a WebSocket.
        case deciding
        /// Waits for an endpoint's answer.
        case answering
        /// Receives a request for the server.
        case forwarding
        /// Discards the rest after a refusal.
        case refusing
        case over
    }

    private let endpoints: [any TransportEndpoint]
    let timeouts: ConnectionTimeouts
    let policy: ConnectionPolicy
    private let http: HTTP1Channel.Configuration
    /// Nil once a stream has begun.
    var codec: ConnectionCodec?
    /// Whether to resume NIO's decoder after the arriving request: it stops there, but no WebSocket
    /// opens.
    private var mustResume = false
    private let outcome: EventLoopPromise<ConnectionChannel.Outcome>
    private let logger: Logger

    private(set) var context: ChannelHandlerContext?
    var phase = Phase.idle
    var exchange: HTTPExchange?
    private var waiting = PipelinedParts()
    /// Whether the connection is beyond the limit, and may only probe.
    private let isSpare: Bool
    private var isDraining = false
    /// Whether the client has closed its half while requests wait for the server.
    private var isInputClosed = false
    /// Whether a read was requested while reads are held.
    private var isReadHeld = false
    /// Bytes of the incoming body, received and kept.
    private var received = 0
    private var kept = 0
    /// Counts the bytes of unanswered requests that the connection holds.
    private var share: BudgetShare
    /// Watches a client that reads too slowly; nil until the connection was full.
    var slowReader: SlowReader?
    /// Closes or refuses a connection that takes too long for the next step.
    private var limit: TimeLimit?
    /// Closes the connection after the server's idle time; removed for a socket.
    private var serverState: HTTPConnectionStateHandler?
    /// Whether the connection has the server's handlers.
    var hasServer: Bool { self.serverState != nil }
    private var isSettled = false
    /// The client's address that the connection counts for, in a box that outlives this handler.
    private var counted: NIOLoopBoundBox<ClientAddress>?
    /// The version and CORS grant of the answer that the server owes; nil if it owes none.
    private var serverAnswer: (version: HTTPVersion, grant: AllowedOrigins.Grant?)?
    /// Whether to close the connection after the answer; the server may have closed its half
    /// already.
    var mustClose = false

    init(
        _ configuration: ConnectionChannel,
        codec: ConnectionCodec,
        isSpare: Bool,
        outcome: EventLoopPromise<ConnectionChannel.Outcome>,
        logger: Logger
    ) {
        self.endpoints = configuration.endpoints
        self.timeouts = configuration.timeouts
        self.policy = configuration.policy
        self.share = BudgetShare(of: configuration.policy.bodies)
        self.http = configuration.http
        self.codec = codec
        self.isSpare = isSpare
        self.outcome = outcome
        self.logger = logger
    }

    // MARK: Channel

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        self.limit = TimeLimit(on: context.eventLoop)
        self.closeAfter(self.isSpare ? self.timeouts.spareRequest : self.timeouts.firstRequest)
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.leave()
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.failBody(context)
        self.leave()
        context.fireChannelInactive()
    }

    /// Releases everything, and reports to exchanges whose answers can no longer be sent.
    private func leave() {
        self.limit?.remove()
        self.slowReader?.stop()
        self.slowReader = nil
        self.settle(.taken)
        self.context = nil
        self.waiting = PipelinedParts()
        self.forgetBody()
        let incoming = self.incoming
        self.phase = .over
        incoming?.abort()
        let exchange = self.exchange
        self.exchange = nil
        exchange?.abort()
    }

    /// The exchange whose body is arriving.
    var incoming: HTTPExchange? {
        guard case .collecting(let exchange, _, _) = self.phase else { return nil }
        return exchange
    }

    /// Reports, once, whether the connection has begun to use the server or never will.
    func settle(_ outcome: ConnectionChannel.Outcome) {
        guard !self.isSettled else { return }
        self.isSettled = true
        self.outcome.succeed(outcome)
    }

    func closeAfter(_ duration: Duration) {
        guard let context else { return }
        self.limit?.set(duration) { context.close(promise: nil) }
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable {
            self.slowReader?.stop()
            self.resumeReading()
        } else if self.context != nil {
            self.reader(context).watch()
        }
        context.fireChannelWritabilityChanged()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if error is ByteToMessageDecoderError.PayloadTooLargeError {
            ConnectionMetrics.refusedPipelines.increment()
            return context.close(promise: nil)
        }
        guard let fault = error as? HTTPParserError else {
            if self.hasServer, self.exchange == nil { return context.fireErrorCaught(error) }
            return context.close(promise: nil)
        }
        // A client that leaves in the middle of a request is not refused.
        if fault != .invalidEOFState { ConnectionMetrics.refusedHeads.increment() }
        guard case .idle = self.phase, self.serverAnswer == nil else { return context.close(promise: nil) }
        let refusal: TransportRefusal =
            switch fault {
            case .headerOverflow: .problem(.requestHeaderFieldsTooLarge, "the request's head is too large")
            default: .problem(.badRequest, "the request is not valid HTTP")
            }
        self.refuse(nil, refusal)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case is ChannelShouldQuiesceEvent where self.isBusy:
            self.mustClose = true
            // The server need not wait: the endpoint ends its answer with the sockets.
            if !self.hasServer { self.settle(.taken) }
        case is ChannelShouldQuiesceEvent where !self.hasServer: context.close(promise: nil)
        case is ChannelShouldQuiesceEvent:
            // The server closes after its answer, so it must get no request that is queued.
            self.mustClose = true
            context.fireUserInboundEventTriggered(event)
        case ChannelEvent.inputClosed where self.exchange != nil || !self.hasServer: context.close(promise: nil)
        // The server would accept no request after the event.
        case ChannelEvent.inputClosed where !self.waiting.isEmpty: self.isInputClosed = true
        case ChannelEvent.inputClosed:
            self.failBody(context)
            context.fireUserInboundEventTriggered(event)
        default: context.fireUserInboundEventTriggered(event)
        }
    }

    /// Fails the body that the server receives, if its end has not arrived.
    ///
    /// The server takes the end of the input for the end of the body, so the error goes first.
    private func failBody(_ context: ChannelHandlerContext) {
        guard case .forwarding = self.phase else { return }
        // A parser's error would make the server write a second answer.
        context.fireErrorCaught(ChannelError.eof)
    }

    /// Whether a request for an endpoint is arriving or being answered.
    private var isBusy: Bool {
        switch self.phase {
        case .collecting, .answering: true
        case .idle, .deciding, .forwarding, .refusing, .over: false
        }
    }

    /// Delays the server's close while an endpoint answers on the connection.
    func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        guard mode != .input else { return context.close(mode: mode, promise: promise) }
        self.mustClose = true
        guard self.exchange != nil else { return context.close(mode: mode, promise: promise) }
        promise?.succeed()
    }

    // MARK: Requests

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        // The connection ends with the stream, so no request that follows is answered.
        guard let codec else { return }
        let part = self.unwrapInboundIn(data)
        switch part {
        case .head(let head): self.mustResume = head.stopsDecoder && !self.opensSocket(head)
        case .body: break
        case .end: if self.mustResume { codec.decoder.resume() }
        }
        guard self.waiting.isEmpty, self.isReady else { return self.enqueue(part, context) }
        self.handle(part, context)
    }

    /// Queues a part behind the request before it.
    private func enqueue(_ part: HTTPServerRequestPart, _ context: ChannelHandlerContext) {
        guard self.waiting.append(part) else {
            ConnectionMetrics.refusedPipelines.increment()
            return context.close(promise: nil)
        }
        guard self.reserve() else {
            ConnectionMetrics.refusedMemory.increment()
            return context.close(promise: nil)
        }
    }

    /// Whether the next part can be handled now.
    private var isReady: Bool {
        switch self.phase {
        case .deciding, .answering: false
        case .idle: self.serverAnswer == nil && !self.mustClose
        case .collecting, .forwarding, .refusing, .over: true
        }
    }

    /// Handles the queued parts.
    func drain() {
        guard !self.isDraining else { return }
        self.isDraining = true
        var isForwarded = false
        while let part = self.waiting.first, let context, self.isReady {
            self.waiting.removeFirst()
            self.handle(part, context)
            if case .forwarding = self.phase { isForwarded = true }
        }
        self.isDraining = false
        self.share.shrink(to: self.kept + self.waiting.memory)
        // The server processes input on read completion, and this read completed earlier.
        if isForwarded { self.context?.fireChannelReadComplete() }
        if self.isInputClosed, self.waiting.isEmpty, let context {
            self.isInputClosed = false
            // The event may close the connection, which would discard the answer before.
            context.flush()
            self.userInboundEventTriggered(context: context, event: ChannelEvent.inputClosed)
        }
        self.resumeReading()
    }

    private func endpoint(of head: HTTPRequestHead) -> (any TransportEndpoint)? {
        if ConnectionPolicy.isPreflight(head) { return PreflightEndpoint(policy: self.policy) }
        return self.owner(of: head)
    }

    /// The endpoint that claims the path; nil if the server answers it.
    func owner(of head: HTTPRequestHead) -> (any TransportEndpoint)? {
        let path = head.path
        return self.endpoints.first { $0.claims(path) }
    }

    /// Whether the request asks an endpoint for a WebSocket: the bytes after it are not HTTP.
    private func opensSocket(_ head: HTTPRequestHead) -> Bool {
        WebSocketHandshake.isRequested(by: head) && self.endpoint(of: head) != nil
    }

    /// Handles a part of the request that is arriving, or begins the next request.
    private func handle(_ part: HTTPServerRequestPart, _ context: ChannelHandlerContext) {
        switch (self.phase, part) {
        case (.idle, .head(let head)):
            self.limit?.remove()
            if self.isSpare {
                self.probe(head, context)
            } else if let endpoint = self.endpoint(of: head) {
                self.begin(head, endpoint, context)
            } else {
                self.forward(head, context)
            }
        case (.forwarding, .body) where self.serverAnswer == nil:
            // The server has answered, after a 401 for example, so the rest is not read.
            break
        case (.forwarding, _):
            if case .end = part {
                self.phase = .idle
                self.limit?.remove()
            }
            context.fireChannelRead(self.wrapInboundOut(part))
        case (.collecting(let exchange, var body, let endpoint), .body(let bytes)):
            self.received += bytes.readableBytes
            guard self.received <= endpoint.maximumBody else {
                ConnectionMetrics.refusedBodies.increment()
                return self.refuse(exchange.head, endpoint.refusal(.payloadTooLarge, reason: "the body is too large"))
            }
            guard exchange.keepsBody else { return }
            self.kept += bytes.readableBytes
            guard self.reserve() else {
                ConnectionMetrics.refusedMemory.increment()
                let reason = "too many bodies are coming in, try again later"
                return self.refuse(exchange.head, endpoint.refusal(.serviceUnavailable, reason: reason))
            }
            self.phase = .idle
            body.writeImmutableBuffer(bytes)
            self.phase = .collecting(exchange, body, endpoint)
        case (.collecting(let exchange, let body, let endpoint), .end):
            self.limit?.remove()
            self.exchange = exchange
            self.phase = .answering
            exchange.complete(body, endpoint)
        default: break
        }
    }

    /// Answers a probe on a connection beyond the limit, then closes it.
    ///
    /// Closes it at once after any other request, so that proxies try another gateway.
    private func probe(_ head: HTTPRequestHead, _ context: ChannelHandlerContext) {
        guard ConnectionPolicy.probes.contains(head.path) else {
            ConnectionMetrics.refusedFiles.increment()
            self.phase = .refusing
            return context.close(promise: nil)
        }
        var head = head
        head.headers.replaceOrAdd(name: "connection", value: "close")
        self.forward(head, context)
    }

    /// Begins a request for an endpoint.
    private func begin(_ head: HTTPRequestHead, _ endpoint: any TransportEndpoint, _ context: ChannelHandlerContext) {
        guard WebSocketHandshake.isRequested(by: head) else {
            let exchange = HTTPExchange(head: head, eventLoop: context.eventLoop, connection: self)
            if let fault = head.fault {
                ConnectionMetrics.refusedHeads.increment()
                return self.refuse(head, endpoint.refusal(.badRequest, reason: fault))
            }
            self.received = 0
            self.phase = .collecting(exchange, ByteBuffer(), endpoint)
            self.limitBody()
            endpoint.begin(exchange)
            // Last, because a write that fails aborts the exchange.
            return self.sendContinue(head, context)
        }
        self.phase = .deciding
        if let fault = WebSocketHandshake.fault(head) {
            self.refuse(head, endpoint.refusal(fault.status, reason: fault.reason))
        } else if !self.policy.admitsOrigin(head) {
            ConnectionMetrics.refusedOrigins.increment()
            self.refuse(head, endpoint.refusal(.forbidden, reason: "pages of this origin may not open sockets here"))
        } else if !self.countAddress(head) {
            self.refuse(head, endpoint.refusal(.tooManyRequests, reason: "too many sockets of this address are open"))
        } else {
            self.decide(head, endpoint, context)
        }
    }

    // MARK: Reading

    /// Whether reads wait: a request is being answered, others are queued, or the client does not
    /// read its answers.
    ///
    /// The end of the client's half is noticed even so: epoll reports it, and NIO then reads
    /// everything that the client had sent.
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

    /// Performs the held read, if reads no longer wait.
    private func resumeReading() {
        guard self.isReadHeld, !self.holdsReads, let context else { return }
        self.isReadHeld = false
        context.read()
    }

    /// Reserves room for the unanswered requests; false if the process holds too many bytes.
    private func reserve() -> Bool { self.share.hold(self.kept + self.waiting.memory) }

    /// Stops counting the body that arrived.
    func forgetBody() {
        self.kept = 0
        self.share.shrink(to: self.waiting.memory)
    }

    // MARK: The server

    /// Begins a request for the server.
    private func forward(_ head: HTTPRequestHead, _ context: ChannelHandlerContext) {
        if let fault = head.fault {
            ConnectionMetrics.refusedHeads.increment()
            return self.refuse(head, .problem(.badRequest, fault))
        }
        let length = head.headers.first(name: "content-length").flatMap { Int($0) } ?? 0
        if length > self.policy.maximumBody {
            ConnectionMetrics.refusedBodies.increment()
            return self.refuse(head, .problem(.payloadTooLarge, "the body is too large"))
        }
        self.phase = .forwarding
        self.limitBody()
        do {
            if !self.hasServer { try self.addServer(context) }
            // HTTP/1.0 has no chunks.
            let version: HTTPVersion = head.version == .http1_0 ? .http1_0 : .http1_1
            self.serverAnswer = (version, self.policy.grant(head))
            self.sendContinue(head, context)
            var head = head
            // Over HTTP/1.0, an answer without a length ends with the connection.
            if version == .http1_0 || !head.isKeepAlive {
                self.mustClose = true
                // The server closes only for exactly this value.
                head.headers.replaceOrAdd(name: "connection", value: "close")
            }
            context.fireChannelRead(self.wrapInboundOut(.head(head)))
        } catch {
            self.logger.error("cannot set up HTTP; closing the connection", metadata: ["error": "\(error)"])
            context.close(promise: nil)
        }
    }

    /// Sends `100 Continue` if the client waits for it (RFC 9110, section 10.1.1).
    private func sendContinue(_ head: HTTPRequestHead, _ context: ChannelHandlerContext) {
        guard head.awaitsContinue else { return }
        let interim = HTTPResponseHead(version: .http1_1, status: .continue)
        context.writeAndFlush(self.wrapOutboundOut(.head(interim)), promise: nil)
    }

    /// Adds the server's handlers, and starts its task for the connection.
    private func addServer(_ context: ChannelHandlerContext) throws {
        guard !self.isSettled else { throw ChannelError.operationUnsupported }
        let pipeline = context.channel.pipeline.syncOperations
        try pipeline.addHandler(HTTP1ToHTTPServerCodec(secure: false))
        try pipeline.addHandlers(self.http.additionalChannelHandlers())
        let state = HTTPConnectionStateHandler(
            idleTimeout: self.http.idleTimeout.map { .init($0) }, logger: self.logger)
        try pipeline.addHandler(state)
        let channel = try NIOAsyncChannel<HTTPRequestPart, HTTPResponsePart>(
            wrappingChannelSynchronously: context.channel,
            configuration: .init(backPressureStrategy: Self.serverInput, isOutboundHalfClosureEnabled: true)
        )
        self.serverState = state
        self.settle(.http(channel))
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        // A socket's frame while this handler is being removed.
        if case .over = self.phase { return context.write(data, promise: promise) }
        switch self.unwrapOutboundIn(data) {
        case .head(var head) where head.status.code >= 200:
            if let serverAnswer { head.version = serverAnswer.version }
            if self.mustClose { head.headers.replaceOrAdd(name: "connection", value: "close") }
            self.policy.protect(&head.headers, self.serverAnswer?.grant)
            return context.write(self.wrapOutboundOut(.head(head)), promise: promise)
        case .head, .body: return context.write(data, promise: promise)
        case .end: context.write(data, promise: promise)
        }
        self.serverAnswer = nil
        if !self.waiting.isEmpty { self.drain() }
    }

    func flush(context: ChannelHandlerContext) {
        context.flush()
        // The application of a socket bounds its output.
        if case .over = self.phase { return }
        self.countUnread()
    }

    // MARK: WebSockets

    /// Lets the endpoint decide about a WebSocket.
    private func decide(_ head: HTTPRequestHead, _ endpoint: any TransportEndpoint, _ context: ChannelHandlerContext) {
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        let admission = context.eventLoop.makeFutureWithTask { try await endpoint.admit(head) }
        admission.whenComplete { result in
            let (handler, context) = bound.value
            guard case .deciding = handler.phase, context.channel.isActive else { return }
            switch result {
            case .success(let admission): handler.accept(head, admission, endpoint, context)
            case .failure(let refusal as TransportRefusal): handler.refuse(head, refusal)
            case .failure(let error):
                handler.logger.warning("cannot admit a WebSocket; answered 503", metadata: ["error": "\(error)"])
                handler.refuse(head, endpoint.refusal(.serviceUnavailable, reason: "try again later"))
            }
        }
    }

    /// Accepts a WebSocket, and replaces this handler by the socket's.
    private func accept(
        _ head: HTTPRequestHead,
        _ admission: WebSocketAdmission,
        _ endpoint: any TransportEndpoint,
        _ context: ChannelHandlerContext
    ) {
        guard !self.mustClose, let codec, let application = admission.open(context.eventLoop) else {
            return self.refuse(head, endpoint.refusal(.serviceUnavailable, reason: "try again later"))
        }
        let response = WebSocketHandshake.acceptance(of: head, subprotocol: admission.subprotocol)
        context.write(self.wrapOutboundOut(.head(response)), promise: nil)
        context.writeAndFlush(self.wrapOutboundOut(.end(nil)), promise: nil)
        self.phase = .over
        let channel = context.channel
        let pipeline = channel.pipeline.syncOperations
        do {
            // First, because the socket may write as soon as it is added.
            pipeline.removeHandler(codec.encoder, promise: nil)
            if let serverState { pipeline.removeHandler(serverState, promise: nil) }
            self.serverState = nil
            // Before the socket is added, which may pause reading.
            if self.isReadHeld { channel.read() }
            // In front of a server's handlers: NIO cannot remove the last of them. The socket hands
            // them no input, so the server's task sleeps until the connection closes.
            try pipeline.addHandler(
                WebSocketHandler(
                    application: application,
                    limits: admission.limits,
                    bodies: self.policy.bodies,
                    patience: self.timeouts.body
                ),
                position: .after(self)
            )
            self.settle(.taken)
            // Bytes after the request belong to the socket; the decoder forwards them when it is
            // removed.
            pipeline.removeHandler(codec.decoding, promise: nil)
            pipeline.removeHandler(context: context, promise: nil)
        } catch {
            self.logger.error("cannot set up a WebSocket; closing the connection", metadata: ["error": "\(error)"])
            channel.close(promise: nil)
        }
    }
}

/// Limits for clients.
extension ConnectionHandler {
    /// Closes the connection if the body does not arrive in time.
    private func limitBody() {
        self.limit?.set(self.isSpare ? self.timeouts.spareRequest : self.timeouts.body) { [weak self] in
            guard let self, let context = self.context else { return }
            ConnectionMetrics.refusedSlow.increment()
            guard case .collecting(let exchange, _, let endpoint) = self.phase else {
                return context.close(promise: nil)
            }
            self.refuse(exchange.head, endpoint.refusal(.requestTimeout, reason: "the body did not come in time"))
        }
    }

    /// Counts the answers that the client has not read.
    func countUnread() {
        guard let context, !context.channel.isWritable else { return }
        self.reader(context).count()
    }

    /// Returns the watch over the client's reading, and makes it when it is first needed.
    private func reader(_ context: ChannelHandlerContext) -> SlowReader {
        if let slowReader { return slowReader }
        let reader = SlowReader(
            context, answers: self.policy.answers, patience: self.timeouts.stall, isStream: self.codec == nil)
        self.slowReader = reader
        return reader
    }

    /// The client's address, as far as trusted proxies report it; nil for a Unix socket.
    func client(of head: HTTPRequestHead) -> ClientAddress? {
        self.policy.trustedProxies.client(of: head, peer: self.context?.remoteAddress)
    }

    /// Counts a connection with a socket, a stream or polls for its client's address, once and
    /// while it lasts; false if there are too many.
    ///
    /// A proxy may use one connection for several clients; it counts for the last of them.
    func countAddress(_ head: HTTPRequestHead) -> Bool {
        guard let context, let limiter = self.policy.addresses, let client = self.client(of: head),
            client.share != self.counted?.value.share
        else { return true }
        guard limiter.reserve(client) else {
            ConnectionMetrics.refusedAddresses.increment()
            return false
        }
        if let counted {
            limiter.release(counted.value)
            counted.value = client
        } else {
            let counted = NIOLoopBoundBox(client, eventLoop: context.eventLoop)
            context.channel.closeFuture.whenComplete { _ in limiter.release(counted.value) }
            self.counted = counted
        }
        return true
    }
}
