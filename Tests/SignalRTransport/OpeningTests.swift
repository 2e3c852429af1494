// Carillon · OpeningTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOEmbedded
import SignalR
import Testing
import Transports

@testable import SignalRTransport

@Suite("The first words of a hub", .timeLimit(.minutes(10)))
struct OpeningTests {
    private final class Application: SignalRApplication {
        private(set) var heard: [String] = []

        func signalROpened(_ session: SignalRSession) { self.heard.append("opened") }
        func signalRInvoked(_ call: SignalRCall) { self.heard.append(call.invocation.target) }
        func signalRHeard() { self.heard.append("heard") }
        func signalRIsTooSlow() {}
        func signalRClosed() { self.heard.append("closed") }
    }

    private static let handshake = record(#"{"protocol":"json","version":1}"#)
    private static let ping = record(#"{"type":6}"#)

    private static func record(_ json: String) -> [UInt8] { Array(json.utf8) + [0x1E] }

    private static func session(
        _ transport: SignalRTransport
    ) -> (loop: EmbeddedEventLoop, session: SignalRSession, application: Application) {
        let loop = EmbeddedEventLoop()
        let configuration = SignalREndpointConfiguration(
            path: "/hub",
            connection: .standard,
            webSocket: WebSocketLimits(maximumMessage: 1024)
        )
        let session = SignalRSession(
            id: "id",
            offer: .init(connectionID: "public", owner: "ada", usesStatefulReconnect: false),
            transport: transport,
            node: SignalRNode(configuration: configuration),
            eventLoop: loop
        )
        let application = Application()
        session.begin(application)
        return (loop, session, application)
    }

    @Test(
        "over HTTP they wait until the client's requests, a ping after the handshake among them, were quiet for 200 ms")
    func quiet() {
        let (loop, session, application) = Self.session(.serverSentEvents)
        session.receive(Self.handshake)
        loop.advanceTime(by: .milliseconds(199))
        session.receive(Self.ping)
        loop.advanceTime(by: .milliseconds(199))
        #expect(application.heard == [])
        loop.advanceTime(by: .milliseconds(1))
        #expect(application.heard == ["opened"])
        session.receive(Self.ping)
        #expect(application.heard == ["opened", "heard"])
        session.drop()
    }

    @Test("over long polling they wait also until the handshake's answer was fetched, alone")
    func polling() {
        let (loop, session, application) = Self.session(.longPolling)
        session.performPolling { $0.poll(1, now: SignalRLoop.now) }
        session.receive(Self.handshake)
        loop.advanceTime(by: .seconds(5))
        #expect(application.heard == [])
        session.performPolling { $0.poll(2, now: SignalRLoop.now) }
        #expect(session.polling?.recordsAnswered == 1)
        loop.advanceTime(by: .milliseconds(200))
        #expect(application.heard == ["opened"])
        session.drop()
    }

    @Test("over a WebSocket, and to a client that calls, they come at once")
    func atOnce() {
        let (_, socket, socketApplication) = Self.session(.webSockets)
        socket.receive(Self.handshake)
        #expect(socketApplication.heard.first == "opened")
        socket.drop()

        let (_, session, application) = Self.session(.serverSentEvents)
        session.receive(Self.handshake)
        session.receive(Self.record(#"{"type":1,"target":"Echo","arguments":[]}"#))
        #expect(application.heard == ["opened", "Echo"])
        session.drop()
    }

    @Test("a client that goes on asking cannot put them off for ever, and one that leaves hears none")
    func bounds() {
        let (loop, session, application) = Self.session(.serverSentEvents)
        session.receive(Self.handshake)
        for _ in 0..<9 {
            loop.advanceTime(by: .milliseconds(100))
            session.receive(Self.ping)
        }
        #expect(application.heard.first == "opened")
        session.drop()

        let (other, gone, goneApplication) = Self.session(.serverSentEvents)
        gone.receive(Self.handshake)
        gone.drop()
        other.advanceTime(by: .seconds(1))
        #expect(goneApplication.heard == ["closed"])
    }
}
