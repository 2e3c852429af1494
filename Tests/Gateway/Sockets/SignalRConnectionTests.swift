// Carillon · SignalRConnectionTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import NIOCore
import NIOEmbedded
import NIOHTTP1
import Protocols
import Support
import Testing

@testable import Sockets

@Suite("SignalR connection ids", .timeLimit(.minutes(10)))
struct DirectoryTests {
    private static func offer(_ owner: String) -> SignalRDirectory.Offer {
        .init(owner: owner, usesStatefulReconnect: false)
    }

    /// A connection on its own loop, and a reference to it.
    private static func connection(
        _ id: String
    ) -> (connection: SignalRConnection, reference: LoopReference<SignalRConnection>) {
        let loop = EmbeddedEventLoop()
        let configuration = SignalREndpointConfiguration(
            path: "/hub",
            connection: .standard,
            webSocket: WebSocketLimits(maximumMessage: 1024)
        )
        let connection = SignalRConnection(
            id: id,
            offer: Self.offer("ada"),
            transport: .webSockets,
            node: SignalRNode(configuration: configuration),
            eventLoop: loop
        )
        return (connection, LoopReference(connection, eventLoop: loop))
    }

    @Test("shows an offer only to its owner, until it ends")
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

    @Test("tells owners apart whose ids differ only in their code points")
    func owners() {
        let directory = SignalRDirectory(limit: 10)
        #expect(directory.add(Self.offer("\u{E9}"), id: "a", until: 100))
        #expect(directory.entry("a", owner: "e\u{301}") == nil)
        let (_, reference) = Self.connection("a")
        #expect(!directory.add(reference, id: "a", owner: "e\u{301}"))
        #expect(directory.add(reference, id: "a", owner: "\u{E9}"))
        #expect(directory.entry("a", owner: "e\u{301}") == nil)
        #expect(directory.entry("a", owner: "\u{E9}") != nil)
    }

    @Test("replaces an offer with its connection once and keeps it when the offer's time is over")
    func connections() {
        let directory = SignalRDirectory(limit: 10)
        _ = directory.add(Self.offer("ada"), id: "a", until: 100)
        let (connection, reference) = Self.connection("a")
        #expect(!directory.add(reference, id: "a", owner: "bob"))
        #expect(directory.add(reference, id: "a", owner: "ada"))
        #expect(!directory.add(reference, id: "a", owner: "ada"))
        directory.sweep(now: 1_000)
        guard case .connection = directory.entry("a", owner: "ada") else {
            Issue.record("the connection is gone")
            return
        }
        directory.remove(connection.id)
        #expect(directory.entry("a", owner: "ada") == nil)
    }

    @Test("takes only connections with an offer at the limit")
    func limit() {
        let directory = SignalRDirectory(limit: 1)
        #expect(directory.add(Self.offer("ada"), id: "a", until: 100))
        #expect(!directory.add(Self.offer("ada"), id: "b", until: 100))
        let (_, reference) = Self.connection("a")
        #expect(!directory.add(reference, id: "c", owner: "ada"))
        #expect(directory.add(reference, id: "a", owner: "ada"))
    }

    @Test("limits an owner's negotiations and connections until their handshake or their end")
    func openings() {
        let directory = SignalRDirectory(limit: 10, openingsPerOwner: 2)
        for id in ["a", "b"] { #expect(directory.add(Self.offer("ada"), id: id, until: 100)) }
        #expect(!directory.hasRoom(for: "ada"))
        #expect(!directory.add(Self.offer("ada"), id: "c", until: 100))
        let (_, foreign) = Self.connection("c")
        #expect(!directory.add(foreign, id: "c", owner: "ada"))
        #expect(directory.add(Self.offer("bob"), id: "c", until: 100))
        let (_, reference) = Self.connection("a")
        #expect(directory.add(reference, id: "a", owner: "ada"))
        #expect(!directory.hasRoom(for: "ada"), "a connection counts like its offer")
        directory.opened("a")
        #expect(directory.add(Self.offer("ada"), id: "d", until: 200))
        directory.remove("a")
        #expect(!directory.hasRoom(for: "ada"), "the end of an open connection frees nothing more")
        directory.sweep(now: 100)
        #expect(directory.hasRoom(for: "ada"))
        directory.remove("d")
        for id in ["e", "f"] { #expect(directory.add(Self.offer("ada"), id: id, until: 300)) }
    }

    @Test("refuses a user's negotiation with 429 while too many wait for their handshake")
    func crowd() async throws {
        let backend = ScriptedBackend()
        try await RunningHub.with(backend) { running in
            try await HubClient.withListener(running, backend, now: { 1_000 }) { http, url in
                var clients: [HubClient] = []
                for _ in 0..<96 { clients.append(try await HubClient.negotiate(http, url, token: "ada")) }
                let request = TransferRequest(
                    .post, url: "\(url)/negotiate?negotiateVersion=1",
                    headers: [(name: "authorization", value: "Bearer ada")], body: [], timeout: .seconds(300))
                let refusal = try await http.answer(request)
                #expect(refusal.status == 429 && refusal.header("retry-after") == "5")
                _ = try await HubClient.negotiate(http, url, token: "bob")
                let client = try #require(clients.first)
                #expect(try await client.status(token: "ada") == 200)
                try await client.post(#"{"protocol":"json","version":1}"#, token: "ada")
                _ = try await HubClient.negotiate(http, url, token: "ada")
            }
        }
    }

    @Test("ends unused negotiations and abandoned connections after fifteen seconds")
    func abandoned() async throws {
        let clock = ManualClock(1_000)
        let departed = Notes<String>()
        var backend = ScriptedBackend()
        backend.onClose = { departed.note($0) }
        let scripted = backend
        try await RunningHub.with(scripted) { running in
            try await HubClient.withListener(running, scripted, now: { clock.now.microseconds / 1_000 }) { http, url in
                let unused = try await HubClient.negotiate(http, url, token: "ada")
                var polled = try await HubClient.open(http, url, token: "ada")
                try await polled.sync(token: "ada")
                clock.set(1_014)
                try await polled.post(#"{"type":6}"#, token: "ada")
                clock.set(1_016)
                try await eventually("its presence is removed") { !departed.all.isEmpty }
                for client in [unused, polled] { #expect(try await client.status(token: "ada") == 404) }
            }
        }
    }
}

@Suite("SignalR connections that clients end", .timeLimit(.minutes(10)))
struct ClientEndTests {
    @Test("a DELETE says that the client stopped, unless it answers the hub's own close", arguments: [false, true])
    func deletes(isClosed: Bool) async throws {
        let noted = Notes<SocketBookmark>()
        var backend = ScriptedBackend()
        backend.onNote = { noted.note($0) }
        let scripted = backend
        try await RunningHub.with(scripted) { running in
            try await HubClient.withListener(running, scripted) { http, url in
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
}

@Suite("SignalR connections of another gateway", .timeLimit(.minutes(10)))
struct ForeignConnectionTests {
    /// Returns the status with which an endpoint answers a WebSocket.
    private static func status(_ endpoint: SignalREndpoint, id: String) async throws -> HTTPResponseStatus {
        let target = "\(NotificationHub.path)?id=\(id)&access_token=ada"
        do {
            _ = try await endpoint.admit(HTTPRequestHead(version: .http1_1, method: .GET, uri: target))
            return .switchingProtocols
        } catch let refusal as TransportRefusal {
            return refusal.status
        }
    }

    @Test("opens a stateful one while its id is fresh, and answers 404 later so that the client negotiates again")
    func stateful() async throws {
        let clock = ManualClock(1_795_000_000)
        let backend = ScriptedBackend()
        try await RunningHub.with(backend, now: { clock.now }) { running in
            try await HubClient.withListener(running, backend) { http, url in
                var ids: [String] = []
                for query in ["negotiateVersion=1", "negotiateVersion=1&useStatefulReconnect=true"] {
                    let request = TransferRequest(
                        .post, url: "\(url)/negotiate?\(query)",
                        headers: [(name: "authorization", value: "Bearer ada")], body: [], timeout: .seconds(300))
                    let answer = try await http.answer(request)
                    ids.append(try #require(try JSONParser.parse(answer.body)["connectionToken"]?.string))
                }
                let other = NotificationHub.endpoint(hub: running.hub, backend: backend)
                clock.set(1_795_000_014)
                for id in ids { #expect(try await Self.status(other, id: id) == .switchingProtocols) }
                clock.set(1_795_000_015)
                #expect(try await Self.status(other, id: ids[0]) == .switchingProtocols)
                #expect(try await Self.status(other, id: ids[1]) == .notFound)
            }
        }
    }
}

@Suite("The first messages of a hub", .timeLimit(.minutes(10)))
struct OpeningTests {
    /// Greets the client as soon as the connection opens.
    private final class Application: SignalRApplication {
        private(set) var heard: [String] = []

        func signalROpened(_ connection: SignalRConnection) {
            self.heard.append("opened")
            connection.send(SignalRRecord(target: "Greet", encodedArguments: []))
            connection.requestProof(1)
            connection.flush()
        }
        func signalRInvoked(_ call: SignalRCall) { self.heard.append(call.invocation.target) }
        func signalRHeard() {}
        func signalRProven(_ sequence: UInt64) { self.heard.append("proven") }
        func signalRIsTooSlow() { self.heard.append("slow") }
        func signalRClosed() { self.heard.append("closed") }
    }

    private static let handshake = record(#"{"protocol":"json","version":1}"#)
    private static let ping = record(#"{"type":6}"#)

    private static func record(_ json: String) -> [UInt8] { Array(json.utf8) + [0x1E] }

    private static func connection(
        _ transport: SignalRTransport,
        maximumOutbound: Int = 1024 * 1024
    ) -> (loop: EmbeddedEventLoop, connection: SignalRConnection, application: Application) {
        let loop = EmbeddedEventLoop()
        let configuration = SignalREndpointConfiguration(
            path: "/hub",
            connection: .standard,
            webSocket: WebSocketLimits(maximumMessage: 1024, maximumOutbound: maximumOutbound)
        )
        let connection = SignalRConnection(
            id: "id",
            offer: .init(owner: "ada", usesStatefulReconnect: false),
            transport: transport,
            node: SignalRNode(configuration: configuration),
            eventLoop: loop
        )
        let application = Application()
        connection.begin(application)
        return (loop, connection, application)
    }

    private static func poll(_ connection: SignalRConnection, _ number: UInt64) {
        connection.performPolling { $0.poll(number, now: connection.now) }
        if let proven = connection.polling?.recordsProven, proven > 1 { connection.proven(1) }
    }

    @Test("wait until no request, not even a ping, came for 200 ms after the handshake")
    func quiet() {
        let (loop, connection, application) = Self.connection(.longPolling)
        Self.poll(connection, 1)
        connection.receive(Self.handshake)
        #expect(application.heard == ["opened"])
        Self.poll(connection, 2)
        #expect(connection.polling?.recordsAnswered == 1)
        loop.advanceTime(by: .milliseconds(199))
        connection.receive(Self.ping)
        Self.poll(connection, 3)
        loop.advanceTime(by: .milliseconds(199))
        #expect(connection.polling?.recordsAnswered == 1)
        #expect(connection.holdsRecords)
        loop.advanceTime(by: .milliseconds(1))
        #expect(connection.polling?.recordsAnswered == 2)
        #expect(!connection.holdsRecords)
        connection.drop()
    }

    @Test("wait over Server-Sent Events, too")
    func eventStream() {
        let (loop, connection, application) = Self.connection(.serverSentEvents)
        connection.receive(Self.handshake)
        #expect(application.heard == ["opened"])
        #expect(connection.holdsRecords)
        loop.advanceTime(by: .milliseconds(200))
        #expect(!connection.holdsRecords)
        connection.drop()
    }

    @Test("wait until the handshake's answer was fetched, and are proven by the poll after them")
    func polling() {
        let (loop, connection, application) = Self.connection(.longPolling)
        Self.poll(connection, 1)
        connection.receive(Self.handshake)
        loop.advanceTime(by: .seconds(5))
        #expect(connection.holdsRecords)
        Self.poll(connection, 2)
        loop.advanceTime(by: .milliseconds(200))
        #expect(connection.polling?.recordsTaken == 2)
        Self.poll(connection, 3)
        #expect(application.heard == ["opened"])
        Self.poll(connection, 4)
        #expect(application.heard == ["opened", "proven"])
        connection.drop()
    }

    @Test("are written at once over a WebSocket, and to a client that calls a method")
    func atOnce() {
        let (_, socket, _) = Self.connection(.webSockets)
        socket.receive(Self.handshake)
        #expect(!socket.holdsRecords)
        socket.drop()

        let (_, connection, application) = Self.connection(.longPolling)
        connection.receive(Self.handshake)
        connection.receive(Self.record(#"{"type":1,"target":"Echo","arguments":[]}"#))
        #expect(!connection.holdsRecords)
        #expect(application.heard == ["opened", "Echo"])
        connection.drop()
    }

    @Test("report a slow client once when they exceed the limit")
    func slowClient() {
        let (_, connection, application) = Self.connection(.longPolling, maximumOutbound: 200)
        connection.receive(Self.handshake)
        for _ in 0..<9 { connection.send(SignalRRecord(target: "Greet", encodedArguments: [])) }
        #expect(application.heard == ["opened", "slow"])
        connection.drop()
    }

    @Test("cannot be delayed forever, and are dropped when the client has left")
    func bounds() {
        let (loop, connection, _) = Self.connection(.longPolling)
        connection.receive(Self.handshake)
        for _ in 0..<9 {
            loop.advanceTime(by: .milliseconds(100))
            connection.receive(Self.ping)
        }
        #expect(!connection.holdsRecords)
        connection.drop()

        let (other, gone, application) = Self.connection(.longPolling)
        gone.receive(Self.handshake)
        gone.drop()
        other.advanceTime(by: .seconds(1))
        #expect(application.heard.last == "closed")
        #expect(gone.polling == nil)
    }
}

@Suite("WebSockets on another loop than their connection", .timeLimit(.minutes(10)))
struct FarSocketTests {
    @Test("stop reading after 16 KB until the connection's loop has caught up")
    func pauses() throws {
        let loop = EmbeddedEventLoop()
        let limits = WebSocketLimits(maximumMessage: 64 * 1024)
        let connection = SignalRConnection(
            id: "id",
            offer: .init(owner: "ada", usesStatefulReconnect: false),
            transport: .webSockets,
            node: SignalRNode(
                configuration: SignalREndpointConfiguration(path: "/hub", connection: .standard, webSocket: limits)),
            eventLoop: loop
        )
        let channel = EmbeddedChannel()
        let socket = SignalRSocket(
            number: 1, connection: LoopReference(connection, eventLoop: loop), eventLoop: channel.eventLoop)
        let handler = WebSocketHandler(application: socket, limits: limits)
        try channel.pipeline.syncOperations.addHandler(handler)
        try channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 1)).wait()
        func reads() -> Bool {
            channel.options.last { $0.option is ChannelOptions.Types.AutoReadOption }?.value as? Bool ?? true
        }
        // Pings without a payload, masked with zeros.
        let pings = ByteBuffer(bytes: (0..<1_000).flatMap { _ in [0x89, 0x80, 0, 0, 0, 0] as [UInt8] })
        for _ in 0..<2 {
            for _ in 0..<2 { try channel.writeInbound(pings) }
            #expect(reads())
            try channel.writeInbound(pings)
            #expect(!reads())
            // The hub may want input meanwhile, because its calls are answered.
            handler.setReading(true)
            #expect(!reads())
            loop.run()
            #expect(reads())
        }
        try channel.writeInbound(pings)
        handler.setReading(false)
        for _ in 0..<2 { try channel.writeInbound(pings) }
        loop.run()
        #expect(!reads(), "the hub has paused reading")
        connection.drop()
    }
}
