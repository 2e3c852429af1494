// Carillon · DoorHandler+Answers.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import NIOCore
import NIOHTTP1

/// Answers of endpoints, and of the door itself.
extension DoorHandler {
    /// Answers an exchange.
    func answer(_ request: HTTPRequestHead, _ status: HTTPResponseStatus, _ headers: HTTPHeaders, _ body: ByteBuffer) {
        guard let context else { return }
        let keepsOpen = request.isKeepAlive && !self.mustClose
        var headers = headers
        // A 204 has no length (RFC 9110 section 8.6).
        if status != .noContent { headers.replaceOrAdd(name: "content-length", value: "\(body.readableBytes)") }
        if !keepsOpen { headers.replaceOrAdd(name: "connection", value: "close") }
        self.policy.protect(&headers, self.grant(request))
        // The answer to HEAD has the fields of one to GET, and no body (RFC 9110 section 9.3.2).
        let sent = request.method == .HEAD ? ByteBuffer() : body
        self.write(status, headers, sent, context, thenCloses: !keepsOpen)
        self.exchange = nil
        self.forgetBody()
        guard keepsOpen else { return }
        self.phase = .idle
        if !self.hasServer { self.closeAfter(self.timeouts.idle) }
        self.drain()
    }

    /// Refuses a request whose rest is not read, and closes.
    func answer(_ request: HTTPRequestHead?, _ refusal: TransportRefusal) {
        guard let context else { return }
        let incoming = self.incoming
        self.phase = .refusing
        // After the phase: whoever waits for the body might answer.
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

    /// What the page that sent a request may do with its answer, a preflight's that of the path it asks about.
    private func grant(_ head: HTTPRequestHead) -> AllowedOrigins.Grant? {
        // Most come from no page.
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
        let head = HTTPResponseHead(version: .http1_1, status: status, headers: headers)
        context.write(self.wrapOutboundOut(.head(head)), promise: nil)
        if body.readableBytes > 0 { context.write(self.wrapOutboundOut(.body(.byteBuffer(body))), promise: nil) }
        guard thenCloses else { return context.writeAndFlush(self.wrapOutboundOut(.end(nil)), promise: nil) }
        let bound = NIOLoopBound(context, eventLoop: context.eventLoop)
        context.writeAndFlush(self.wrapOutboundOut(.end(nil))).whenComplete { _ in bound.value.close(promise: nil) }
    }

    func beginStream(_ request: HTTPRequestHead, _ status: HTTPResponseStatus, _ headers: HTTPHeaders) {
        guard let context else { return }
        self.mustClose = true
        if !self.hasServer { self.settle(.taken) }
        var headers = headers
        headers.replaceOrAdd(name: "connection", value: "close")
        self.policy.protect(&headers, self.grant(request))
        let head = HTTPResponseHead(version: .http1_1, status: status, headers: headers)
        context.writeAndFlush(self.wrapOutboundOut(.head(head)), promise: nil)
    }

    func writeStream(_ bytes: ByteBuffer) {
        guard let context else { return }
        context.writeAndFlush(self.wrapOutboundOut(.body(.byteBuffer(bytes))), promise: nil)
    }

    func endStream() {
        guard let context else { return }
        self.exchange = nil
        let bound = NIOLoopBound(context, eventLoop: context.eventLoop)
        context.writeAndFlush(self.wrapOutboundOut(.end(nil))).whenComplete { _ in bound.value.close(promise: nil) }
    }

    func client(of head: HTTPRequestHead) -> ClientAddress? {
        self.policy.trustedProxies.client(of: head, peer: self.context?.remoteAddress)
    }

    /// Counts a connection that holds a socket, a stream or polls for its client's address, once and as long as it lasts;
    /// false if there are too many.
    func countAddress(_ head: HTTPRequestHead) -> Bool {
        guard !self.isCounted, let context, let tally = self.policy.addresses,
            let client = self.client(of: head)
        else { return true }
        guard tally.take(client) else {
            DoorMetrics.refusedAddresses.increment()
            return false
        }
        self.isCounted = true
        context.channel.closeFuture.whenComplete { _ in tally.giveBack(client) }
        return true
    }

    var backlog: Int {
        (try? self.context?.channel.syncOptions?.getOption(.bufferedWritableBytes)) ?? 0
    }
}
