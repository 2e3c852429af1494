// Carillon · DirectoryTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOEmbedded
import Protocols
import Testing

@testable import Sockets

@Suite("What ids name", .timeLimit(.minutes(10)))
struct DirectoryTests {
    private static func offer(_ owner: String) -> SignalRDirectory.Offer {
        .init(connectionID: "public", owner: owner, usesStatefulReconnect: false)
    }

    /// A session on a loop of its own, and how others see it.
    private static func session(_ id: String) -> (session: SignalRSession, reference: LoopReference<SignalRSession>) {
        let loop = EmbeddedEventLoop()
        let configuration = SignalREndpointConfiguration(
            path: "/hub",
            connection: .standard,
            webSocket: WebSocketLimits(maximumMessage: 1024)
        )
        let session = SignalRSession(
            id: id,
            offer: Self.offer("ada"),
            transport: .webSockets,
            node: SignalRNode(configuration: configuration),
            eventLoop: loop
        )
        return (session, LoopReference(session, eventLoop: loop))
    }

    @Test("An offer is there for its owner alone, and until its end")
    func offers() {
        let directory = SignalRDirectory(limit: 10)
        #expect(directory.add(Self.offer("ada"), id: "a", until: 100))
        #expect(directory.add(Self.offer("ada"), id: "b", until: 200))
        #expect(!directory.add(Self.offer("bob"), id: "a", until: 200), "an id is given once")
        #expect(directory.entry("a", owner: "ada") != nil)
        #expect(directory.entry("a", owner: "bob") == nil)
        directory.sweep(now: 99)
        #expect(directory.entry("a", owner: "ada") != nil)
        directory.sweep(now: 100)
        #expect(directory.entry("a", owner: "ada") == nil)
        #expect(directory.entry("b", owner: "ada") != nil)
    }

    @Test("A connection takes its offer's place, once, and stays when the offer's time is over")
    func connections() {
        let directory = SignalRDirectory(limit: 10)
        _ = directory.add(Self.offer("ada"), id: "a", until: 100)
        let (session, reference) = Self.session("a")
        #expect(!directory.add(reference, id: "a", owner: "bob"))
        #expect(directory.add(reference, id: "a", owner: "ada"))
        #expect(!directory.add(reference, id: "a", owner: "ada"))
        directory.sweep(now: 1_000)
        guard case .connection = directory.entry("a", owner: "ada") else {
            Issue.record("the connection is gone")
            return
        }
        directory.remove(session.id)
        #expect(directory.entry("a", owner: "ada") == nil)
    }

    @Test("At the limit nothing more is taken, but what was offered is")
    func limit() {
        let directory = SignalRDirectory(limit: 1)
        #expect(directory.add(Self.offer("ada"), id: "a", until: 100))
        #expect(!directory.add(Self.offer("ada"), id: "b", until: 100))
        let (_, reference) = Self.session("a")
        #expect(!directory.add(reference, id: "c", owner: "ada"))
        #expect(directory.add(reference, id: "a", owner: "ada"))
    }
}
