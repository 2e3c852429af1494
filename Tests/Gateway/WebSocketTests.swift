// Carillon · WebSocketTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1
import Testing

@testable import Protocols

@Suite("WebSocket parser", .timeLimit(.minutes(10)))
struct WebSocketParserTests {
    private typealias Event = WebSocketParser.Event

    private static func protocolError(_ reason: String) -> [Event] { [.violation(.protocolError, reason)] }

    @Test("reads the examples of RFC 6455, section 5.7")
    func examples() {
        var parser = WebSocketParser()
        #expect(
            parser.events([[0x81, 0x85, 0x37, 0xFA, 0x21, 0x3D, 0x7F, 0x9F, 0x4D, 0x51, 0x58]]) == [.text("Hello")])
        #expect(
            parser.events([[0x8A, 0x85, 0x37, 0xFA, 0x21, 0x3D, 0x7F, 0x9F, 0x4D, 0x51, 0x58]])
                == [.pong(Array("Hello".utf8))])
    }

    @Test("reads payloads of every length form", arguments: [0, 1, 125, 126, 127, 65_535, 65_536])
    func lengths(count: Int) {
        let payload = (0..<count).map { UInt8(truncatingIfNeeded: $0) }
        #expect(WebSocketParser.events(ClientFrame(ClientFrame.binary, payload)) == [.binary(payload)])
    }

    @Test(
        "removes every mask, including none",
        arguments: [[0, 0, 0, 0], [0xFF, 0, 0xFF, 0], [1, 2, 3, 4]] as [[UInt8]])
    func masks(mask: [UInt8]) {
        let frame = ClientFrame(text: "Hello, World").with { $0.mask = mask }
        #expect(WebSocketParser.events(frame) == [.text("Hello, World")])
    }

    @Test("keeps no memory of what was read before an incomplete frame")
    func memory() {
        var parser = WebSocketParser()
        var bytes = ByteBuffer(bytes: [0x82, 0xFE, 0x27, 0x10, 0, 0, 0, 0])
        bytes.writeRepeatingByte(0x78, count: 10_000)
        // The first half of a header.
        bytes.writeInteger(UInt8(0x82))
        var count = 0
        parser.read(bytes) { _ in count += 1 }
        #expect(count == 1 && parser.isIncomplete)
        #expect(parser.buffered < 100)
        parser.read(ByteBuffer(bytes: [0x80, 0, 0, 0, 0])) { _ in count += 1 }
        #expect(count == 2 && !parser.isIncomplete && parser.buffered == 0)
    }

    @Test("joins fragments with control frames between them")
    func fragments() {
        let euro = Array("€".utf8)
        let events = WebSocketParser.events(
            ClientFrame(text: "a", isFinal: false),
            ClientFrame(ClientFrame.ping, [1, 2]),
            .continuation([euro[0]], isFinal: false),
            .continuation([], isFinal: false),
            ClientFrame(ClientFrame.pong, []),
            .continuation([euro[1], euro[2]], isFinal: true),
            ClientFrame(ClientFrame.binary, [9], isFinal: false),
            .continuation([8], isFinal: true),
            ClientFrame(text: "")
        )
        #expect(events == [.ping([1, 2]), .pong([]), .text("a€"), .binary([9, 8]), .text("")])
    }

    @Test("answers protocol violations with 1002")
    func violations() {
        let text = ClientFrame(text: "x")
        let table: [([ClientFrame], String)] = [
            ([text.with { $0.mask = nil }], "frame is not masked"),
            ([text.with { $0.reservedBits = 0x40 }], "reserved bits are set"),
            ([text.with { $0.reservedBits = 0x20 }], "reserved bits are set"),
            ([text.with { $0.reservedBits = 0x10 }], "reserved bits are set"),
            ([ClientFrame(3)], "unknown opcode"), ([ClientFrame(7)], "unknown opcode"),
            ([ClientFrame(11)], "unknown opcode"), ([ClientFrame(15)], "unknown opcode"),
            ([ClientFrame(ClientFrame.ping, [], isFinal: false)], "control frame is fragmented or too long"),
            ([ClientFrame(ClientFrame.close, [], isFinal: false)], "control frame is fragmented or too long"),
            (
                [ClientFrame(ClientFrame.pong, Array(repeating: 0, count: 126))],
                "control frame is fragmented or too long"
            ),
            ([.continuation([1], isFinal: true)], "message is out of order"),
            ([.continuation([1], isFinal: false)], "message is out of order"),
            ([ClientFrame(text: "a", isFinal: false), text], "message is out of order"),
            ([text.with { $0.lengthForm = .sixteen }], "length is not in its shortest form"),
            ([text.with { $0.lengthForm = .sixtyFour }], "length is not in its shortest form"),
            (
                [ClientFrame(2, Array(repeating: 0, count: 300)).with { $0.lengthForm = .sixtyFour }],
                "length is not in its shortest form"
            ),
            (
                [ClientFrame(2, Array(repeating: 0, count: 125)).with { $0.lengthForm = .sixteen }],
                "length is not in its shortest form"
            ),
            (
                [ClientFrame(2, Array(repeating: 0, count: 65_535)).with { $0.lengthForm = .sixtyFour }],
                "length is not in its shortest form"
            ),
            (
                [
                    text.with {
                        $0.lengthForm = .sixtyFour
                        $0.claimedLength = 1 << 63
                    }
                ],
                "length is not in its shortest form"
            ),
        ]
        for (frames, reason) in table {
            var parser = WebSocketParser()
            #expect(parser.events([frames.flatMap(\.bytes)]) == Self.protocolError(reason))
        }
    }

    @Test("reads nothing after a violation or a close")
    func stops() {
        var broken = WebSocketParser()
        #expect(
            broken.events([ClientFrame(3).bytes, ClientFrame(text: "x").bytes]) == Self.protocolError("unknown opcode"))
        var closed = WebSocketParser()
        let close = ClientFrame(ClientFrame.close, [0x03, 0xE8]).bytes
        #expect(closed.events([close + ClientFrame(text: "x").bytes, close]) == [.close(code: 1_000)])
    }

    @Test("accepts a control frame of 125 bytes")
    func longestControlFrame() {
        let payload = [UInt8](repeating: 7, count: 125)
        #expect(WebSocketParser.events(ClientFrame(ClientFrame.ping, payload)) == [.ping(payload)])
    }

    @Test("answers invalid UTF-8 with 1007, in one frame or several")
    func invalidText() {
        let expected: [Event] = [.violation(.invalidPayload, "text is not valid UTF-8")]
        let invalid: [[UInt8]] = [
            [0xFF], [0x61, 0xC3], [0xED, 0xA0, 0x80], [0xC0, 0xAF], [0xF4, 0x90, 0x80, 0x80], [0x80],
        ]
        for bytes in invalid {
            #expect(WebSocketParser.events(ClientFrame(ClientFrame.text, bytes)) == expected)
            let events = WebSocketParser.events(
                ClientFrame(text: "ok", isFinal: false), .continuation(bytes, isFinal: true))
            #expect(events == expected)
            #expect(WebSocketParser.events(ClientFrame(ClientFrame.binary, bytes)) == [.binary(bytes)])
        }
    }

    @Test("answers a fragment that cannot become valid UTF-8 with 1007 before the message ends")
    func invalidFragments() {
        let expected: [Event] = [.violation(.invalidPayload, "text is not valid UTF-8")]
        let invalid: [[[UInt8]]] = [
            [[0xFF]], [[0x61, 0x80]], [[0xC1]], [[0xF5]], [[0xE2, 0x28]], [[0xE2], [0x28]], [[0xE2, 0x82], [0x41]],
            [[0xE0], [0x9F]], [[0xED], [0xA0]], [[0xF0], [0x8F]], [[0xF4], [0x90]], [[0xF0, 0x9F, 0x98], [], [0xC3]],
            [[0xE2, 0x82, 0xAC], [0xAC]],
        ]
        for pieces in invalid {
            let frames = pieces.enumerated().map { index, piece in
                ClientFrame(index == 0 ? ClientFrame.text : 0, piece, isFinal: false)
            }
            var parser = WebSocketParser()
            #expect(parser.events(frames.map(\.bytes)) == expected, "\(pieces)")
            // Binary messages may hold any bytes.
            var binary = WebSocketParser()
            let bytes = frames.map { frame in
                frame.with { if $0.opcode == ClientFrame.text { $0.opcode = ClientFrame.binary } }.bytes
            }
            #expect(binary.events(bytes) == [], "\(pieces)")
        }
    }

    @Test("accepts every split of multi-byte text and starts over with the next text")
    func splitSequences() {
        let text = "a\u{7F}\u{80}\u{7FF}\u{800}\u{D7FF}\u{E000}\u{FFFF}\u{10000}\u{FFFFF}\u{10FFFF}"
        let bytes = Array(text.utf8)
        var parser = WebSocketParser(maximumFragments: 1_000)
        for size in 1...bytes.count {
            let pieces = stride(from: 0, to: bytes.count, by: size).map { Array(bytes.dropFirst($0).prefix(size)) }
            let frames = pieces.enumerated().map { index, piece in
                ClientFrame(index == 0 ? ClientFrame.text : 0, piece, isFinal: index == pieces.count - 1)
            }
            #expect(parser.events(frames.map(\.bytes)) == [.text(text)], "\(size)")
        }
        let cut = WebSocketParser.events(
            ClientFrame(ClientFrame.text, [0xE2], isFinal: false), .continuation([0x82], isFinal: true))
        #expect(cut == [.violation(.invalidPayload, "text is not valid UTF-8")])
    }

    @Test("accepts a close frame that is empty or has a valid code and a UTF-8 reason")
    func closes() {
        func close(_ payload: [UInt8]) -> [Event] { WebSocketParser.events(ClientFrame(ClientFrame.close, payload)) }
        #expect(close([]) == [.close(code: nil)])
        #expect(close([0x03]) == Self.protocolError("close code is cut short"))
        #expect(close([0x03, 0xE8] + Array("bye €".utf8)) == [.close(code: 1_000)])
        #expect(close([0x03, 0xE8, 0xFF]) == [.violation(.invalidPayload, "close reason is not valid UTF-8")])
        let allowed: [UInt16] = [
            1_000, 1_001, 1_002, 1_003, 1_007, 1_008, 1_011, 1_014, 3_000, 3_999, 4_000, 4_401, 4_999,
        ]
        let refused: [UInt16] = [0, 999, 1_004, 1_005, 1_006, 1_015, 1_016, 2_000, 2_999, 5_000, 65_535]
        for code in allowed { #expect(close([UInt8(code >> 8), UInt8(code & 0xFF)]) == [.close(code: code)]) }
        for code in refused {
            #expect(close([UInt8(code >> 8), UInt8(code & 0xFF)]) == Self.protocolError("close code is not valid"))
        }
    }

    @Test("answers an oversized message with 1009 as soon as a header announces it")
    func tooBig() {
        let expected: [Event] = [.violation(.messageTooBig, "message exceeds 100 bytes")]
        func events(_ frames: ClientFrame...) -> [Event] {
            var parser = WebSocketParser(maximumMessage: 100)
            return parser.events([frames.flatMap(\.bytes)])
        }
        let half = [UInt8](repeating: 0x61, count: 50)
        #expect(events(ClientFrame(2, half + half)) == [.binary(half + half)])
        #expect(events(ClientFrame(2, half + half + [0])) == expected)
        #expect(
            events(ClientFrame(2, half, isFinal: false), .continuation(half, isFinal: true)) == [.binary(half + half)])
        #expect(events(ClientFrame(2, half, isFinal: false), .continuation(half + [0], isFinal: true)) == expected)
        let claim = ClientFrame(2).with {
            $0.lengthForm = .sixtyFour
            $0.claimedLength = (1 << 63) - 1
        }
        #expect(events(claim) == expected)
        // The same in a fragment, whose length adds to the earlier ones.
        let claimed = ClientFrame.continuation([], isFinal: true).with {
            $0.lengthForm = .sixtyFour
            $0.claimedLength = (1 << 63) - 1
        }
        #expect(events(ClientFrame(2, half, isFinal: false), claimed) == expected)
    }

    @Test("answers a flood of fragments with 1008, empty ones included")
    func tooManyFragments() {
        var parser = WebSocketParser(maximumMessage: 1_000, maximumFragments: 4)
        let more = ClientFrame.continuation([], isFinal: false).bytes
        let first = ClientFrame(text: "", isFinal: false).bytes
        let end = ClientFrame.continuation([0x61], isFinal: true).bytes
        #expect(parser.events([first + more + more + end]) == [.text("a")])
        #expect(
            parser.events([first + more + more + more + end])
                == [.violation(.policyViolation, "message has too many fragments")])
    }
}

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

    @Test("returns the same events wherever the bytes are split")
    func splits() {
        #expect(Self.events([Self.bytes]) == Self.events)
        for place in 0...Self.bytes.count {
            let pieces = [Array(Self.bytes.prefix(place)), Array(Self.bytes.dropFirst(place))]
            #expect(Self.events(pieces) == Self.events, "split at \(place)")
        }
    }

    @Test("returns the same events byte by byte and in chunks of every size")
    func pieces() {
        for size in 1...17 {
            let pieces = stride(from: 0, to: Self.bytes.count, by: size).map {
                Array(Self.bytes[$0..<min($0 + size, Self.bytes.count)])
            }
            #expect(Self.events(pieces) == Self.events, "pieces of \(size)")
        }
    }

    @Test("reads a buffer from its reader index")
    func readerIndex() {
        var parser = WebSocketParser()
        var buffer = ByteBuffer(bytes: [0xFF, 0xFF] + Self.bytes)
        buffer.moveReaderIndex(forwardBy: 2)
        var events: [Event] = []
        parser.read(buffer) { events.append($0) }
        #expect(events == Self.events)
    }

    @Test("buffers no more than the bytes of a large message that comes byte by byte")
    func slowWriter() {
        var parser = WebSocketParser()
        let frame = ClientFrame(ClientFrame.binary, [UInt8](repeating: 5, count: 65_536)).bytes
        var count = 0
        for byte in frame { parser.read(ByteBuffer(bytes: [byte])) { _ in count += 1 } }
        #expect(count == 1)
    }

    @Test("neither crashes on random input nor continues after a violation", arguments: [1, 2, 3, 4] as [UInt64])
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

    /// The events of the same bytes in one piece, which every split must reproduce.
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

/// Marsaglia's xorshift with a fixed seed, so that failures can be reproduced.
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

@Suite("WebSocket handshake", .timeLimit(.minutes(10)))
struct WebSocketHandshakeTests {
    @Test(
        "finds a request for a WebSocket in a list, in any letter case of ASCII",
        arguments: [
            (["websocket"], true), (["h2c, \tWebSocket ,x"], true), (["h2c", "WEBSOCKET"], true), ([], false),
            (["websocket/13"], false), (["xwebsocket"], false), (["web socket"], false), (["websocke"], false),
            (["websoc\u{212A}et"], false), (["websocket\u{300}"], false),
        ] as [([String], Bool)])
    func requests(_ fields: [String], _ isRequested: Bool) {
        var head = HTTPRequestHead(version: .http1_1, method: .GET, uri: "/")
        for field in fields { head.headers.add(name: "Upgrade", value: field) }
        #expect(WebSocketHandshake.isRequested(by: head) == isRequested)
    }
}

@Suite("WebSocket framing", .timeLimit(.minutes(10)))
struct WebSocketFramingTests {
    private static func bytes(_ write: (inout ByteBuffer) -> Void) -> [UInt8] {
        var buffer = ByteBuffer()
        write(&buffer)
        return Array(buffer.readableBytesView)
    }

    @Test(
        "writes text with the shortest header, final and unmasked",
        arguments: [
            (0, [0x81, 0]), (1, [0x81, 1]), (125, [0x81, 125]), (126, [0x81, 126, 0, 126]),
            (65_535, [0x81, 126, 0xFF, 0xFF]), (65_536, [0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] as [(Int, [UInt8])]
    )
    func text(count: Int, header: [UInt8]) {
        let payload = [UInt8](repeating: 0x61, count: count)
        #expect(Self.bytes { WebSocketFraming.writeText(payload, to: &$0) } == header + payload)
    }

    @Test("writes control frames")
    func control() {
        #expect(Self.bytes { WebSocketFraming.writePong([1, 2], to: &$0) } == [0x8A, 2, 1, 2])
        #expect(
            Self.bytes { WebSocketFraming.writePing(sequence: 0x0102_0304_0506_0708, to: &$0) }
                == [0x89, 8, 1, 2, 3, 4, 5, 6, 7, 8])
        #expect(
            Self.bytes { WebSocketFraming.writeClose(4401, reason: "expired", to: &$0) }
                == [0x88, 9, 0x11, 0x31] + Array("expired".utf8))
        #expect(Self.bytes { WebSocketFraming.writeClose(1000, reason: "", to: &$0) } == [0x88, 2, 0x03, 0xE8])
    }

    @Test("limits a close frame to the size of a control frame")
    func longReason() {
        let reason = String(repeating: "r", count: 500)
        let bytes = Self.bytes { WebSocketFraming.writeClose(1001, reason: reason, to: &$0) }
        #expect(bytes.count == 127)
        #expect(bytes[1] == 125)
    }

    @Test("writes several frames into one buffer")
    func appends() {
        let bytes = Self.bytes {
            WebSocketFraming.writeText([0x61], to: &$0)
            WebSocketFraming.writePong([], to: &$0)
        }
        #expect(bytes == [0x81, 1, 0x61, 0x8A, 0])
    }

    @Test("keeps the close codes that clients see")
    func codes() {
        #expect(WebSocketCloseCode.unauthorized.rawValue == 4_401)
        #expect(WebSocketCloseCode.tooSlow.rawValue == 4_408)
        #expect(WebSocketCloseCode.serviceRestart.rawValue == 1_012)
        #expect(WebSocketCloseCode.messageTooBig.rawValue == 1_009)
        #expect(WebSocketCloseCode.policyViolation.rawValue == 1_008)
    }

    @Test("accepts the key of RFC 6455, section 1.3")
    func accept() {
        #expect(WebSocketKey.accept("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    }

    @Test(
        "requires a key of 16 bytes in base64",
        arguments: [
            ("dGhlIHNhbXBsZSBub25jZQ==", true), ("AAAAAAAAAAAAAAAAAAAAAA==", true), ("", false), ("AAAA", false),
            // Some clients set the unused bits of the last character.
            ("dGhlIHNhbXBsZSBub25jZf==", true),
            ("dGhlIHNhbXBsZSBub25jZQ", false), ("dGhlIHNhbXBsZSBub25jZSE=", false),
            ("not base64 at all!!!!!!!!", false),
            ("dGhlIHNhbXBsZSBub25jZ\r\n==", false),
        ]
    )
    func keys(key: String, isValid: Bool) {
        #expect(WebSocketKey.isValid(key) == isValid)
    }
}

/// A client's WebSocket frame (RFC 6455, section 5.2), valid or not as a test needs it.
struct ClientFrame {
    static let text: UInt8 = 1
    static let binary: UInt8 = 2
    static let close: UInt8 = 8
    static let ping: UInt8 = 9
    static let pong: UInt8 = 10

    /// The form of the length; the shortest unless a test says otherwise.
    enum LengthForm {
        case shortest, sixteen, sixtyFour
    }

    var opcode: UInt8
    var payload: [UInt8] = []
    var isFinal = true
    var reservedBits: UInt8 = 0
    var mask: [UInt8]? = [0x37, 0xFA, 0x21, 0x3D]
    var lengthForm = LengthForm.shortest
    /// Replaces the payload's own length.
    var claimedLength: UInt64?

    init(_ opcode: UInt8, _ payload: [UInt8] = [], isFinal: Bool = true) {
        self.opcode = opcode
        self.payload = payload
        self.isFinal = isFinal
    }

    init(text: String, isFinal: Bool = true) {
        self.init(Self.text, Array(text.utf8), isFinal: isFinal)
    }

    static func continuation(_ payload: [UInt8], isFinal: Bool) -> ClientFrame {
        ClientFrame(0, payload, isFinal: isFinal)
    }

    func with(_ change: (inout ClientFrame) -> Void) -> ClientFrame {
        var frame = self
        change(&frame)
        return frame
    }

    var bytes: [UInt8] {
        let length = self.claimedLength ?? UInt64(self.payload.count)
        let masked: UInt8 = self.mask == nil ? 0 : 0x80
        var bytes = [(self.isFinal ? 0x80 : 0) | self.reservedBits | self.opcode]
        func big(_ count: Int) -> [UInt8] { (0..<count).reversed().map { UInt8(length >> ($0 * 8) & 0xFF) } }
        switch self.lengthForm {
        case .shortest where length < 126: bytes.append(masked | UInt8(length))
        case .shortest where length < 65_536: bytes += [masked | 126] + big(2)
        case .sixteen: bytes += [masked | 126] + big(2)
        case .shortest, .sixtyFour: bytes += [masked | 127] + big(8)
        }
        guard let mask else { return bytes + self.payload }
        return bytes + mask + self.payload.enumerated().map { $0.element ^ mask[$0.offset % 4] }
    }
}

extension WebSocketParser {
    /// The events of input in pieces.
    mutating func events(_ pieces: [[UInt8]]) -> [Event] {
        var events: [Event] = []
        for piece in pieces { self.read(ByteBuffer(bytes: piece)) { events.append($0) } }
        return events
    }

    /// The events of frames that a parser with the default limits reads at once.
    static func events(_ frames: ClientFrame...) -> [Event] {
        var parser = WebSocketParser()
        return parser.events([frames.flatMap(\.bytes)])
    }
}
