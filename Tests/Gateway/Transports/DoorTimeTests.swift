// Carillon · DoorTimeTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOEmbedded
import Sockets
import Testing

/// Clients that take their time.
@Suite("Slow clients at the door", .timeLimit(.minutes(10)))
struct DoorTimeTests {
    @Test("Who says nothing, and whose first request does not end, is closed")
    func firstRequest() throws {
        for text in ["", "GET /length HTTP/1.1\r\nhost: x\r\nx-"] {
            let door = try Door()
            if !text.isEmpty { try door.send(text) }
            door.channel.embeddedEventLoop.advanceTime(by: .seconds(9))
            #expect(door.channel.isActive)
            door.channel.embeddedEventLoop.advanceTime(by: .seconds(2))
            #expect(!door.channel.isActive)
        }
    }

    @Test("A body that does not come to its end is answered with 408, however slowly it trickles")
    func body() throws {
        let door = try Door()
        try door.send("POST /length HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n")
        for _ in 0..<19 {
            door.channel.embeddedEventLoop.advanceTime(by: .seconds(1))
            try door.send("x")
        }
        #expect(try door.answers().isEmpty)
        door.channel.embeddedEventLoop.advanceTime(by: .seconds(2))
        #expect(try door.answers().hasPrefix("HTTP/1.1 408 "))
        #expect(!door.channel.isActive)
    }

    @Test("A body that comes in time is answered, and the connection is kept for a while")
    func inTime() throws {
        let door = try Door()
        try door.send("POST /length HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n01234")
        door.channel.embeddedEventLoop.advanceTime(by: .seconds(15))
        try door.send("56789")
        #expect(try door.answers().hasSuffix("\r\n\r\n10"))
        door.channel.embeddedEventLoop.advanceTime(by: .seconds(60))
        #expect(door.channel.isActive)
        door.channel.embeddedEventLoop.advanceTime(by: .seconds(16))
        #expect(!door.channel.isActive)
    }

    @Test("A client that reads nothing of what waits for it is closed, one that reads slowly is not")
    func readers() throws {
        let door = try Door()
        try door.send("POST /length HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx")
        #expect(try door.answers().hasPrefix("HTTP/1.1 200 "))
        door.channel.isWritable = false
        door.channel.pipeline.fireChannelWritabilityChanged()
        door.channel.embeddedEventLoop.advanceTime(by: .seconds(20))
        door.channel.isWritable = true
        door.channel.pipeline.fireChannelWritabilityChanged()
        door.channel.embeddedEventLoop.advanceTime(by: .seconds(20))
        #expect(door.channel.isActive)
        door.channel.isWritable = false
        door.channel.pipeline.fireChannelWritabilityChanged()
        door.channel.embeddedEventLoop.advanceTime(by: .seconds(31))
        #expect(!door.channel.isActive)
    }

    @Test("Bodies and heads beyond the bounds are answered with 413 and 431")
    func sizes() throws {
        let long = String(repeating: "x", count: 1_001)
        for (request, status) in [
            ("POST /length HTTP/1.1\r\nhost: x\r\ncontent-length: 1001\r\n\r\n\(long)", "413"),
            ("GET /length HTTP/1.1\r\nhost: x\r\nx-long: \(String(repeating: "x", count: 200_000))\r\n\r\n", "431"),
            ("NONSENSE\r\n\r\n", "400"),
        ] {
            let door = try Door()
            // The parser's fault is told by the answer.
            try? door.send(request)
            #expect(try door.answers().hasPrefix("HTTP/1.1 \(status) "), "\(status)")
            #expect(!door.channel.isActive)
        }
    }
}
