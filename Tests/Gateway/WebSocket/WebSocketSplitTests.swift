// Carillon · WebSocketSplitTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Protocols
import Testing

@Suite("WebSocket parser under odd reads", .timeLimit(.minutes(10)))
struct WebSocketSplitTests {
    private typealias Event = WebSocketParser.Event

    private static let bytes: [UInt8] = [
        ClientFrame(text: "hé€😀"), ClientFrame(text: "a", isFinal: false), ClientFrame(ClientFrame.ping, [1, 2, 3]),
        .continuation([UInt8](repeating: 0x62, count: 130), isFinal: false), .continuation([], isFinal: true),
        ClientFrame(ClientFrame.pong), ClientFrame(ClientFrame.binary, [0, 0xFF]),
        ClientFrame(ClientFrame.close, [0x03, 0xE8]),
    ].flatMap(\.bytes)

    private static let events: [Event] = [
        .text("hé€😀"), .ping([1, 2, 3]), .text("a" + String(repeating: "b", count: 130)), .pong([]),
        .binary([0, 0xFF]),
        .close(code: 1_000),
    ]

    private static func events(_ pieces: [[UInt8]]) -> [Event] {
        var parser = WebSocketParser()
        return parser.events(pieces)
    }

    @Test("At every place that the bytes are split, the events are the same")
    func splits() {
        #expect(Self.events([Self.bytes]) == Self.events)
        for place in 0...Self.bytes.count {
            let pieces = [Array(Self.bytes.prefix(place)), Array(Self.bytes.dropFirst(place))]
            #expect(Self.events(pieces) == Self.events, "split at \(place)")
        }
    }

    @Test("Byte by byte, and in pieces of every size")
    func pieces() {
        for size in 1...17 {
            let pieces = stride(from: 0, to: Self.bytes.count, by: size).map {
                Array(Self.bytes[$0..<min($0 + size, Self.bytes.count)])
            }
            #expect(Self.events(pieces) == Self.events, "pieces of \(size)")
        }
    }

    @Test("A buffer is read from where its reader stands")
    func readerIndex() {
        var parser = WebSocketParser()
        var buffer = ByteBuffer(bytes: [0xFF, 0xFF] + Self.bytes)
        buffer.moveReaderIndex(forwardBy: 2)
        var events: [Event] = []
        parser.read(buffer) { events.append($0) }
        #expect(events == Self.events)
    }

    @Test("A large message that comes byte by byte costs no more than its bytes")
    func slowWriter() {
        var parser = WebSocketParser()
        let frame = ClientFrame(ClientFrame.binary, [UInt8](repeating: 5, count: 65_536)).bytes
        var count = 0
        for byte in frame { parser.read(ByteBuffer(bytes: [byte])) { _ in count += 1 } }
        #expect(count == 1)
    }

    @Test("Whatever comes, it neither crashes nor goes on after a violation", arguments: [1, 2, 3, 4] as [UInt64])
    func fuzz(seed: UInt64) {
        var random = Xorshift(state: seed &* 0x9E37_79B9_7F4A_7C15)
        for _ in 0..<1_500 {
            var bytes = Self.bytes
            for _ in 0...random.below(6) { Self.damage(&bytes, &random) }
            var parser = WebSocketParser(maximumMessage: 4_096, maximumFragments: 8)
            var events: [Event] = []
            var rest = bytes[...]
            while !rest.isEmpty {
                let piece = rest.prefix(1 + random.below(64))
                rest = rest.dropFirst(piece.count)
                parser.read(ByteBuffer(bytes: piece)) { events.append($0) }
            }
            let ends = events.indices.filter { Self.isEnd(events[$0]) }
            #expect(ends.isEmpty || ends == [events.count - 1])
            #expect(events == Self.whole(bytes))
        }
    }

    /// The events of the same bytes in one piece: what they mean does not depend on how they came.
    private static func whole(_ bytes: [UInt8]) -> [Event] {
        var parser = WebSocketParser(maximumMessage: 4_096, maximumFragments: 8)
        return parser.events([bytes])
    }

    private static func isEnd(_ event: Event) -> Bool {
        switch event {
        case .close, .violation: true
        case .text, .binary, .ping, .pong: false
        }
    }

    private static func damage(_ bytes: inout [UInt8], _ random: inout Xorshift) {
        guard !bytes.isEmpty else { return }
        let place = random.below(bytes.count)
        switch random.below(4) {
        case 0: bytes[place] = UInt8(truncatingIfNeeded: random.next())
        case 1: bytes[place] ^= 1 << UInt8(random.below(8))
        case 2: bytes.remove(at: place)
        default:
            bytes.insert(
                contentsOf: (0..<random.below(9)).map { _ in UInt8(truncatingIfNeeded: random.next()) }, at: place)
        }
    }
}

/// Marsaglia's xorshift with a fixed start, so that a failure can be had again.
private struct Xorshift: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        self.state ^= self.state << 13
        self.state ^= self.state >> 7
        self.state ^= self.state << 17
        return self.state
    }

    mutating func below(_ bound: Int) -> Int { Int(self.next() % UInt64(bound)) }
}
