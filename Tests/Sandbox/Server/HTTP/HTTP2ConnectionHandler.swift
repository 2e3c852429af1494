// Carillon · HTTP2ConnectionHandler.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import NIOCore
import NIOHPACK
import NIOHTTP2
import NIOSSL

/// An HTTP/2 connection: collects the frames of each stream into a request and writes the response.
///
/// Works on the connection's frames without a child channel for each stream, because bodies are
/// small and a channel costs several times as much.
final class HTTP2ConnectionHandler: ChannelInboundHandler {
    typealias InboundIn = HTTP2Frame
    typealias OutboundOut = HTTP2Frame

    private static let connectionWindow = 16 << 20
    private static let streamWindow = 1 << 20
    private static let maximumStreams = 1000

    /// As strict as APNs: one stream until the connection is trusted.
    static var initialSettings: HTTP2Settings {
        [
            HTTP2Setting(parameter: .maxConcurrentStreams, value: 1),
            HTTP2Setting(parameter: .initialWindowSize, value: Self.streamWindow),
            HTTP2Setting(parameter: .maxHeaderListSize, value: 16384),
        ]
    }

    private struct Gathering {
        let headers: HPACKHeaders
        var body: [UInt8] = []
        var isTruncated = false
        var received = 0

        mutating func append(_ data: ByteBuffer) {
            self.received += data.readableBytes
            let room = SandboxRequest.maximumBody - self.body.count
            self.body.append(contentsOf: data.readableBytesView.prefix(room))
            self.isTruncated = self.isTruncated || data.readableBytes > room
        }
    }

    private let service: SandboxService
    private var connection = SandboxConnection()
    private var gathering: [HTTP2StreamID: Gathering] = [:]
    private var hasRaisedStreams = false
    private var consumedWindow = 0
    private var isOpen = true

    init(service: SandboxService) {
        self.service = service
    }

    func handlerAdded(context: ChannelHandlerContext) {
        // SETTINGS cannot change the connection's window (RFC 9113 section 6.9.2).
        self.write(.windowUpdate(windowSizeIncrement: Self.connectionWindow - 65535), on: .rootStream, context: context)
        context.flush()
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.isOpen = false
        self.gathering.removeAll()
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if error is NIOHTTP2Errors.StreamError { return }
        context.close(promise: nil)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        // No later handler needs these events, of which every stream causes several.
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard self.isOpen else { return }
        let frame = self.unwrapInboundIn(data)
        switch frame.payload {
        case .headers(let payload):
            // A second block of headers is trailers.
            let request = self.gathering.removeValue(forKey: frame.streamID) ?? Gathering(headers: payload.headers)
            self.advance(frame.streamID, request, isComplete: payload.endStream, context: context)
        case .data(let payload):
            self.consumedWindow += payload.data.readableBytes + (payload.paddingBytes.map { $0 + 1 } ?? 0)
            guard var request = self.gathering.removeValue(forKey: frame.streamID) else { return }
            if case .byteBuffer(let bytes) = payload.data { request.append(bytes) }
            self.advance(frame.streamID, request, isComplete: payload.endStream, context: context)
        case .rstStream:
            self.gathering.removeValue(forKey: frame.streamID)
        default:
            break
        }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        if self.isOpen, self.consumedWindow > Self.connectionWindow / 4 {
            self.write(.windowUpdate(windowSizeIncrement: self.consumedWindow), on: .rootStream, context: context)
            self.consumedWindow = 0
        }
        context.flush()
    }

    private func advance(
        _ stream: HTTP2StreamID, _ request: Gathering, isComplete: Bool, context: ChannelHandlerContext
    ) {
        // Answer early at half the window: this handler never enlarges a stream's window.
        guard isComplete || request.received > Self.streamWindow / 2 else {
            self.gathering[stream] = request
            return
        }
        var method = ""
        var target = ""
        for (name, value, _) in request.headers {
            if name == ":method" { method = value }
            if name == ":path" { target = value }
            guard name.utf8.first == UInt8(ascii: ":") else { break }
        }
        let answer = self.service.answer(
            SandboxRequest(
                transport: .http2, method: method, target: target, headers: request.headers, body: request.body,
                isTruncated: request.isTruncated),
            on: &self.connection)
        if self.connection.isTrusted, !self.hasRaisedStreams {
            self.hasRaisedStreams = true
            let setting = HTTP2Setting(parameter: .maxConcurrentStreams, value: Self.maximumStreams)
            self.write(.settings(.settings([setting])), on: .rootStream, context: context)
        }
        self.perform(answer, on: stream, context: context)
        if !isComplete {
            // Answered before the end of the request: tell the client to stop (RFC 9113 section
            // 8.1).
            self.write(.rstStream(.noError), on: stream, context: context)
        }
    }

    private func perform(_ answer: SandboxAnswer, on stream: HTTP2StreamID, context: ChannelHandlerContext) {
        switch answer {
        case .respond(let response):
            self.write(response, on: stream, context: context)
        case .respondLater(let response, let pause):
            pause.end(on: context.eventLoop).assumeIsolated().whenSuccess {
                guard self.isOpen else { return }
                self.write(response, on: stream, context: context)
                context.flush()
            }
        case .respondInPart(let response):
            self.write(response, on: stream, endsStream: false, context: context)
            context.eventLoop.assumeIsolated().scheduleTask(in: SandboxAnswer.breakDelay) {
                guard self.isOpen else { return }
                self.write(.rstStream(.internalError), on: stream, context: context)
                context.flush()
            }
        case .silence:
            break
        case .cut:
            self.isOpen = false
            context.cutConnection()
        case .sever:
            self.isOpen = false
            context.cutConnection(isReset: true)
        case .goAway:
            self.isOpen = false
            let last = HTTP2StreamID(max(0, Int(stream) - 2))
            let payload = HTTP2Frame.FramePayload.goAway(
                lastStreamID: last, errorCode: .noError, opaqueData: ByteBuffer(string: #"{"reason":"Shutdown"}"#))
            self.write(payload, on: .rootStream, context: context)
            context.flush()
            context.close(promise: nil)
        case .refuse:
            self.write(.rstStream(.refusedStream), on: stream, context: context)
        case .reset:
            self.write(.rstStream(.internalError), on: stream, context: context)
        }
    }

    private func write(
        _ response: SandboxResponse, on stream: HTTP2StreamID, endsStream: Bool = true, context: ChannelHandlerContext
    ) {
        var headers = HPACKHeaders()
        headers.reserveCapacity(response.headers.count + 2)
        headers.add(name: ":status", value: String(response.status))
        for (name, value) in response.headers {
            headers.add(name: name, value: value)
        }
        let hasBody = response.body.readableBytes > 0
        if hasBody, endsStream { headers.add(name: "content-length", value: String(response.body.readableBytes)) }
        self.write(.headers(.init(headers: headers, endStream: endsStream && !hasBody)), on: stream, context: context)
        if hasBody {
            let data = HTTP2Frame.FramePayload.Data(data: .byteBuffer(response.body), endStream: endsStream)
            self.write(.data(data), on: stream, context: context)
        }
    }

    private func write(_ payload: HTTP2Frame.FramePayload, on stream: HTTP2StreamID, context: ChannelHandlerContext) {
        context.write(self.wrapOutboundOut(HTTP2Frame(streamID: stream, payload: payload)), promise: nil)
    }
}

extension ChannelHandlerContext {
    /// Closes the socket below TLS, so that the peer gets no close_notify.
    ///
    /// - Parameter isReset: whether to send a TCP RST instead of a FIN.
    func cutConnection(isReset: Bool = false) {
        if isReset, let socket = self.channel as? any SocketOptionProvider {
            _ = socket.setSoLinger(linger(l_onoff: 1, l_linger: 0))
        }
        guard let below = try? self.pipeline.syncOperations.context(handlerType: NIOSSLServerHandler.self) else {
            self.close(promise: nil)
            return
        }
        below.close(promise: nil)
    }
}
