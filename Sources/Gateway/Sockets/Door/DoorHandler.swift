// Carillon · DoorHandler.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import HummingbirdCore
import JSON
import Logging
import Model
import NIOCore
import NIOHTTP1
import NIOHTTPTypes
import NIOHTTPTypesHTTP1

/// Looks at a connection's first request: a socket, or HTTP from here on.
///
/// A connection that says nothing in time, or nothing that is HTTP, is closed here.
final class DoorHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias InboundOut = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    private enum Phase {
        case waiting
        /// A socket's credential is being checked; nothing more is read meanwhile.
        case deciding
        case done
    }

    private let hub: SocketHub
    private let door: SocketDoor
    private let http: HTTP1Channel.Configuration
    private let encoder: HTTPResponseEncoder
    private let decoder: ByteToMessageHandler<HTTPRequestDecoder>
    private let outcome: EventLoopPromise<SocketChannel.Outcome>
    private let logger: Logger
    private var phase = Phase.waiting
    private var timeout: Scheduled<Void>?

    init(
        hub: SocketHub,
        door: SocketDoor,
        http: HTTP1Channel.Configuration,
        encoder: HTTPResponseEncoder,
        decoder: ByteToMessageHandler<HTTPRequestDecoder>,
        outcome: EventLoopPromise<SocketChannel.Outcome>,
        logger: Logger
    ) {
        self.hub = hub
        self.door = door
        self.http = http
        self.encoder = encoder
        self.decoder = decoder
        self.outcome = outcome
        self.logger = logger
    }

    func handlerAdded(context: ChannelHandlerContext) {
        let bound = NIOLoopBound(context, eventLoop: context.eventLoop)
        self.timeout = context.eventLoop.scheduleTask(in: TimeAmount(self.hub.configuration.firstRequest)) {
            bound.value.close(promise: nil)
        }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.settle(.refused)
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.settle(.refused)
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard self.phase == .waiting else {
            context.close(promise: nil)
            return
        }
        self.refuse(context, .badRequest, "the request is not valid HTTP")
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case is ChannelShouldQuiesceEvent: context.close(promise: nil)
        case ChannelEvent.inputClosed where self.phase == .waiting: context.close(promise: nil)
        default: context.fireUserInboundEventTriggered(event)
        }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard self.phase == .waiting else { return }
        guard case .head(let head) = self.unwrapInboundIn(data) else { return }
        self.timeout?.cancel()
        guard SocketDoor.wantsSocket(head) else {
            self.becomeHTTP(context, data)
            return
        }
        self.phase = .deciding
        if let fault = SocketDoor.fault(head) {
            self.refuse(context, fault.status, fault.reason)
            return
        }
        self.decide(context, head)
    }

    private func settle(_ outcome: SocketChannel.Outcome) {
        self.timeout?.cancel()
        guard self.phase != .done else { return }
        self.phase = .done
        self.outcome.succeed(outcome)
    }

    // MARK: HTTP

    private func becomeHTTP(_ context: ChannelHandlerContext, _ first: NIOAny) {
        do {
            let pipeline = context.channel.pipeline.syncOperations
            try pipeline.addHandler(HTTP1ToHTTPServerCodec(secure: false))
            try pipeline.addHandlers(self.http.additionalChannelHandlers())
            try pipeline.addHandler(
                HTTPConnectionStateHandler(
                    idleTimeout: self.http.idleTimeout.map { .init($0) },
                    logger: self.logger
                )
            )
            let channel = try NIOAsyncChannel<HTTPRequestPart, HTTPResponsePart>(
                wrappingChannelSynchronously: context.channel,
                configuration: .init(isOutboundHalfClosureEnabled: true)
            )
            self.settle(.http(channel))
            context.fireChannelRead(first)
            context.pipeline.syncOperations.removeHandler(context: context, promise: nil)
        } catch {
            self.logger.error("connection cannot be set up", metadata: ["error": "\(error)"])
            context.close(promise: nil)
        }
    }

    // MARK: Sockets

    private func decide(_ context: ChannelHandlerContext, _ head: HTTPRequestHead) {
        // Nothing more is read until it is decided, or it would pile up.
        try? context.channel.syncOptions?.setOption(.autoRead, value: false)
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        let door = self.door
        let admission = context.eventLoop.makeFutureWithTask { try await door.admit(head) }
        admission.whenComplete { result in
            let (handler, context) = bound.value
            guard handler.phase == .deciding, context.channel.isActive else { return }
            switch result {
            case .success(let admission): handler.accept(context, head, admission)
            case .failure(let refusal as SocketRefusal):
                SocketMetrics.refused.increment()
                handler.refuse(context, HTTPResponseStatus(statusCode: refusal.status), refusal.reason)
            case .failure(let error):
                handler.logger.warning("socket cannot be admitted", metadata: ["error": "\(error)"])
                handler.refuse(context, .serviceUnavailable, "try again later")
            }
        }
    }

    private func accept(_ context: ChannelHandlerContext, _ head: HTTPRequestHead, _ admission: SocketDoor.Admission) {
        guard let shard = self.hub.shard(on: context.eventLoop), let key = head.headers.first(name: "sec-websocket-key")
        else {
            self.refuse(context, .serviceUnavailable, "try again later")
            return
        }
        var headers: HTTPHeaders = [
            "upgrade": "websocket", "connection": "upgrade", "sec-websocket-accept": WebSocketKey.accept(key),
        ]
        if let subprotocol = admission.subprotocol { headers.add(name: "sec-websocket-protocol", value: subprotocol) }
        let response = HTTPResponseHead(version: .http1_1, status: .switchingProtocols, headers: headers)
        context.write(self.wrapOutboundOut(.head(response)), promise: nil)
        context.writeAndFlush(self.wrapOutboundOut(.end(nil)), promise: nil)
        let socket = SocketHandler(
            connection: RandomName.make(),
            identity: admission.identity,
            since: admission.since,
            shard: shard
        )
        let pipeline = context.channel.pipeline.syncOperations
        let channel = context.channel
        do {
            try pipeline.addHandler(socket)
            self.settle(.socket)
            pipeline.removeHandler(self.encoder, promise: nil)
            // What came after the request is the socket's; the decoder gives it up as it leaves.
            pipeline.removeHandler(self.decoder, promise: nil)
            pipeline.removeHandler(context: context, promise: nil)
            try channel.syncOptions?.setOption(.autoRead, value: true)
        } catch {
            self.logger.error("socket cannot be set up", metadata: ["error": "\(error)"])
            channel.close(promise: nil)
        }
    }

    /// Answers with a problem document (RFC 9457) and closes.
    private func refuse(_ context: ChannelHandlerContext, _ status: HTTPResponseStatus, _ reason: String) {
        self.settle(.refused)
        var writer = JSONWriter()
        writer.beginObject()
        writer.key("type")
        writer.string("about:blank")
        writer.key("title")
        writer.string(status.reasonPhrase)
        writer.key("status")
        writer.integer(status.code)
        writer.key("detail")
        writer.string(reason)
        writer.endObject()
        var headers: HTTPHeaders = [
            "content-type": "application/problem+json", "content-length": "\(writer.bytes.count)",
            "connection": "close",
        ]
        if status == .unauthorized { headers.add(name: "www-authenticate", value: "Bearer") }
        if status == .upgradeRequired { headers.add(name: "sec-websocket-version", value: "13") }
        let head = HTTPResponseHead(version: .http1_1, status: status, headers: headers)
        context.write(self.wrapOutboundOut(.head(head)), promise: nil)
        context.write(self.wrapOutboundOut(.body(.byteBuffer(ByteBuffer(bytes: writer.bytes)))), promise: nil)
        let bound = NIOLoopBound(context, eventLoop: context.eventLoop)
        context.writeAndFlush(self.wrapOutboundOut(.end(nil))).whenComplete { _ in bound.value.close(promise: nil) }
    }
}
