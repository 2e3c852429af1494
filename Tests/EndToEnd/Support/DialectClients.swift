// Carillon · DialectClients.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
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
            .connectTimeout(TimeAmount(longestWait))
            .channelInitializer { $0.pipeline.addHTTPClientHandlers() }
            .connect(host: "127.0.0.1", port: port).get()
        let stream = TestStream(channel: channel, state: State())
        try await channel.pipeline.addHandler(TestStreamHandler(stream: stream)).get()
        let own = Stack.token(user: user)
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

    /// The titles in the order in which the client learned them.
    var titles: [String] {
        self.events.compactMap { try? JSONParser.parse(Array($0.data.utf8)) }.newNotifications
            .compactMap { $0["title"]?.string }
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

/// An Engine.IO polling client that sends exactly the packets a test gives it.
struct TestEngine: Sendable {
    let port: Int
    let http: TransferClient
    let sid: String

    static let separator: Character = "\u{1E}"

    struct Answer: Sendable {
        let status: Int
        let body: String
        let response: TransferResponse

        /// The packets of the answer.
        var packets: [String] { self.body.split(separator: TestEngine.separator).map { String($0) } }
    }

    /// Opens a session.
    static func open(port: Int, http: TransferClient) async throws -> TestEngine {
        let answer = try await Self.send(.get, "?EIO=4&transport=polling", port: port, http: http)
        let handshake = try JSONParser.parse(Array(answer.body.utf8.dropFirst()))
        guard answer.status == 200, let sid = handshake["sid"]?.string else {
            throw FixtureError("no session: \(answer.status) \(answer.body)")
        }
        return TestEngine(port: port, http: http, sid: sid)
    }

    static func send(
        _ method: TransferRequest.Method,
        _ query: String,
        body: String = "",
        headers: [(name: String, value: String)] = [],
        port: Int,
        http: TransferClient
    ) async throws -> Answer {
        let request = TransferRequest(
            method,
            url: "http://127.0.0.1:\(port)/socket.io/\(query)",
            headers: [(name: "content-type", value: "text/plain;charset=UTF-8")] + headers,
            body: Array(body.utf8),
            timeout: longestWait,
            maximumResponseBytes: 16 * 1024 * 1024
        )
        let response = try await http.answer(request, to: "\(method.rawValue) \(query)")
        let body = String(decoding: response.body, as: UTF8.self)
        return Answer(status: response.status, body: body, response: response)
    }

    var query: String { "?EIO=4&transport=polling&sid=\(self.sid)" }

    func poll() async throws -> Answer {
        try await Self.send(.get, self.query, port: self.port, http: self.http)
    }

    @discardableResult
    func post(_ packets: String...) async throws -> Answer {
        let body = packets.joined(separator: String(Self.separator))
        return try await Self.send(.post, self.query, body: body, port: self.port, http: self.http)
    }

    /// Polls until a packet with this prefix comes and returns all packets received.
    func poll(until prefix: String) async throws -> [String] {
        var packets: [String] = []
        while !packets.contains(where: { $0.hasPrefix(prefix) }) {
            let answer = try await self.poll()
            guard answer.status == 200 else { throw FixtureError("poll: \(answer.status) \(answer.body)") }
            packets += answer.packets
            if answer.packets.contains("2") { try await self.post("3") }
        }
        return packets
    }
}

/// SignalR messages that all transports share.
enum TestSignalR {
    static let path = "/hubs/notifications"

    static func record(_ json: String) -> [UInt8] { Array(json.utf8) + [0x1E] }

    static let handshake = Self.record(#"{"protocol":"json","version":1}"#)

    static func call(_ method: String, _ arguments: String = "", id: String) -> [UInt8] {
        Self.record(#"{"type":1,"invocationId":"\#(id)","target":"\#(method)","arguments":[\#(arguments)]}"#)
    }

    /// Negotiates and returns the connection token.
    static func negotiate(_ gateway: Gateway, user: String, query: String = "?negotiateVersion=1") async throws
        -> String
    {
        let token = Stack.token(user: user)
        let answer = try await gateway.call(.post, "\(Self.path)/negotiate\(query)", token: token)
        guard let id = (answer.body["connectionToken"] ?? answer.body["connectionId"])?.string else {
            throw FixtureError("negotiation failed: \(answer.status)")
        }
        return id
    }

    /// Opens a WebSocket and sends the handshake.
    static func open(
        _ gateway: Gateway,
        user: String,
        query: String = "",
        behaviour: TestSocket.Behaviour = .init()
    ) async throws -> TestSocket {
        let socket = try await TestSocket.open(
            port: gateway.port,
            token: Stack.token(user: user),
            query: query,
            path: Self.path,
            behaviour: behaviour
        )
        try await eventually("the socket is up") { socket.status == 101 }
        try await socket.send(opcode: 1, payload: Self.handshake)
        return socket
    }

    /// Opens a WebSocket and waits for the first unread count.
    static func synced(_ gateway: Gateway, user: String, query: String = "") async throws -> TestSocket {
        let socket = try await Self.open(gateway, user: user, query: query)
        try await eventually("the count comes") { !socket.messages.arguments("UnreadCountChanged").isEmpty }
        return socket
    }

    /// The messages in a sequence of records.
    static func messages(_ bytes: some Sequence<UInt8>) -> [JSONValue] {
        Array(bytes).split(separator: 0x1E).compactMap { try? JSONParser.parse(Array($0)) }
    }
}

extension [JSONValue] {
    /// The first argument of each invocation of a client method, in order.
    func arguments(_ target: String) -> [JSONValue] {
        self.filter { $0["type"]?.integer == 1 && $0["target"]?.string == target }
            .compactMap { $0["arguments"]?.array?.first }
    }

    /// The titles of the received notifications.
    var receivedTitles: [String] { self.arguments("ReceiveNotification").compactMap { $0["title"]?.string } }

    /// The received unread counts.
    var counts: [Int64] { self.arguments("UnreadCountChanged").compactMap(\.integer) }

    /// The completion of an invocation.
    func completion(_ id: String) -> JSONValue? {
        self.first { $0["type"]?.integer == 3 && $0["invocationId"]?.string == id }
    }

    /// The Close message.
    var close: JSONValue? { self.first { $0["type"]?.integer == 7 } }
}

/// A user's client of the compatibility API.
struct CompatibilityClient {
    let gateway: Gateway
    let token: String

    init(_ gateway: Gateway, user: String) {
        self.gateway = gateway
        self.token = Stack.token(user: user)
    }

    func get(_ path: String) async throws -> Gateway.Answer {
        try await self.gateway.call(.get, path, token: self.token)
    }

    func send(_ method: TransferRequest.Method, _ path: String, _ json: String? = nil) async throws -> Gateway.Answer {
        try await self.gateway.call(method, path, token: self.token, json: json)
    }

    /// Waits until the inbox at `path` counts `count` notifications.
    func waitForCount(_ count: Int, at path: String = "/v1/notifications/unread-count") async throws {
        try await eventually("\(count) notifications") {
            try await self.get(path).body["total"]?.integer == Int64(count)
        }
    }
}

extension JSONValue {
    /// The texts of a member in an array of objects.
    func texts(_ name: String) -> [String] {
        self.array?.compactMap { $0[name]?.string } ?? []
    }
}
