// Carillon · HTTPStub.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Foundation
import NIOCore
import NIOPosix
import Synchronization

/// A plain HTTP/1.1 server that records requests and returns the configured answer.
package final class HTTPStub: Sendable {
    package struct Answer: Sendable {
        package var status: Int
        package var body: [UInt8]
        /// The media type of the body; no header if nil.
        package var type: String?
        /// Further headers.
        package var headers: [(name: String, value: String)]
        /// Whether the server never responds but keeps the connection open.
        package var isSilent: Bool
        /// Whether the connection stays open for another request.
        package var keepsConnection: Bool
        /// Whether the server closes the connection instead of responding.
        package var hangsUp: Bool
        /// Delays the response until it returns.
        package var hold: (@Sendable () async -> Void)?

        package init(
            status: Int = 200,
            body: String,
            type: String? = nil,
            headers: [(name: String, value: String)] = [],
            isSilent: Bool = false,
            keepsConnection: Bool = false,
            hangsUp: Bool = false,
            hold: (@Sendable () async -> Void)? = nil
        ) {
            self.status = status
            self.body = Array(body.utf8)
            self.type = type
            self.headers = headers
            self.isSilent = isSilent
            self.keepsConnection = keepsConnection
            self.hangsUp = hangsUp
            self.hold = hold
        }
    }

    /// A received request.
    package struct Request: Sendable {
        /// The request line and the header lines.
        package let head: [String]
        package let body: [UInt8]

        /// Returns the value of a header field, by its lowercase name.
        package func header(_ name: String) -> String? {
            self.head.first { $0.lowercased().hasPrefix(name + ":") }
                .map { String($0.dropFirst(name.count + 1).drop { $0 == " " }) }
        }
    }

    private struct State {
        var answer: Answer
        var requests: [Request] = []
    }

    private final class Memory: Sendable {
        let state: Mutex<State>

        init(_ answer: Answer) {
            self.state = Mutex(State(answer: answer))
        }
    }

    package let port: Int
    private let channel: any Channel
    private let memory: Memory

    package var url: String { "http://127.0.0.1:\(self.port)" }
    package var requests: Int { self.memory.state.withLock { $0.requests.count } }
    /// All requests, in the order in which they were complete.
    package var received: [Request] { self.memory.state.withLock { $0.requests } }

    private init(channel: any Channel, memory: Memory) {
        self.channel = channel
        self.memory = memory
        self.port = channel.localAddress?.port ?? 0
    }

    /// Runs `body` with a server, which is closed afterwards.
    ///
    /// - Parameter port: 0 for any free port.
    package static func with<Result>(
        _ answer: Answer,
        port: Int = 0,
        _ body: (HTTPStub) async throws -> Result
    ) async throws -> Result {
        let memory = Memory(answer)
        let channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Handler(memory: memory))
                }
            }
            .bind(host: "127.0.0.1", port: port).get()
        let stub = HTTPStub(channel: channel, memory: memory)
        return try await withCleanUp({ try? await channel.close().get() }) { try await body(stub) }
    }

    /// Sets the answer to all later requests.
    package func answer(_ answer: Answer) {
        self.memory.state.withLock { $0.answer = answer }
    }

    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        private static let headEnd = Array("\r\n\r\n".utf8)

        private let memory: Memory
        private var read = ByteBuffer()
        /// The head of the request whose body is incomplete.
        private var head: (lines: [String], length: Int)?

        init(memory: Memory) {
            self.memory = memory
        }

        /// Returns the request read so far, if it is complete.
        private func request() -> Request? {
            // Once for each request: a slow machine gets a long body in many parts.
            if self.head == nil {
                let view = self.read.readableBytesView
                guard let end = view.firstRange(of: Self.headEnd) else { return nil }
                let text = String(decoding: view[..<end.lowerBound], as: UTF8.self)
                let lines = text.split(separator: "\r\n").map { String($0) }
                let length = Request(head: lines, body: []).header("content-length").flatMap { Int($0) }
                self.head = (lines: lines, length: length ?? 0)
                self.read.moveReaderIndex(to: end.upperBound)
            }
            guard let head = self.head, self.read.readableBytes >= head.length else { return nil }
            return Request(head: head.lines, body: Array(buffer: self.read))
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            var part = self.unwrapInboundIn(data)
            self.read.writeBuffer(&part)
            guard let request = self.request() else { return }
            self.read.clear()
            self.head = nil
            let answer = self.memory.state.withLock { state in
                state.requests.append(request)
                return state.answer
            }
            if answer.isSilent { return }
            guard let hold = answer.hold else { return self.respond(with: answer, in: context) }
            context.eventLoop.makeFutureWithTask(hold).assumeIsolated().whenComplete { _ in
                self.respond(with: answer, in: context)
            }
        }

        private func respond(with answer: Answer, in context: ChannelHandlerContext) {
            if answer.hangsUp { return context.close(promise: nil) }
            let type = answer.type.map { "content-type: \($0)\r\n" } ?? ""
            let more = answer.headers.map { "\($0.name): \($0.value)\r\n" }.joined()
            let connection = answer.keepsConnection ? "keep-alive" : "close"
            let head =
                "HTTP/1.1 \(answer.status) Said\r\n\(type)\(more)content-length: \(answer.body.count)\r\n"
                + "connection: \(connection)\r\n\r\n"
            let bytes = ByteBuffer(bytes: Array(head.utf8) + answer.body)
            if answer.keepsConnection { return context.writeAndFlush(self.wrapOutboundOut(bytes), promise: nil) }
            let bound = NIOLoopBound(context, eventLoop: context.eventLoop)
            context.writeAndFlush(self.wrapOutboundOut(bytes)).whenComplete { _ in bound.value.close(promise: nil) }
        }
    }
}

extension TransferClient {
    /// Returns the answer to a request.
    ///
    /// - Parameter what: the request in words, for the error; nil for its method and its host.
    /// - Throws: ``FixtureError`` if there is no answer.
    package func answer(
        _ request: TransferRequest,
        to what: String? = nil,
        file: StaticString = #fileID,
        line: UInt = #line
    ) async throws -> TransferResponse {
        switch await self.perform(request) {
        case .answered(let response): return response
        case .unanswered(let failure):
            throw FixtureError("\(what ?? request.description): \(failure)", file: file, line: line)
        }
    }
}
