// Carillon · FrameClient.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import NIOCore
import NIOHPACK
import NIOHTTP2
import NIOPosix
import NIOSSL

/// Sends pushes one after the other over one HTTP/2 connection and records the frames received.
enum FrameClient {
    enum Event: Equatable {
        case maximumStreams(Int)
        case status(Int)
        case reset(code: Int)
        case goAway(last: Int)
        case closed
    }

    struct Push: Sendable {
        let device: String
        let bearer: String?
    }

    static func events(_ pushes: [Push], to url: String, authority: String) async throws -> [Event] {
        let port = URL(string: url)?.port ?? 0
        var tls = TLSConfiguration.makeClientConfiguration()
        tls.trustRoots = .file(authority)
        tls.applicationProtocols = ["h2"]
        tls.shutdownTimeout = .milliseconds(100)
        let context = try NIOSSLContext(configuration: tls)
        let group = MultiThreadedEventLoopGroup.singleton
        let promise = group.next().makePromise(of: [Event].self)
        let channel = try await ClientBootstrap(group: group)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandlers(
                        NIOSSLClientHandler(context: context, serverHostname: nil), NIOHTTP2Handler(mode: .client),
                        Recorder(pushes, promise: promise))
                }
            }
            .connect(host: "127.0.0.1", port: port).get()
        let events = try await promise.futureResult.get()
        try? await channel.close()
        return events
    }

    private final class Recorder: ChannelInboundHandler {
        typealias InboundIn = HTTP2Frame
        typealias OutboundOut = HTTP2Frame

        private var waiting: ArraySlice<Push>
        private let promise: EventLoopPromise<[Event]>
        private var events: [Event] = []
        private var sent = 0

        init(_ pushes: [Push], promise: EventLoopPromise<[Event]>) {
            self.waiting = pushes[...]
            self.promise = promise
        }

        func channelActive(context: ChannelHandlerContext) {
            self.sendNext(context)
            context.fireChannelActive()
        }

        func channelInactive(context: ChannelHandlerContext) {
            self.events.append(.closed)
            self.promise.succeed(self.events)
            context.fireChannelInactive()
        }

        func errorCaught(context: ChannelHandlerContext, error: any Error) {
            // The recorded frames already show cut connections and reset streams.
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            switch self.unwrapInboundIn(data).payload {
            case .settings(.settings(let settings)):
                for setting in settings where setting.parameter == .maxConcurrentStreams {
                    self.events.append(.maximumStreams(setting.value))
                }
            case .headers(let payload):
                self.events.append(.status(payload.headers.first(name: ":status").flatMap(Int.init) ?? 0))
                if payload.endStream { self.sendNext(context) }
            case .data(let payload):
                if payload.endStream { self.sendNext(context) }
            case .rstStream(let code):
                self.events.append(.reset(code: code.networkCode))
                self.sendNext(context)
            case .goAway(let last, _, _):
                self.events.append(.goAway(last: Int(last)))
            default:
                break
            }
        }

        private func sendNext(_ context: ChannelHandlerContext) {
            guard let push = self.waiting.popFirst() else {
                self.promise.succeed(self.events)
                return
            }
            let stream = HTTP2StreamID(2 * self.sent + 1)
            self.sent += 1
            var headers: HPACKHeaders = [
                ":method": "POST", ":scheme": "https", ":authority": "localhost", ":path": "/3/device/\(push.device)",
                "apns-topic": "org.example.app",
            ]
            if let bearer = push.bearer { headers.add(name: "authorization", value: "bearer \(bearer)") }
            let body = HTTP2Frame.FramePayload.Data(
                data: .byteBuffer(ByteBuffer(string: #"{"aps":{}}"#)), endStream: true)
            for payload in [HTTP2Frame.FramePayload.headers(.init(headers: headers)), .data(body)] {
                context.write(self.wrapOutboundOut(HTTP2Frame(streamID: stream, payload: payload)), promise: nil)
            }
            context.flush()
        }
    }
}
