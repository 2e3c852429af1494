// Carillon · NodeFrameBatchTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Storage

@Suite("Frames from dispatcher to node", .timeLimit(.minutes(10)))
struct NodeFrameBatchTests {
    private static let frames = [
        NodeFrame(
            kind: .notification,
            user: "u1",
            previous: 41,
            version: 42,
            unread: 7,
            awaitingLane: .critical,
            id: NotificationID(high: 0x0102_0304_0506_0708, low: 0x090A_0B0C_0D0E_0F10),
            body: Array("{}".utf8)
        ),
        NodeFrame(kind: .read, user: "é😀", previous: .max - 1, version: .max, unread: .max, body: []),
        NodeFrame(
            kind: .deleted, user: "", previous: -1, version: .min, unread: -1, awaitingLane: .bulk, body: [0, 0xFF]),
        NodeFrame(kind: .event, user: "u", awaitingLane: .normal, body: [UInt8](repeating: 0x61, count: 70_000)),
        NodeFrame(kind: .notification, user: "both", version: 1, body: Array("{}".utf8), camelCaseBody: [0x7B, 0x7D]),
        NodeFrame(kind: .event, user: "", body: Array("{}".utf8), everyoneBut: []),
        NodeFrame(kind: .event, user: "", body: Array("{}".utf8), everyoneBut: [ExactText("u1"), ExactText("é")]),
        // Stored before marks were limited.
        NodeFrame(
            kind: .event, user: "", body: Array("{}".utf8),
            everyoneBut: [ExactText("a" + String(repeating: "\u{300}", count: 65))]),
    ]

    private static func bytes(_ frames: [NodeFrame]) -> [UInt8] {
        var batch = NodeFrameBatch()
        for frame in frames { batch.append(frame) }
        #expect(batch.count == frames.count)
        return batch.bytes
    }

    @Test("keeps the bytes of format 2, as releases run side by side")
    func golden() {
        let expected: [UInt8] =
            [2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 41, 0, 0, 0, 0, 0, 0, 0, 42, 0, 0, 0, 7]
            + [
                1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0, 2, 0x75, 0x31, 0, 0, 0, 2, 0x7B, 0x7D, 0, 0,
                0, 0,
            ]
        #expect(Self.bytes([Self.frames[0]]) == expected)
    }

    @Test("reads the frames that it writes, alone and in a batch")
    func roundTrips() {
        for frame in Self.frames { #expect(NodeFrameBatch.decode(Self.bytes([frame])[...]) == [frame]) }
        #expect(NodeFrameBatch.decode(Self.bytes(Self.frames)[...]) == Self.frames)
        #expect(NodeFrameBatch.decode(NodeFrameBatch().bytes[...]) == [])
    }

    @Test("reads a slice from its start index")
    func slices() {
        let bytes = [9, 9, 9] + Self.bytes(Self.frames) + [9]
        #expect(NodeFrameBatch.decode(bytes[3..<bytes.count - 1]) == Self.frames)
    }

    @Test("rejects unknown formats and kinds")
    func refusesOthers() {
        var bytes = Self.bytes([Self.frames[0]])
        #expect(NodeFrameBatch.decode([]) == nil)
        bytes[0] = 1
        #expect(NodeFrameBatch.decode(bytes[...]) == nil)
        bytes[0] = 2
        for kind: UInt8 in [0, 6, 255] {
            bytes[1] = kind
            #expect(NodeFrameBatch.decode(bytes[...]) == nil)
        }
    }

    @Test("rejects a message that is cut anywhere")
    func refusesCut() {
        let bytes = Self.bytes(Array(Self.frames.prefix(3)))
        let whole = Set((0...3).map { Self.bytes(Array(Self.frames.prefix($0))).count })
        for length in 0..<bytes.count where !whole.contains(length) {
            #expect(NodeFrameBatch.decode(bytes.prefix(length)) == nil, "cut after \(length)")
        }
    }

    @Test("fills a batch up to the soft limit")
    func isFull() {
        var batch = NodeFrameBatch()
        let frame = NodeFrame(kind: .event, user: "u", body: [UInt8](repeating: 0, count: 64 * 1024))
        for _ in 0..<3 { batch.append(frame) }
        #expect(!batch.isFull)
        batch.append(frame)
        #expect(batch.isFull)
    }
}
