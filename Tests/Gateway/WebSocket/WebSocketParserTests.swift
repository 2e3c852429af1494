// Carillon · WebSocketParserTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Protocols
import Testing

@Suite("WebSocket parser", .timeLimit(.minutes(10)))
struct WebSocketParserTests {
    private typealias Event = WebSocketParser.Event

    private static func protocolError(_ reason: String) -> [Event] { [.violation(.protocolError, reason)] }

    @Test("The examples of RFC 6455 section 5.7")
    func examples() {
        var parser = WebSocketParser()
        #expect(
            parser.events([[0x81, 0x85, 0x37, 0xFA, 0x21, 0x3D, 0x7F, 0x9F, 0x4D, 0x51, 0x58]]) == [.text("Hello")])
        #expect(
            parser.events([[0x8A, 0x85, 0x37, 0xFA, 0x21, 0x3D, 0x7F, 0x9F, 0x4D, 0x51, 0x58]])
                == [.pong(Array("Hello".utf8))])
    }

    @Test("Payloads of every form of length", arguments: [0, 1, 125, 126, 127, 65_535, 65_536])
    func lengths(count: Int) {
        let payload = (0..<count).map { UInt8(truncatingIfNeeded: $0) }
        #expect(WebSocketParser.events(ClientFrame(ClientFrame.binary, payload)) == [.binary(payload)])
    }

    @Test(
        "Every mask is taken off, none at all too",
        arguments: [[0, 0, 0, 0], [0xFF, 0, 0xFF, 0], [1, 2, 3, 4]] as [[UInt8]])
    func masks(mask: [UInt8]) {
        let frame = ClientFrame(text: "Hello, World").with { $0.mask = mask }
        #expect(WebSocketParser.events(frame) == [.text("Hello, World")])
    }

    @Test("Fragments make one message; control frames come between them")
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

    @Test("What breaks the protocol is answered with 1002")
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

    @Test("Nothing is read after a violation or a close")
    func stops() {
        var broken = WebSocketParser()
        #expect(
            broken.events([ClientFrame(3).bytes, ClientFrame(text: "x").bytes]) == Self.protocolError("unknown opcode"))
        var closed = WebSocketParser()
        let close = ClientFrame(ClientFrame.close, [0x03, 0xE8]).bytes
        #expect(closed.events([close + ClientFrame(text: "x").bytes, close]) == [.close(code: 1_000)])
    }

    @Test("A control frame may have 125 bytes")
    func longestControlFrame() {
        let payload = [UInt8](repeating: 7, count: 125)
        #expect(WebSocketParser.events(ClientFrame(ClientFrame.ping, payload)) == [.ping(payload)])
    }

    @Test("Text that is not UTF-8 is answered with 1007, in one frame or several")
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

    @Test("A fragment that no text goes on with is answered with 1007 before the message ends")
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
            // Bytes may be anything.
            var binary = WebSocketParser()
            let bytes = frames.map { frame in
                frame.with { if $0.opcode == ClientFrame.text { $0.opcode = ClientFrame.binary } }.bytes
            }
            #expect(binary.events(bytes) == [], "\(pieces)")
        }
    }

    @Test("Every way to split a text of all lengths of sequences is good, and the next text begins anew")
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

    @Test("A close frame has a code that may be sent and a reason in UTF-8, or nothing")
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

    @Test("A message that is too big is answered with 1009, as soon as a header says so")
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
        // As a fragment too, whose length is added to what has come.
        let claimed = ClientFrame.continuation([], isFinal: true).with {
            $0.lengthForm = .sixtyFour
            $0.claimedLength = (1 << 63) - 1
        }
        #expect(events(ClientFrame(2, half, isFinal: false), claimed) == expected)
    }

    @Test("A flood of fragments is answered with 1008, empty ones too")
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
