// Carillon · TestStream.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import FoundationEssentials
import NIOCore
import NIOHTTP1
import NIOPosix
import Support
import Synchronization

/// A client of Server-Sent Events.
final class TestStream: Sendable {
    struct Event: Sendable {
        var name = ""
        var id: String?
        var data = ""
    }

    struct State {
        var status: Int?
        var text = ""
        var isOver = false
    }

    private let state: Mutex<State>
    private let channel: any NIOCore.Channel

    private init(channel: any NIOCore.Channel, state: sending State) {
        self.channel = channel
        self.state = Mutex(state)
    }

    /// Requests the stream without waiting for the answer.
    static func open(
        port: Int,
        user: String,
        lastEventID: String? = nil,
        token: String? = nil,
        path: String = "/v1/stream"
    ) async throws -> TestStream {
        let channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .channelInitializer { $0.pipeline.addHTTPClientHandlers() }
            .connect(host: "127.0.0.1", port: port).get()
        let stream = TestStream(channel: channel, state: State())
        try await channel.pipeline.addHandler(TestStreamHandler(stream: stream)).get()
        let own = try await Stack.token(user: user)
        var headers: HTTPHeaders = [
            "host": "127.0.0.1", "authorization": "Bearer \(token ?? own)",
            "accept": "text/event-stream",
        ]
        if let lastEventID { headers.add(name: "last-event-id", value: lastEventID) }
        let head = HTTPRequestHead(version: .http1_1, method: .GET, uri: path, headers: headers)
        channel.write(HTTPClientRequestPart.head(head), promise: nil)
        try await channel.writeAndFlush(HTTPClientRequestPart.end(nil)).get()
        return stream
    }

    var status: Int? { self.state.withLock { $0.status } }
    var text: String { self.state.withLock { $0.text } }
    var isOver: Bool { self.state.withLock { $0.isOver } }

    /// The complete events received so far.
    var events: [Event] {
        self.state.withLock { $0.text }.components(separatedBy: "\n\n").dropLast().map { block in
            var event = Event()
            for line in block.split(separator: "\n") {
                let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
                let value = parts.count > 1 ? String(parts[1].drop { $0 == " " }) : ""
                switch parts[0] {
                case "event": event.name = value
                case "id": event.id = value
                case "data": event.data += value
                default: break
                }
            }
            return event
        }
    }

    /// The titles of the received notifications, in order.
    var titles: [String] {
        self.events.filter { $0.name == "notification" }.compactMap {
            try? JSONParser.parse(Array($0.data.utf8))["notification"]?["title"]?.string
        }
    }

    func first(_ name: String) async throws -> Event {
        try await eventually("event \(name)") { self.events.contains { $0.name == name } }
        return self.events.first { $0.name == name } ?? Event()
    }

    func close() async {
        try? await self.channel.close().get()
    }

    fileprivate func change(_ body: (inout State) -> Void) {
        self.state.withLock { body(&$0) }
    }
}

private final class TestStreamHandler: ChannelInboundHandler, Sendable {
    typealias InboundIn = HTTPClientResponsePart

    private let stream: TestStream

    init(stream: TestStream) {
        self.stream = stream
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch self.unwrapInboundIn(data) {
        case .head(let head): self.stream.change { $0.status = Int(head.status.code) }
        case .body(let bytes): self.stream.change { $0.text += String(buffer: bytes) }
        case .end: self.stream.change { $0.isOver = true }
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.stream.change { $0.isOver = true }
    }
}
