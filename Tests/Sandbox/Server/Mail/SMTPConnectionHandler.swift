// Carillon · SMTPConnectionHandler.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOSSL

/// A client's connection to the relay's face.
final class SMTPConnectionHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let tls: NIOSSLContext
    private let slowDelay: TimeAmount
    private var session: SMTPSession

    /// - Parameter isSecure: whether TLS is there from the start.
    init(_ endpoint: MailEndpoint, tls: NIOSSLContext, isSecure: Bool, slowDelay: TimeAmount) {
        self.tls = tls
        self.slowDelay = slowDelay
        self.session = SMTPSession(endpoint, isSecure: isSecure)
    }

    func channelActive(context: ChannelHandlerContext) {
        self.perform(self.session.greeting, context)
        context.flush()
        context.fireChannelActive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let buffer = self.unwrapInboundIn(data)
        for action in self.session.receive(buffer.readableBytesView) { self.perform(action, context) }
        context.flush()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }

    private func perform(_ action: SMTPSession.Action, _ context: ChannelHandlerContext) {
        switch action {
        case .reply(let text): self.write(text, context)
        case .replyLate(let text):
            context.eventLoop.assumeIsolated().scheduleTask(in: self.slowDelay) {
                self.write(text, context)
                context.flush()
            }
        case .closeLate:
            context.eventLoop.assumeIsolated().scheduleTask(in: self.slowDelay) { context.close(promise: nil) }
        case .startTLS:
            // The reply goes out in the clear before.
            context.flush()
            do {
                try context.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: self.tls), position: .first)
            } catch {
                context.close(promise: nil)
            }
        case .close:
            context.flush()
            context.close(promise: nil)
        }
    }

    private func write(_ text: String, _ context: ChannelHandlerContext) {
        context.write(self.wrapOutboundOut(ByteBuffer(string: text + "\r\n")), promise: nil)
    }
}
