// Carillon · OpeningTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOEmbedded
import Protocols
import Testing

@testable import Sockets

@Suite("The first messages of a hub", .timeLimit(.minutes(10)))
struct OpeningTests {
    /// Greets the client as soon as the connection opens.
    private final class Application: SignalRApplication {
        private(set) var heard: [String] = []

        func signalROpened(_ session: SignalRSession) {
            self.heard.append("opened")
            session.send(SignalRRecord(target: "Greet", encodedArguments: []))
            session.requestProof(1)
            session.flush()
        }
        func signalRInvoked(_ call: SignalRCall) { self.heard.append(call.invocation.target) }
        func signalRHeard() {}
        func signalRProven(_ number: UInt64) { self.heard.append("proven") }
        func signalRIsTooSlow() { self.heard.append("slow") }
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

    private static func poll(_ session: SignalRSession, _ number: UInt64) {
        session.performPolling { $0.poll(number, now: SignalRLoop.now) }
        if let proven = session.polling?.recordsProven, proven > 1 { session.proven(1) }
    }

    @Test("wait, once opened, until no request came for 200 ms, a ping after the handshake among them")
    func quiet() {
        let (loop, session, application) = Self.session(.longPolling)
        Self.poll(session, 1)
        session.receive(Self.handshake)
        #expect(application.heard == ["opened"])
        Self.poll(session, 2)
        #expect(session.polling?.recordsAnswered == 1)
        loop.advanceTime(by: .milliseconds(199))
        session.receive(Self.ping)
        Self.poll(session, 3)
        loop.advanceTime(by: .milliseconds(199))
        #expect(session.polling?.recordsAnswered == 1)
        #expect(session.holdsRecords)
        loop.advanceTime(by: .milliseconds(1))
        #expect(session.polling?.recordsAnswered == 2)
        #expect(!session.holdsRecords)
        session.drop()
    }

    @Test("wait until the handshake's answer was fetched alone, and are proven by the poll after them")
    func polling() {
        let (loop, session, application) = Self.session(.longPolling)
        Self.poll(session, 1)
        session.receive(Self.handshake)
        loop.advanceTime(by: .seconds(5))
        #expect(session.holdsRecords)
        Self.poll(session, 2)
        loop.advanceTime(by: .milliseconds(200))
        #expect(session.polling?.recordsTaken == 2)
        Self.poll(session, 3)
        #expect(application.heard == ["opened"])
        Self.poll(session, 4)
        #expect(application.heard == ["opened", "proven"])
        session.drop()
    }

    @Test("are written at once over a WebSocket, and to a client that calls")
    func atOnce() {
        let (_, socket, _) = Self.session(.webSockets)
        socket.receive(Self.handshake)
        #expect(!socket.holdsRecords)
        socket.drop()

        let (_, session, application) = Self.session(.longPolling)
        session.receive(Self.handshake)
        session.receive(Self.record(#"{"type":1,"target":"Echo","arguments":[]}"#))
        #expect(!session.holdsRecords)
        #expect(application.heard == ["opened", "Echo"])
        session.drop()
    }

    @Test("cannot be put off for ever, and go to nobody when the client has left")
    func bounds() {
        let (loop, session, _) = Self.session(.longPolling)
        session.receive(Self.handshake)
        for _ in 0..<9 {
            loop.advanceTime(by: .milliseconds(100))
            session.receive(Self.ping)
        }
        #expect(!session.holdsRecords)
        session.drop()

        let (other, gone, application) = Self.session(.longPolling)
        gone.receive(Self.handshake)
        gone.drop()
        other.advanceTime(by: .seconds(1))
        #expect(application.heard.last == "closed")
        #expect(gone.polling == nil)
    }
}
