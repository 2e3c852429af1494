// Carillon · LoadDialect.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import NIOCore

/// The client's side of a dialect, as far as a socket needs it that listens and stays alive.
enum LoadDialect: String, CaseIterable, ExpressibleByArgument {
    case native, socketio, signalr, sse

    /// What begins the connection.
    ///
    /// - Parameter resume: the inbox version that a native client has.
    func request(host: String, port: Int, token: String, resume: Int64?) -> String {
        let path =
            switch self {
            case .native: "/v1/socket" + (resume.map { "?resume=\($0)" } ?? "")
            case .socketio: "/socket.io/?EIO=4&transport=websocket"
            case .signalr: "/hubs/notifications"
            case .sse: "/v1/stream"
            }
        var lines = ["GET \(path) HTTP/1.1", "host: \(host):\(port)"]
        if self.isWebSocket {
            lines += [
                "upgrade: websocket", "connection: Upgrade", "sec-websocket-version: 13",
                "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
            ]
        } else {
            lines.append("accept: text/event-stream")
        }
        // A Socket.IO client has its token in the CONNECT packet.
        if self != .socketio { lines.append("authorization: Bearer \(token)") }
        return lines.joined(separator: "\r\n") + "\r\n\r\n"
    }

    var isWebSocket: Bool { self != .sse }

    /// How the answer to the request begins where the server agrees.
    var agreement: StaticString { self.isWebSocket ? "HTTP/1.1 101" : "HTTP/1.1 200" }

    /// The first message of a client that speaks first.
    var greeting: String? { self == .signalr ? "{\"protocol\":\"json\",\"version\":1}\u{1E}" : nil }

    /// What a message has to be answered with.
    ///
    /// The pings of SignalR are answered with the client's own, which are due as often.
    func reply(to message: ByteBuffer, token: String) -> String? {
        switch self {
        case .native, .sse: nil
        case .socketio:
            if message.begins(with: "0{") {
                #"40{"token":"\#(token)"}"#
            } else {
                message.readableBytes == 1 && message.begins(with: "2") ? "3" : nil
            }
        case .signalr: message.begins(with: "{\"type\":6}") ? "{\"type\":6}\u{1E}" : nil
        }
    }

    /// Whether a message says that the socket is up: for native ones and streams, that its inbox was read.
    func isOpening(_ message: ByteBuffer) -> Bool {
        switch self {
        case .native: message.begins(with: #"{"type":"sync""#)
        case .socketio: message.begins(with: "40")
        case .signalr: message.begins(with: "{}")
        case .sse: message.readableBytesView.firstRange(of: Array("event: sync".utf8)) != nil
        }
    }
}

extension ByteBuffer {
    func begins(with text: StaticString) -> Bool {
        // A static string's bytes live as long as the program.
        let bytes = UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount)
        return self.readableBytesView.starts(with: bytes)
    }
}
