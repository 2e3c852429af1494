// Carillon · HTTP1ConnectionHandler.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHPACK
import NIOHTTP1

/// An HTTP/1.1 connection with one request at a time, which the pipeline handler before it ensures.
final class HTTP1ConnectionHandler: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    private let service: SandboxService
    private let transport: SandboxRequest.Transport
    private var connection = SandboxConnection()
    private var head: HTTPRequestHead?
    private var body: [UInt8] = []
    private var isTruncated = false
    private var isOpen = true

    init(service: SandboxService, transport: SandboxRequest.Transport) {
        self.service = service
        self.transport = transport
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.isOpen = false
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch self.unwrapInboundIn(data) {
        case .head(let head):
            self.head = head
            self.body = []
            self.isTruncated = false
        case .body(let bytes):
            let room = SandboxRequest.maximumBody - self.body.count
            self.body.append(contentsOf: bytes.readableBytesView.prefix(room))
            self.isTruncated = self.isTruncated || bytes.readableBytes > room
        case .end:
            guard let head = self.head else { return }
            let request = SandboxRequest(
                transport: self.transport, method: head.method.rawValue, target: head.uri,
                headers: HPACKHeaders(httpHeaders: head.headers), body: self.body, isTruncated: self.isTruncated)
            self.perform(self.service.answer(request, on: &self.connection), to: head, context: context)
        }
    }

    private func perform(_ answer: SandboxAnswer, to head: HTTPRequestHead, context: ChannelHandlerContext) {
        switch answer {
        case .respond(let response):
            self.write(response, to: head, context: context)
        case .respondLater(let response, let pause):
            pause.end(on: context.eventLoop).assumeIsolated().whenSuccess {
                guard self.isOpen else { return }
                self.write(response, to: head, context: context)
            }
        case .respondInPart(let response):
            let start = HTTPResponseHead(
                version: head.version, status: .init(statusCode: response.status),
                headers: HTTPHeaders(response.headers))
            context.write(self.wrapOutboundOut(.head(start)), promise: nil)
            context.writeAndFlush(self.wrapOutboundOut(.body(.byteBuffer(response.body))), promise: nil)
            context.eventLoop.assumeIsolated().scheduleTask(in: SandboxAnswer.breakDelay) {
                guard self.isOpen else { return }
                context.cutConnection()
            }
        case .silence:
            break
        case .sever:
            context.cutConnection(isReset: true)
        case .cut, .goAway, .refuse, .reset:
            // HTTP/1.1 cannot express the last three.
            context.cutConnection()
        }
    }

    private func write(_ response: SandboxResponse, to request: HTTPRequestHead, context: ChannelHandlerContext) {
        var headers = HTTPHeaders(response.headers)
        if response.status != 204 {
            headers.add(name: "content-length", value: String(response.body.readableBytes))
        }
        let head = HTTPResponseHead(
            version: request.version, status: .init(statusCode: response.status), headers: headers)
        context.write(self.wrapOutboundOut(.head(head)), promise: nil)
        if response.body.readableBytes > 0, request.method != .HEAD {
            context.write(self.wrapOutboundOut(.body(.byteBuffer(response.body))), promise: nil)
        }
        context.writeAndFlush(self.wrapOutboundOut(.end(nil)), promise: nil)
        if !request.isKeepAlive { context.close(promise: nil) }
    }
}
