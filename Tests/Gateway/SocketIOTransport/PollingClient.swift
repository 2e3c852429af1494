// Carillon · PollingClient.swift
// SPDX-License-Identifier: Apache-2.0

import HTTPTypes
import HummingbirdCore
import Logging
import NIOCore
import NIOEmbedded
import NIOHTTP1
import Sockets
import Testing

/// A client that polls an endpoint through a door, on one connection without a network.
final class PollingClient {
    private let channel = EmbeddedChannel()

    init(_ endpoint: EngineIOEndpoint, address: String) throws {
        let door = DoorChannel(
            responder: { _, _, _ in },
            endpoints: [endpoint],
            http: HTTP1Channel.Configuration()
        )
        _ = try door.setup(channel: self.channel, logger: Logger(label: "test")).map { _ in }.wait()
        try self.channel.connect(to: SocketAddress(ipAddress: address, port: 1)).wait()
    }

    /// Opens a session and gives its id.
    func open() throws -> String {
        let answer = try self.request("GET", "")
        let parts = answer.body.split(separator: "\"")
        // 0{"sid":"…"
        try #require(answer.status == 200 && parts.count > 3 && parts[1] == "sid", "\(answer.body)")
        return String(parts[3])
    }

    /// Sends a request of a session, or one for a new session if `sid` is empty.
    func request(_ method: String, _ sid: String, body: String = "") throws -> (status: Int, body: String) {
        try self.begin(method, sid, length: body.utf8.count)
        if !body.isEmpty { try self.send(body) }
        return try self.answer()
    }

    /// Sends the head of a request whose body comes later.
    func begin(_ method: String, _ sid: String, length: Int) throws {
        let lines = [
            "\(method) /engine.io/?EIO=4&transport=polling&sid=\(sid) HTTP/1.1", "host: x",
            "content-type: text/plain;charset=UTF-8", "content-length: \(length)",
        ]
        try self.send(lines.joined(separator: "\r\n") + "\r\n\r\n")
    }

    func send(_ text: String) throws {
        try self.channel.writeInbound(ByteBuffer(string: text))
    }

    /// What was answered so far; the status is 0 if nothing was.
    func answer() throws -> (status: Int, body: String) {
        self.channel.embeddedEventLoop.run()
        var text = ""
        while let buffer = try self.channel.readOutbound(as: ByteBuffer.self) { text += String(buffer: buffer) }
        let status = text.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
        let rest = text.firstRange(of: "\r\n\r\n").map { text[$0.upperBound...] } ?? ""
        return (status, String(rest))
    }

    func close() throws {
        _ = try self.channel.finish()
    }
}
