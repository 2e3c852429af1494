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

/// Routes a connection's requests to an endpoint, a WebSocket or the HTTP server.
///
/// Requests are answered in order: while one is being answered, the next waits here.
final class DoorHandler: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias InboundOut = HTTPServerRequestPart
    typealias OutboundIn = HTTPServerResponsePart
    typealias OutboundOut = HTTPServerResponsePart

    /// The fewest bytes of a full connection's output that a client must read in time; of an
    /// answer, a tenth of what waits if that is more.
    private static let leastRead = 4 * 1024
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
    let timeouts: DoorTimeouts
    let policy: DoorPolicy
    private let http: HTTP1Channel.Configuration
    /// Nil once a stream has begun.
    private var coding: DoorCoding?
    /// Whether to resume NIO's decoder after the arriving request: it stops there, but no WebSocket
    /// opens.
    private var mustResume = false
    private let outcome: EventLoopPromise<DoorChannel.Outcome>
    private let logger: Logger

    private(set) var context: ChannelHandlerContext?
    var phase = Phase.idle
    var exchange: HTTPExchange?
    private var waiting = PipelinedParts()
    private var isDraining = false
    /// Whether the client has closed its half while requests wait for the server.
    private var isInputClosed = false
    /// A read was requested while reads are held.
    private var isReadHeld = false
    /// Bytes of the incoming body, received and kept.
    private var received = 0
    private var kept = 0
    /// Counts the bytes of unanswered requests that the connection holds.
    private var share: BudgetShare
    /// Counts the bytes of answers that a full connection holds until the client reads them.
    private var unread: BudgetShare
    /// Bytes that a stream has written.
    private var streamed = 0
    /// Closes or refuses a connection that takes too long for the next step.
    private var limit: TimeLimit?
    /// Closes the connection after the server's idle time; removed for a socket.
    private var serverState: HTTPConnectionStateHandler?
    /// Whether the connection has the server's handlers.
    private var hasServer: Bool { self.serverState != nil }
    private var isSettled = false
    /// The client's address that the connection counts for, in a box that outlives this handler.
    var counted: NIOLoopBoundBox<ClientAddress>?
    /// The version and CORS grant of the answer that the server owes; nil if it owes none.
    private var serverAnswer: (version: HTTPVersion, grant: AllowedOrigins.Grant?)?
    /// Runs while the client does not read what was written; nil until the connection was full.
    private var stall: TimeLimit?
    /// Whether to close the connection after the answer; the server may have closed its half
    /// already.
    var mustClose = false

    init(
        _ door: DoorChannel,
        coding: DoorCoding,
        outcome: EventLoopPromise<DoorChannel.Outcome>,
        logger: Logger
    ) {
        self.endpoints = door.endpoints
        self.timeouts = door.timeouts
        self.policy = door.policy
        self.share = BudgetShare(of: door.policy.bodies)
        self.unread = BudgetShare(of: door.policy.answers)
        self.http = door.http
        self.coding = coding
        self.outcome = outcome
        self.logger = logger
    }

    // MARK: Channel

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        self.limit = TimeLimit(on: context.eventLoop)
        self.closeAfter(self.timeouts.firstRequest)
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.leave()
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.failBody(context)
        self.leave()
        context.fireChannelInactive()
    }

    private func leave() {
        self.limit?.remove()
        self.stall?.remove()
        self.settle(.taken)
        self.context = nil
        self.waiting = PipelinedParts()
        self.forgetBody()
        // Cannot fail: the amount only shrinks.
        _ = self.unread.hold(0)
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

    func settle(_ outcome: DoorChannel.Outcome) {
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
            self.stall?.remove()
            _ = self.unread.hold(0)
            self.resumeReading()
        } else {
            self.watchReader(context)
        }
        context.fireChannelWritabilityChanged()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if error is ByteToMessageDecoderError.PayloadTooLargeError {
            DoorMetrics.refusedPipelines.increment()
            return context.close(promise: nil)
        }
        guard let fault = error as? HTTPParserError else {
            if self.hasServer, self.exchange == nil { return context.fireErrorCaught(error) }
            return context.close(promise: nil)
        }
        // A client that leaves in the middle of a request is not refused.
        if fault != .invalidEOFState { DoorMetrics.refusedHeads.increment() }
        guard case .idle = self.phase, self.serverAnswer == nil else { return context.close(promise: nil) }
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
        guard let coding else { return }
        let part = self.unwrapInboundIn(data)
        switch part {
        case .head(let head): self.mustResume = head.stopsDecoder && !self.opensSocket(head)
        case .body: break
        case .end: if self.mustResume { coding.decoder.resume() }
        }
        guard self.waiting.isEmpty, self.accepts(part) else { return self.keep(part, context) }
        self.take(part, context)
    }

    /// Queues a part behind the request before it.
    private func keep(_ part: HTTPServerRequestPart, _ context: ChannelHandlerContext) {
        guard self.waiting.append(part) else {
            DoorMetrics.refusedPipelines.increment()
            return context.close(promise: nil)
        }
        guard self.count() else {
            DoorMetrics.refusedMemory.increment()
            return context.close(promise: nil)
        }
    }

    /// Whether a part can be handled now.
    private func accepts(_ part: HTTPServerRequestPart) -> Bool {
        switch self.phase {
        case .deciding, .answering: return false
        case .idle: return self.serverAnswer == nil && !self.mustClose
        case .collecting, .forwarding, .refusing, .over: return true
        }
    }

    // MARK: Reading

    /// Whether reads wait: a request is being answered, others are queued, or the client does not
    /// read its answers.
    ///
    /// A client that leaves is noticed all the same: epoll reports the end of its half, and NIO
    /// then reads everything that it had sent.
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

    /// Counts the bytes held for unanswered requests; false if the process holds too many.
    private func count() -> Bool { self.share.hold(self.kept + self.waiting.memory) }

    /// Stops counting the body that arrived.
    func forgetBody() {
        self.kept = 0
        // Cannot fail: the amount only shrinks.
        _ = self.count()
    }

    private func endpoint(of head: HTTPRequestHead) -> (any TransportEndpoint)? {
        if DoorPolicy.isPreflight(head) { return PreflightEndpoint(policy: self.policy) }
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

    private func take(_ part: HTTPServerRequestPart, _ context: ChannelHandlerContext) {
        switch (self.phase, part) {
        case (.idle, .head(let head)):
            self.limit?.remove()
            if let endpoint = self.endpoint(of: head) {
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
            self.limit?.remove()
            self.exchange = exchange
            self.phase = .answering
            exchange.complete(body, endpoint)
        default: break
        }
    }

    private func begin(_ head: HTTPRequestHead, _ endpoint: any TransportEndpoint, _ context: ChannelHandlerContext) {
        guard WebSocketHandshake.isRequested(by: head) else {
            let exchange = HTTPExchange(head: head, eventLoop: context.eventLoop, door: self)
            if let fault = head.fault {
                DoorMetrics.refusedHeads.increment()
                return self.answer(head, endpoint.refusal(.badRequest, reason: fault))
            }
            self.received = 0
            self.phase = .collecting(exchange, ByteBuffer(), endpoint)
            self.limitBody()
            endpoint.begin(exchange)
            // Last, because a write that fails aborts the exchange.
            return self.invite(head, context)
        }
        self.phase = .deciding
        if let fault = WebSocketHandshake.fault(head) {
            self.answer(head, endpoint.refusal(fault.status, reason: fault.reason))
        } else if !self.policy.admitsOrigin(head) {
            DoorMetrics.refusedOrigins.increment()
            self.answer(head, endpoint.refusal(.forbidden, reason: "pages of this origin may not open sockets here"))
        } else if !self.countAddress(head) {
            self.answer(head, endpoint.refusal(.tooManyRequests, reason: "too many sockets of this address are open"))
        } else {
            self.decide(head, endpoint, context)
        }
    }

    // MARK: The server

    private func forward(_ head: HTTPRequestHead, _ context: ChannelHandlerContext) {
        if let fault = head.fault {
            DoorMetrics.refusedHeads.increment()
            return self.answer(head, .problem(.badRequest, fault))
        }
        let length = head.headers.first(name: "content-length").flatMap { Int($0) } ?? 0
        if length > self.policy.maximumBody {
            DoorMetrics.refusedBodies.increment()
            return self.answer(head, .problem(.payloadTooLarge, "the body is too large"))
        }
        self.phase = .forwarding
        self.limitBody()
        do {
            if !self.hasServer { try self.addServer(context) }
            // HTTP/1.0 has no chunks.
            let version: HTTPVersion = head.version == .http1_0 ? .http1_0 : .http1_1
            self.serverAnswer = (version, self.policy.grant(head))
            self.invite(head, context)
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
    private func invite(_ head: HTTPRequestHead, _ context: ChannelHandlerContext) {
        guard head.awaitsContinue else { return }
        let interim = HTTPResponseHead(version: .http1_1, status: .continue)
        context.writeAndFlush(self.wrapOutboundOut(.head(interim)), promise: nil)
    }

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

    /// Handles the parts that were queued.
    func drain() {
        guard !self.isDraining else { return }
        self.isDraining = true
        var isForwarded = false
        while let part = self.waiting.first, let context, self.accepts(part) {
            self.waiting.removeFirst()
            self.take(part, context)
            if case .forwarding = self.phase { isForwarded = true }
        }
        self.isDraining = false
        _ = self.count()
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

    // MARK: WebSockets

    private func decide(_ head: HTTPRequestHead, _ endpoint: any TransportEndpoint, _ context: ChannelHandlerContext) {
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        let admission = context.eventLoop.makeFutureWithTask { try await endpoint.admit(head) }
        admission.whenComplete { result in
            let (handler, context) = bound.value
            guard case .deciding = handler.phase, context.channel.isActive else { return }
            switch result {
            case .success(let admission): handler.accept(head, admission, endpoint, context)
            case .failure(let refusal as TransportRefusal): handler.answer(head, refusal)
            case .failure(let error):
                handler.logger.warning("cannot admit a WebSocket; answered 503", metadata: ["error": "\(error)"])
                handler.answer(head, endpoint.refusal(.serviceUnavailable, reason: "try again later"))
            }
        }
    }

    private func accept(
        _ head: HTTPRequestHead,
        _ admission: WebSocketAdmission,
        _ endpoint: any TransportEndpoint,
        _ context: ChannelHandlerContext
    ) {
        guard !self.mustClose, let coding, let application = admission.open(context.eventLoop) else {
            return self.answer(head, endpoint.refusal(.serviceUnavailable, reason: "try again later"))
        }
        let response = WebSocketHandshake.acceptance(of: head, subprotocol: admission.subprotocol)
        context.write(self.wrapOutboundOut(.head(response)), promise: nil)
        context.writeAndFlush(self.wrapOutboundOut(.end(nil)), promise: nil)
        self.phase = .over
        let channel = context.channel
        let pipeline = channel.pipeline.syncOperations
        do {
            // First, because the socket may write as soon as it is added.
            pipeline.removeHandler(coding.encoder, promise: nil)
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
            pipeline.removeHandler(coding.decoding, promise: nil)
            pipeline.removeHandler(context: context, promise: nil)
        } catch {
            self.logger.error("cannot set up a WebSocket; closing the connection", metadata: ["error": "\(error)"])
            channel.close(promise: nil)
        }
    }
}

/// Answers of endpoints and of the door itself.
extension DoorHandler {
    /// Answers an exchange.
    func answer(_ request: HTTPRequestHead, _ status: HTTPResponseStatus, _ headers: HTTPHeaders, _ body: ByteBuffer) {
        guard let context else { return }
        let keepsOpen = request.isKeepAlive && !self.mustClose
        var headers = headers
        // A 204 has no length (RFC 9110, section 8.6).
        if status != .noContent { headers.replaceOrAdd(name: "content-length", value: "\(body.readableBytes)") }
        if !keepsOpen { headers.replaceOrAdd(name: "connection", value: "close") }
        self.policy.protect(&headers, self.grant(request))
        // The answer to HEAD has the fields of one to GET, and no body (RFC 9110, section 9.3.2).
        let sent = request.method == .HEAD ? ByteBuffer() : body
        self.write(status, headers, sent, context, thenCloses: !keepsOpen)
        self.exchange = nil
        self.forgetBody()
        // The write may have ended the connection; then the phase stays.
        guard keepsOpen, self.context != nil else { return }
        self.phase = .idle
        if !self.hasServer { self.closeAfter(self.timeouts.idle) }
        self.drain()
    }

    /// Refuses a request without reading its rest, and closes.
    ///
    /// - Parameter request: Nil if its head could not be read.
    func answer(_ request: HTTPRequestHead?, _ refusal: TransportRefusal) {
        guard let context else { return }
        let incoming = self.incoming
        self.phase = .refusing
        // After the phase changed: the exchange's owner might answer.
        incoming?.abort()
        self.forgetBody()
        var headers = refusal.headers
        headers.replaceOrAdd(name: "content-length", value: "\(refusal.body.count)")
        headers.replaceOrAdd(name: "connection", value: "close")
        self.policy.protect(&headers, request.flatMap { self.grant($0) })
        let body = request?.method == .HEAD ? ByteBuffer() : ByteBuffer(bytes: refusal.body)
        self.write(refusal.status, headers, body, context, thenCloses: true)
        self.settle(.taken)
    }

    /// The CORS grant for the page that sent a request; for a preflight, that of the path it asks
    /// about.
    private func grant(_ head: HTTPRequestHead) -> AllowedOrigins.Grant? {
        // Most requests come from no page.
        guard head.headers.contains(name: "origin") else { return nil }
        return self.policy.grant(head, self.owner(of: head))
    }

    private func write(
        _ status: HTTPResponseStatus,
        _ headers: HTTPHeaders,
        _ body: ByteBuffer,
        _ context: ChannelHandlerContext,
        thenCloses: Bool
    ) {
        var head = HTTPResponseHead(version: .http1_1, status: status, headers: headers)
        if status == .upgradeRequired {
            // RFC 9110, sections 7.8 and 15.5.22, and RFC 6455, section 4.4.
            head.headers.add(name: "upgrade", value: "websocket")
            head.headers.add(name: "connection", value: "upgrade")
            head.headers.add(name: "sec-websocket-version", value: "13")
        }
        context.write(self.wrapOutboundOut(.head(head)), promise: nil)
        if body.readableBytes > 0 { context.write(self.wrapOutboundOut(.body(.byteBuffer(body))), promise: nil) }
        if thenCloses {
            let bound = NIOLoopBound(context, eventLoop: context.eventLoop)
            context.writeAndFlush(self.wrapOutboundOut(.end(nil))).whenComplete { _ in bound.value.close(promise: nil) }
        } else {
            context.writeAndFlush(self.wrapOutboundOut(.end(nil)), promise: nil)
        }
        self.countUnread()
    }

    func beginStream(_ request: HTTPRequestHead, _ status: HTTPResponseStatus, _ headers: HTTPHeaders) {
        guard let context else { return }
        self.mustClose = true
        if !self.hasServer { self.settle(.taken) }
        var headers = headers
        headers.replaceOrAdd(name: "connection", value: "close")
        self.policy.protect(&headers, self.grant(request))
        // HTTP/1.0 has no chunks; the stream ends with the connection.
        let version: HTTPVersion = request.version == .http1_0 ? .http1_0 : .http1_1
        let head = HTTPResponseHead(version: version, status: status, headers: headers)
        context.writeAndFlush(self.wrapOutboundOut(.head(head)), promise: nil)
        self.dropDecoder(context)
    }

    /// Frees the memory of the decoder, since no request follows a stream.
    private func dropDecoder(_ context: ChannelHandlerContext) {
        guard let coding else { return }
        // Cleared first, because the removed decoder forwards the bytes that it has.
        self.coding = nil
        context.pipeline.syncOperations.removeHandler(coding.decoding, promise: nil)
    }

    func writeStream(_ bytes: ByteBuffer) {
        guard let context else { return }
        self.streamed += bytes.readableBytes
        context.writeAndFlush(self.wrapOutboundOut(.body(.byteBuffer(bytes))), promise: nil)
    }

    func endStream() {
        guard let context else { return }
        self.exchange = nil
        // The endpoint no longer watches the stream, so nothing else bounds the waiting output.
        self.closeAfter(self.timeouts.end)
        let bound = NIOLoopBound(context, eventLoop: context.eventLoop)
        context.writeAndFlush(self.wrapOutboundOut(.end(nil))).whenComplete { _ in bound.value.close(promise: nil) }
    }

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
        guard limiter.take(client) else {
            DoorMetrics.refusedAddresses.increment()
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

    var backlog: Int {
        (try? self.context?.channel.syncOptions?.getOption(.bufferedWritableBytes)) ?? 0
    }
}

/// Time limits for clients.
extension DoorHandler {
    /// Closes the connection if the body does not arrive in time.
    func limitBody() {
        self.limit?.set(self.timeouts.body) { [weak self] in
            guard let self, let context = self.context else { return }
            DoorMetrics.refusedSlow.increment()
            guard case .collecting(let exchange, _, let endpoint) = self.phase else {
                return context.close(promise: nil)
            }
            self.answer(exchange.head, endpoint.refusal(.requestTimeout, reason: "the body did not come in time"))
        }
    }

    /// Counts the answers that the client has not read, and closes the connection if the process
    /// holds too many bytes of them.
    ///
    /// A stream is not counted here, since its endpoint bounds it.
    private func countUnread() {
        guard let context, self.coding != nil, !context.channel.isWritable, !self.unread.hold(self.backlog) else {
            return
        }
        DoorMetrics.refusedMemory.increment()
        context.close(mode: .all, promise: nil)
    }

    /// Closes the connection of a client that reads too little of its pending output.
    func watchReader(_ context: ChannelHandlerContext) {
        let (waiting, streamed) = (self.backlog, self.streamed)
        let stall = self.stall ?? TimeLimit(on: context.eventLoop)
        self.stall = stall
        stall.set(self.timeouts.stall) { [weak self] in
            guard let self, let context = self.context else { return }
            // A stream may be written as fast as it is read.
            let added = self.streamed - streamed
            let least = self.coding == nil ? Self.leastRead : max(Self.leastRead, waiting / 10)
            guard self.backlog > waiting + added - least else {
                self.countUnread()
                return self.watchReader(context)
            }
            DoorMetrics.refusedSlow.increment()
            context.close(mode: .all, promise: nil)
        }
    }
}
