// Carillon · ConnectionAnswers.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1

/// Answers of endpoints: whole ones, those in pieces, and refusals.
extension ConnectionHandler {
    /// Answers an exchange.
    func answer(_ request: HTTPRequestHead, _ status: HTTPResponseStatus, _ headers: HTTPHeaders, _ body: ByteBuffer) {
        let closes = !request.isKeepAlive || self.mustClose
        self.respond(to: request, status, headers, body, closes: closes)
        self.exchange = nil
        self.forgetBody()
        // The write may have ended the connection; then the phase stays.
        guard !closes, self.context != nil else { return }
        self.phase = .idle
        if !self.hasServer { self.closeAfter(self.timeouts.idle) }
        self.drain()
    }

    /// Refuses a request without reading its rest, and closes.
    ///
    /// - Parameter request: nil if its head could not be read.
    func refuse(_ request: HTTPRequestHead?, _ refusal: TransportRefusal) {
        guard self.context != nil else { return }
        let incoming = self.incoming
        self.phase = .refusing
        // After the phase changed: the exchange's owner might answer.
        incoming?.abort()
        self.forgetBody()
        self.respond(to: request, refusal.status, refusal.headers, ByteBuffer(bytes: refusal.body), closes: true)
        self.settle(.taken)
    }

    /// Writes a whole answer.
    private func respond(
        to request: HTTPRequestHead?,
        _ status: HTTPResponseStatus,
        _ headers: HTTPHeaders,
        _ body: ByteBuffer,
        closes: Bool
    ) {
        guard let context else { return }
        var head = HTTPResponseHead(version: .http1_1, status: status, headers: headers)
        // A 204 has no length (RFC 9110, section 8.6).
        if status != .noContent { head.headers.replaceOrAdd(name: "content-length", value: "\(body.readableBytes)") }
        if closes { head.headers.replaceOrAdd(name: "connection", value: "close") }
        self.policy.protect(&head.headers, request.flatMap { self.grant($0) })
        if status == .upgradeRequired {
            // RFC 9110, sections 7.8 and 15.5.22, and RFC 6455, section 4.4.
            head.headers.add(name: "upgrade", value: "websocket")
            head.headers.add(name: "connection", value: "upgrade")
            head.headers.add(name: "sec-websocket-version", value: "13")
        }
        context.write(self.wrapOutboundOut(.head(head)), promise: nil)
        // The answer to HEAD has the fields of one to GET, and no body (RFC 9110, section 9.3.2).
        if body.readableBytes > 0, request?.method != .HEAD {
            context.write(self.wrapOutboundOut(.body(.byteBuffer(body))), promise: nil)
        }
        self.end(context, closes: closes)
        self.countUnread()
    }

    /// Ends an answer, and closes the connection once it is written.
    private func end(_ context: ChannelHandlerContext, closes: Bool) {
        // Without a promise, which would be allocated.
        guard closes else { return context.writeAndFlush(self.wrapOutboundOut(.end(nil)), promise: nil) }
        let bound = NIOLoopBound(context, eventLoop: context.eventLoop)
        context.writeAndFlush(self.wrapOutboundOut(.end(nil))).whenComplete { _ in bound.value.close(promise: nil) }
    }

    /// The CORS grant for the page that sent a request; for a preflight, that of the path it asks
    /// about.
    private func grant(_ head: HTTPRequestHead) -> AllowedOrigins.Grant? {
        // Most requests come from no page.
        guard head.headers.contains(name: "origin") else { return nil }
        return self.policy.grant(head, self.owner(of: head))
    }

    // MARK: Answers in pieces

    /// Begins an answer in pieces.
    func beginStream(_ request: HTTPRequestHead, _ status: HTTPResponseStatus, _ headers: HTTPHeaders) {
        guard let context else { return }
        self.mustClose = true
        if !self.hasServer { self.settle(.taken) }
        // HTTP/1.0 has no chunks; the stream ends with the connection.
        let version: HTTPVersion = request.version == .http1_0 ? .http1_0 : .http1_1
        var head = HTTPResponseHead(version: version, status: status, headers: headers)
        head.headers.replaceOrAdd(name: "connection", value: "close")
        self.policy.protect(&head.headers, self.grant(request))
        context.writeAndFlush(self.wrapOutboundOut(.head(head)), promise: nil)
        self.slowReader?.beginStream()
        self.dropDecoder(context)
    }

    /// Frees the memory of the decoder, since no request follows a stream.
    private func dropDecoder(_ context: ChannelHandlerContext) {
        guard let codec else { return }
        // Cleared first, because the removed decoder forwards the bytes that it has.
        self.codec = nil
        context.pipeline.syncOperations.removeHandler(codec.decoding, promise: nil)
    }

    /// Writes a piece of an answer.
    func writeStream(_ bytes: ByteBuffer) {
        guard let context else { return }
        self.slowReader?.wrote(bytes.readableBytes)
        context.writeAndFlush(self.wrapOutboundOut(.body(.byteBuffer(bytes))), promise: nil)
    }

    /// Ends an answer in pieces, and with it the connection.
    func endStream() {
        guard let context else { return }
        self.exchange = nil
        // The endpoint no longer watches the stream, so nothing else bounds the waiting output.
        self.closeAfter(self.timeouts.end)
        self.end(context, closes: true)
    }

    /// The bytes that wait for a slow client.
    var backlog: Int { self.context?.channel.backlog ?? 0 }
}
