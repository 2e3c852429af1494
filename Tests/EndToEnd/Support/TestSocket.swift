// Carillon · TestSocket.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import NIOCore
import NIOPosix
import NIOSSL
import Support
import Synchronization

/// A native client that controls every byte: it can stay silent, send nonsense or stop reading.
final class TestSocket: Sendable {
    struct Behaviour: Sendable {
        var answersPings = true
        var isReading = true
        /// Keeps its side open after the server has closed.
        var keepsHalfOpen = false
    }

    private struct State {
        var status: Int?
        var head = ""
        var messages: [JSONValue] = []
        var texts: [String] = []
        var binaries: [[UInt8]] = []
        var pings = 0
        var closeCode: UInt16?
        var isClosed = false
    }

    private let state = Mutex(State())
    private let channel: any NIOCore.Channel

    private init(channel: any NIOCore.Channel) {
        self.channel = channel
    }

    /// Connects without sending a request.
    static func connect(
        port: Int,
        behaviour: Behaviour = Behaviour(),
        tls: NIOSSLContext? = nil,
        group: MultiThreadedEventLoopGroup = .singleton
    ) async throws -> TestSocket {
        let holder = SocketHolder()
        let channel = try await ClientBootstrap(group: group)
            .connectTimeout(TimeAmount(longestWait))
            .channelOption(.autoRead, value: behaviour.isReading)
            .channelOption(.allowRemoteHalfClosure, value: behaviour.keepsHalfOpen)
            .channelOption(.socketOption(.so_rcvbuf), value: behaviour.isReading ? 262_144 : 4_096)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    if let tls {
                        let handler = try NIOSSLClientHandler(context: tls, serverHostname: "localhost")
                        try channel.pipeline.syncOperations.addHandler(handler)
                    }
                    try channel.pipeline.syncOperations.addHandler(
                        TestSocketHandler(holder: holder, answersPings: behaviour.answersPings)
                    )
                }
            }
            .connect(host: "127.0.0.1", port: port).get()
        let socket = TestSocket(channel: channel)
        holder.socket.withLock { $0 = socket }
        return socket
    }

    /// Connects and requests a socket without waiting for the answer.
    static func open(
        port: Int,
        token: String?,
        query: String = "",
        headers: [String: String] = [:],
        path: String = "/v1/socket",
        behaviour: Behaviour = Behaviour(),
        tls: NIOSSLContext? = nil,
        group: MultiThreadedEventLoopGroup = .singleton
    ) async throws -> TestSocket {
        let socket = try await Self.connect(port: port, behaviour: behaviour, tls: tls, group: group)
        var lines = [
            "GET \(path)\(query) HTTP/1.1", "Host: 127.0.0.1:\(port)", "Upgrade: websocket", "Connection: Upgrade",
            "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ]
        if let token { lines.append("Authorization: Bearer \(token)") }
        for (name, value) in headers { lines.append("\(name): \(value)") }
        try await socket.send(raw: Array((lines.joined(separator: "\r\n") + "\r\n\r\n").utf8))
        return socket
    }

    /// Opens a socket for `user` and waits for its first sync.
    static func synced(
        port: Int,
        user: String,
        query: String = "",
        behaviour: Behaviour = Behaviour()
    ) async throws -> TestSocket {
        let socket = try await Self.open(
            port: port,
            token: Stack.token(user: user),
            query: query,
            behaviour: behaviour
        )
        _ = try await socket.first("sync")
        return socket
    }

    /// Whether the server has read everything sent, by the kernel's queues at both ends.
    var isRead: Bool {
        guard let own = self.channel.localAddress?.port, let server = self.channel.remoteAddress?.port,
            let file = FileHandle(forReadingAtPath: "/proc/net/tcp")
        else { return false }
        // The kernel reports size 0 and hands the table out in parts.
        var table = Data()
        while let part = try? file.read(upToCount: 65_536), !part.isEmpty { table += part }
        // Fields of a line: number, local address, remote address, state, send and receive queue.
        var queues: [Int: [Substring]] = [:]
        for line in String(decoding: table, as: UTF8.self).split(separator: "\n").dropFirst() {
            let fields = line.split(separator: " ")
            guard fields.count > 4 else { continue }
            let ports = fields[1...2].compactMap { $0.split(separator: ":").last.flatMap { Int($0, radix: 16) } }
            if Set(ports) == [own, server], let port = ports.first { queues[port] = fields[4].split(separator: ":") }
        }
        return queues[own]?.first == "00000000" && queues[server]?.last == "00000000"
    }

    func send(raw bytes: [UInt8]) async throws {
        try await self.channel.writeAndFlush(ByteBuffer(bytes: bytes)).get()
    }

    /// Sends one frame; its mask is zero, so the payload stays readable.
    func send(opcode: UInt8, isFinal: Bool = true, payload: [UInt8]) async throws {
        try await self.send(raw: Self.frame(opcode: opcode, isFinal: isFinal, payload: payload))
    }

    static func frame(opcode: UInt8, isFinal: Bool = true, payload: [UInt8]) -> [UInt8] {
        var bytes: [UInt8] = [(isFinal ? 0x80 : 0) | opcode]
        switch payload.count {
        case ..<126: bytes.append(0x80 | UInt8(payload.count))
        case ..<65_536: bytes += [0x80 | 126, UInt8(payload.count >> 8), UInt8(payload.count & 0xFF)]
        default:
            bytes.append(0x80 | 127)
            for shift in stride(from: 56, through: 0, by: -8) { bytes.append(UInt8(payload.count >> shift & 0xFF)) }
        }
        return bytes + [0, 0, 0, 0] + payload
    }

    func send(json: String) async throws {
        try await self.send(opcode: 1, payload: Array(json.utf8))
    }

    /// Stops or resumes reading.
    func setReading(_ isReading: Bool) async throws {
        try await self.channel.setOption(.autoRead, value: isReading).get()
    }

    func close() async {
        try? await self.channel.close().get()
    }

    // MARK: Received messages

    var messages: [JSONValue] { self.state.withLock { $0.messages } }
    /// Text messages, unparsed.
    var texts: [String] { self.state.withLock { $0.texts } }
    /// Binary messages.
    var binaries: [[UInt8]] { self.state.withLock { $0.binaries } }
    var closeCode: UInt16? { self.state.withLock { $0.closeCode } }
    var isClosed: Bool { self.state.withLock { $0.isClosed } }
    var status: Int? { self.state.withLock { $0.status } }
    var pings: Int { self.state.withLock { $0.pings } }
    /// The response head, and the whole response if there was no upgrade.
    var head: String { self.state.withLock { $0.head } }

    /// The messages of a type.
    func all(_ type: String) -> [JSONValue] {
        self.messages.filter { $0["type"]?.string == type }
    }

    /// The titles of the received notification messages, in order.
    var frames: [String] {
        self.all("notification").compactMap { $0["notification"]?["title"]?.string }
    }

    /// The notifications in the order in which the client learned them.
    var notifications: [JSONValue] { self.messages.newNotifications }

    /// Their titles.
    var titles: [String] { self.notifications.compactMap { $0["title"]?.string } }

    /// Waits for the first message of a type.
    func first(_ type: String) async throws -> JSONValue {
        try await eventualValue("a message of type \(type) comes") { self.all(type).first }
    }

    /// Waits until the server closes the socket and returns the close code.
    func waitForClose() async throws -> UInt16? {
        try await eventually("the socket is closed") { self.isClosed || self.closeCode != nil }
        return self.closeCode
    }

    fileprivate func note(head: String) {
        self.state.withLock { state in
            state.head += head
            state.status = state.status ?? head.split(separator: " ").dropFirst().first.flatMap { Int($0) }
        }
    }

    fileprivate func note(opcode: UInt8, payload: [UInt8]) {
        self.state.withLock { state in
            switch opcode {
            case 1:
                state.texts.append(String(decoding: payload, as: UTF8.self))
                // SignalR ends each message with the byte 0x1E, which JSON text never contains.
                for record in payload.split(separator: 0x1E) {
                    if let value = try? JSONParser.parse(Array(record)) { state.messages.append(value) }
                }
            case 2: state.binaries.append(payload)
            case 8: state.closeCode = payload.count >= 2 ? UInt16(payload[0]) << 8 | UInt16(payload[1]) : 1005
            case 9: state.pings += 1
            default: break
            }
        }
    }

    fileprivate func noteClosed() {
        self.state.withLock { $0.isClosed = true }
    }
}

extension [JSONValue] {
    /// The notifications that come after the first sync, in the order in which a client learns
    /// them.
    ///
    /// A later sync brings what a gateway missed that stalled for longer than its lease. A repeated
    /// notification message counts again.
    var newNotifications: [JSONValue] {
        var news: [JSONValue] = []
        var known: Set<String> = []
        var isSynced = false
        for message in self {
            switch message["type"]?.string {
            case "notification":
                guard let notification = message["notification"] else { continue }
                known.insert(notification["id"]?.string ?? "")
                news.append(notification)
            case "sync":
                var listed = message["notifications"]?.array ?? []
                // One that starts over lists the newest first.
                if message["reset"]?.bool == true { listed.reverse() }
                for notification in listed {
                    let isNew = known.insert(notification["id"]?.string ?? "").inserted
                    if isNew, isSynced { news.append(notification) }
                }
                isSynced = true
            default: continue
            }
        }
        return news
    }
}

/// Holds the socket for its handler, which is created first.
private final class SocketHolder: Sendable {
    let socket = Mutex<TestSocket?>(nil)
}

private final class TestSocketHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let holder: SocketHolder
    private let answersPings: Bool
    private var isUpgraded = false
    private var unread = ByteBuffer()

    init(holder: SocketHolder, answersPings: Bool) {
        self.holder = holder
        self.answersPings = answersPings
    }

    private var socket: TestSocket? { self.holder.socket.withLock { $0 } }

    func channelInactive(context: ChannelHandlerContext) {
        self.socket?.noteClosed()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = self.unwrapInboundIn(data)
        self.unread.writeBuffer(&bytes)
        if !self.isUpgraded {
            let view = self.unread.readableBytesView
            guard let end = view.firstRange(of: Array("\r\n\r\n".utf8)) else { return }
            let head = String(decoding: view[..<end.upperBound], as: UTF8.self)
            guard head.contains(" 101 ") else {
                self.socket?.note(head: String(buffer: self.unread))
                self.unread.clear()
                return
            }
            self.socket?.note(head: head)
            self.unread.moveReaderIndex(to: end.upperBound)
            self.isUpgraded = true
        }
        while let (opcode, payload) = self.frame() {
            self.socket?.note(opcode: opcode, payload: payload)
            if opcode == 9, self.answersPings {
                let pong = TestSocket.frame(opcode: 10, payload: payload)
                context.writeAndFlush(self.wrapOutboundOut(ByteBuffer(bytes: pong)), promise: nil)
            }
        }
    }

    private func frame() -> (UInt8, [UInt8])? {
        var bytes = self.unread
        guard let first: UInt8 = bytes.readInteger(), let short: UInt8 = bytes.readInteger() else { return nil }
        var length = Int(short)
        if short == 126 { length = bytes.readInteger(as: UInt16.self).map { Int($0) } ?? .max }
        if short == 127 { length = bytes.readInteger(as: UInt64.self).map { Int($0) } ?? .max }
        guard length <= bytes.readableBytes, let payload = bytes.readBytes(length: length) else { return nil }
        self.unread = bytes
        return (first & 0x0F, payload)
    }
}
