// Carillon · WebSocketTarget.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOEmbedded
import Protocols
import Sockets

/// Frames from clients: the parser, and the handler on an embedded channel.
struct WebSocketTarget: FuzzTarget {
    let dictionary = [
        "\u{1}", "\u{0}", "\u{8}\u{0}", "\u{9}", "\u{A}", "\u{7E}", "\u{7F}", "{\"type\":\"unread\"}", "\u{3}",
    ]

    func run(_ input: [UInt8]) async -> FuzzOutcome {
        let whole = Self.parse([input])
        let cut = Self.parse(input.map { [$0] })
        if whole != cut { return FuzzOutcome("faulty", fault: "the events depend on how the bytes are split") }
        let kinds = whole.map { String("\($0)".prefix { $0 != "(" }) }
        return FuzzOutcome(kinds.prefix(8).joined(separator: " "), fault: Self.handle(input))
    }

    private static func parse(_ pieces: [[UInt8]]) -> [WebSocketParser.Event] {
        var parser = WebSocketParser(maximumMessage: 1_024, maximumFragments: 8)
        var events: [WebSocketParser.Event] = []
        for piece in pieces { parser.read(ByteBuffer(bytes: piece)) { events.append($0) } }
        return events
    }

    /// Runs on one thread, as an embedded channel requires.
    private static func handle(_ input: [UInt8]) -> String? {
        let application = Listener()
        let limits = WebSocketLimits(maximumMessage: 1_024, maximumFragments: 8)
        let channel = EmbeddedChannel(handler: WebSocketHandler(application: application, limits: limits))
        var rest = input[...]
        while !rest.isEmpty {
            // Input after the close is ignored.
            guard (try? channel.writeInbound(ByteBuffer(bytes: rest.prefix(100)))) != nil else { break }
            rest = rest.dropFirst(100)
        }
        var answers = 0
        while let written = try? channel.readOutbound(as: ByteBuffer.self) { answers += written.readableBytes }
        _ = try? channel.finish(acceptAlreadyClosed: true)
        // Each ping gets one pong, and a close frame has at most 125 bytes: output cannot exceed
        // input by more.
        guard answers <= input.count + 200 else { return "the output is larger than the input allows" }
        return application.opened == 1 && application.closed == 1
            ? nil : "the application was not opened and closed exactly once"
    }

    private final class Listener: WebSocketApplication {
        private(set) var opened = 0
        private(set) var closed = 0

        func webSocketOpened(_ socket: WebSocketHandler) { self.opened += 1 }
        func webSocketReceived(text: String) {}
        func webSocketReceived(binary: [UInt8]) {}
        func webSocketReceivedPing() -> Bool { true }
        func webSocketProven(_ sequence: UInt64) {}
        func webSocketIsTooSlow() {}
        func webSocketReadComplete() {}
        func webSocketClosed() { self.closed += 1 }
    }
}
