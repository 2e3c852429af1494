// Carillon · SignalRDepartureTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import NIOEmbedded
import Protocols
import Support
import Testing

@testable import Sockets

@Suite("SignalR connections that clients end", .timeLimit(.minutes(10)))
struct ClientEndTests {
    @Test("a DELETE says that the client stopped, unless it answers the hub's own close", arguments: [false, true])
    func deletes(isClosed: Bool) async throws {
        let noted = Notes<SocketBookmark>()
        var backend = ScriptedBackend()
        backend.onNote = { noted.note($0) }
        let scripted = backend
        try await RunningHub.with(scripted) { running in
            try await HubClient.withListener(running) { http, url in
                var client = try await HubClient.open(http, url, token: "ada")
                try await client.sync(token: "ada")
                if isClosed {
                    let (eventLoop, hub) = (running.eventLoop, running.hub)
                    eventLoop.execute { hub.shard(on: eventLoop)?.drain(over: .zero) }
                    try await client.poll(until: "the close message", token: "ada") { client in
                        client.messages.contains { $0["type"]?.integer == 7 }
                    }
                }
                try await client.delete(token: "ada")
                try await eventually("the end is noted") { noted.all.last?.hasLeft == true }
                #expect((noted.all.last?.version == nil) == !isClosed)
            }
        }
    }

    @Test("the poll or the DELETE after the last answer proves what it brought", arguments: [false, true])
    func lastProof(isDeleted: Bool) async throws {
        let noted = Notes<SocketBookmark>()
        let proven = Notes<NotificationID>()
        var backend = ScriptedBackend()
        backend.onNote = { noted.note($0) }
        backend.onConfirm = { proven.note($0.map(\.id)) }
        let scripted = backend
        try await RunningHub.with(scripted) { running in
            try await HubClient.withListener(running) { http, url in
                var client = try await HubClient.open(http, url, token: "ada")
                try await client.sync(token: "ada")
                // Both wait for the next poll, so one answer brings them.
                let change = HubHarness.notification("ada", 5, camelCase: "{}")
                let (eventLoop, hub) = (running.eventLoop, running.hub)
                hub.deliver([change])
                eventLoop.execute { hub.shard(on: eventLoop)?.drain(over: .zero) }
                try await client.poll(until: "the close message", token: "ada") { $0.close != nil }
                #expect(client.messages.contains { $0["target"]?.string == "ReceiveNotification" })
                if isDeleted {
                    try await client.delete(token: "ada")
                } else {
                    #expect(try await client.status(token: "ada") == 204)
                }
                try await eventually("the end is noted") { noted.all.last?.hasLeft == true }
                #expect(noted.all.last?.version == 5)
                try await eventually("the proof is recorded") { proven.all == [change.id] }
            }
        }
    }

    @Test("the DELETE of a client that stops proves nothing")
    func stopProof() async throws {
        let proven = Notes<String>()
        var backend = ScriptedBackend()
        backend.onConfirm = { proven.note($0.map(\.user)) }
        let scripted = backend
        try await RunningHub.with(scripted) { running in
            try await HubClient.withListener(running) { http, url in
                let (eventLoop, hub) = (running.eventLoop, running.hub)
                for user in ["ada", "bob"] {
                    var client = try await HubClient.open(http, url, token: user)
                    try await client.sync(token: user)
                    hub.deliver([HubHarness.notification(user, 5, camelCase: "{}")])
                    try await client.poll(until: "the notification", token: user) { client in
                        client.messages.contains { $0["target"]?.string == "ReceiveNotification" }
                    }
                    if user == "ada" {
                        try await client.post(#"{"type":7}"#, token: user)
                        try await client.delete(token: user)
                    } else {
                        // The next poll brings the close message, and proves the notification.
                        eventLoop.execute { hub.shard(on: eventLoop)?.drain(over: .zero) }
                        try await client.poll(until: "the close message", token: user) { $0.close != nil }
                    }
                }
                try await eventually("the second client's proof is recorded") { proven.all.contains("bob") }
                #expect(proven.all == ["bob"])
            }
        }
    }
}

@Suite("SignalR clients that are away", .timeLimit(.minutes(10)))
struct AwayTests {
    /// Counts the losses, the returns and the end of its client.
    private final class Application: SignalRApplication {
        private(set) var losses = 0
        private(set) var returns = 0
        private(set) var ends = 0

        func signalROpened(_ connection: SignalRConnection) {}
        func signalRInvoked(_ call: SignalRCall) {}
        func signalRLost() { self.losses += 1 }
        func signalRReturned() { self.returns += 1 }
        func signalRIsTooSlow() {}
        func signalRClosed() { self.ends += 1 }
    }

    private static func connection(
        _ transport: SignalRTransport,
        version: Int,
        now: @escaping @Sendable () -> Milliseconds = systemUptime
    ) -> (connection: SignalRConnection, application: Application) {
        let loop = EmbeddedEventLoop()
        let configuration = SignalREndpointConfiguration(
            path: "/hub",
            connection: .standard,
            webSocket: WebSocketLimits(maximumMessage: 1024),
            wallClock: { Tokens.now }
        )
        let connection = SignalRConnection(
            id: "id",
            offer: .init(owner: "ada", usesStatefulReconnect: version == 2),
            transport: transport,
            node: SignalRNode(configuration: configuration, now: now),
            eventLoop: loop
        )
        let application = Application()
        connection.begin(application)
        connection.receive(Array(#"{"protocol":"json","version":\#(version)}"#.utf8) + [0x1E])
        return (connection, application)
    }

    @Test("counts a client whose poll was lost as away until it polls again")
    func polls() {
        let (connection, application) = Self.connection(.longPolling, version: 1)
        func poll(_ number: UInt64) {
            connection.performPolling { $0.poll(number, now: connection.now) }
        }
        // The second one brings the answer to the handshake, and the third waits.
        for number in 1...3 { poll(UInt64(number)) }
        connection.pollLost(2)
        #expect(!connection.isAway && application.losses == 0)
        connection.pollLost(3)
        #expect(connection.isAway && application.losses == 1)
        poll(4)
        #expect(!connection.isAway)
        connection.drop()
    }

    @Test("counts a client as away whose WebSocket was lost, if it may return", arguments: [1, 2])
    func socket(version: Int) {
        let (connection, application) = Self.connection(.webSockets, version: version)
        connection.transportLost()
        #expect(connection.isAway == (version == 2))
        #expect(application.losses == version - 1)
        let loop = connection.eventLoop
        let socket = SignalRSocket(number: 1, connection: LoopReference(connection, eventLoop: loop), eventLoop: loop)
        let isBack = connection.reattach(LoopReference(socket, eventLoop: loop), 1)
        #expect(isBack == (version == 2))
        #expect(!connection.isAway && application.returns == version - 1)
        connection.drop()
    }

    @Test("ends a connection if its client's new WebSocket closed while it was accepted")
    func lostAgain() throws {
        let clock = ManualClock(1_000)
        let (connection, application) = Self.connection(.webSockets, version: 2, now: { clock.now.milliseconds })
        let loop = try #require(connection.eventLoop as? EmbeddedEventLoop)
        let reference = LoopReference(connection, eventLoop: loop)
        let directory = connection.node.directory
        #expect(directory.add(reference, id: connection.id, owner: "ada"))
        connection.transportLost()
        let socket = SignalRSocket(
            number: 1, connection: reference, eventLoop: loop, renewal: SignalRPermit(owner: "ada") { _ in nil })
        let channel = EmbeddedChannel(loop: loop)
        try channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 1)).wait()
        // As does a failed write of the handshake's answer; the handlers are removed later.
        channel.close(promise: nil)
        let handler = WebSocketHandler(application: socket, limits: WebSocketLimits(maximumMessage: 1024))
        try channel.pipeline.syncOperations.addHandler(handler)
        loop.run()
        // Past the time for a client to return, and past the time for one to be silent.
        for seconds: Int64 in [1_015, 1_030] {
            clock.set(seconds)
            connection.tick()
        }
        #expect(application.ends == 1)
        #expect(directory.entry(connection.id, owner: "ada") == nil)
    }

    @Test("after a stall, ends a silent connection only once the input that arrived meanwhile is read")
    func stall() {
        let clock = ManualClock(1_000)
        let now: @Sendable () -> Milliseconds = { clock.now.milliseconds }
        let (silent, silentApplication) = Self.connection(.webSockets, version: 1, now: now)
        let (heard, heardApplication) = Self.connection(.webSockets, version: 1, now: now)
        let loop = SignalRLoop()
        for connection in [silent, heard] { loop.add(connection) }
        #expect(loop.tick(now: now()))
        clock.set(1_031)
        #expect(!loop.tick(now: now()))
        #expect(silentApplication.ends == 0 && heardApplication.ends == 0)
        heard.receive(Array(#"{"type":6}"#.utf8) + [0x1E])
        clock.set(1_032)
        #expect(loop.tick(now: now()))
        #expect(silentApplication.ends == 1 && heardApplication.ends == 0)
        heard.drop()
    }

    @Test("notes when a client that is gone last polled or sent a message", arguments: [false, true])
    func lastHeard(sends: Bool) async throws {
        let clock = ManualClock(1_000)
        let noted = Notes<SocketBookmark>()
        var backend = ScriptedBackend()
        backend.onNote = { noted.note($0) }
        let scripted = backend
        try await RunningHub.with(scripted, now: { clock.now }) { running in
            try await HubClient.withListener(running, now: { clock.now.milliseconds }) { http, url in
                var client = try await HubClient.open(http, url, token: "ada")
                clock.set(1_010)
                try await client.sync(token: "ada")
                if sends {
                    clock.set(1_014)
                    try await client.post(#"{"type":6}"#, token: "ada")
                }
                clock.set(1_030)
                try await eventually("the end is noted") { noted.all.last?.hasLeft == true }
                #expect(noted.all.last?.lastHeard == Timestamp(seconds: sends ? 1_014 : 1_010))
            }
        }
    }

    /// Returns how often ada has left so far.
    ///
    /// Bookmarks are noted in order, so the end of a connection of `other` comes after all of them.
    private static func departures(
        _ noted: Notes<SocketBookmark>, of running: RunningHub, before other: String
    ) async throws -> Int {
        let socket = try await running.open(other, connection: other, client: "web").synced()
        try await socket.on { session, _ in session.end() }
        try await eventually("the other end is noted") { noted.all.contains { $0.user == other && $0.hasLeft } }
        return noted.all.count { $0.user == "ada" && $0.hasLeft }
    }

    /// Opens a client of ada, and runs `body` once its poll was refused with its expired token.
    private static func withRefusedPoll(
        _ clock: ManualClock,
        _ noted: Notes<SocketBookmark>,
        onClose: @escaping @Sendable ([String]) -> Void = { _ in },
        _ body: (RunningHub, inout HubClient) async throws -> Void
    ) async throws {
        var backend = ScriptedBackend()
        backend.onAuthenticate = { SocketIdentity(user: $0, expiresAt: Timestamp(seconds: 200)) }
        backend.onClose = onClose
        backend.onNote = { noted.note($0) }
        let scripted = backend
        try await RunningHub.with(scripted, now: { clock.now }) { running in
            try await HubClient.withListener(running, now: { clock.now.milliseconds }) { http, url in
                var client = try await HubClient.open(http, url, token: "ada")
                try await client.sync(token: "ada")
                let waiting = client
                async let parked = waiting.status(token: "ada")
                clock.set(201)
                let status = try await parked
                #expect(status == 401)
                try await eventually("the client has left") { noted.all.last?.hasLeft == true }
                try await body(running, &client)
            }
        }
    }

    @Test("notes that a client has left when its poll is refused, and not again when the connection ends")
    func refused() async throws {
        let clock = ManualClock(190)
        let departed = Notes<String>()
        let noted = Notes<SocketBookmark>()
        try await Self.withRefusedPoll(clock, noted, onClose: { departed.note($0) }) { running, _ in
            // A tick before the poll arrives refuses it twice, so there may be two.
            let before = try await Self.departures(noted, of: running, before: "bob")
            #expect(departed.all.allSatisfy { $0 == "bob" }, "the connection still waits for a poll")
            clock.set(217)
            try await eventually("the connection ends") { departed.all.contains { $0 != "bob" } }
            let after = try await Self.departures(noted, of: running, before: "eve")
            #expect(after == before)
        }
    }

    @Test("notes again that a client has left if it polled once more before its connection ended")
    func returned() async throws {
        let noted = Notes<SocketBookmark>()
        try await Self.withRefusedPoll(ManualClock(190), noted) { running, client in
            // After the goodbye, only the end is noted.
            let (eventLoop, hub) = (running.eventLoop, running.hub)
            eventLoop.execute { hub.shard(on: eventLoop)?.drain(over: .zero) }
            try await client.poll(until: "the close message", token: "ada") { $0.close != nil }
            try await client.delete(token: "ada")
            try await eventually("the end is noted, too") { noted.all.count { $0.hasLeft } >= 2 }
        }
    }
}
