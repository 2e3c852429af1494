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
            webSocket: WebSocketLimits(maximumMessage: 1024),
            wallClock: { Tokens.now }
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

    @Test("remembers the ids of ended connections for a time, and no more than the limit")
    func ended() {
        let directory = SignalRDirectory(limit: 1)
        let (_, reference) = Self.connection("a")
        #expect(directory.add(reference, id: "a", owner: "ada"))
        #expect(!directory.hasEnded("a"))
        directory.recordEnd("a", until: 100)
        directory.remove("a")
        directory.recordEnd("b", until: 100)
        directory.sweep(now: 99)
        #expect(directory.hasEnded("a") && !directory.hasEnded("b"))
        directory.sweep(now: 100)
        #expect(!directory.hasEnded("a"))
        directory.recordEnd("b", until: 200)
        #expect(directory.hasEnded("b"))
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
    func tooManyNegotiations() async throws {
        try await RunningHub.with(ScriptedBackend()) { running in
            try await HubClient.withListener(running, now: { 1_000 }) { http, url in
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
            try await HubClient.withListener(running, now: { clock.now.microseconds / 1_000 }) { http, url in
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

@Suite("SignalR connections of another gateway", .timeLimit(.minutes(10)))
struct ForeignConnectionTests {
    private static func head(_ id: String) -> HTTPRequestHead {
        HTTPRequestHead(version: .http1_1, method: .GET, uri: "\(NotificationHub.path)?id=\(id)&access_token=ada")
    }

    /// Returns the status with which an endpoint answers a WebSocket.
    private static func status(_ endpoint: SignalREndpoint, id: String) async throws -> HTTPResponseStatus {
        do {
            _ = try await endpoint.admit(Self.head(id))
            return .switchingProtocols
        } catch let refusal as TransportRefusal {
            return refusal.status
        }
    }

    @Test("opens a stateful one while its id is fresh, and answers 404 later so that the client negotiates again")
    func stateful() async throws {
        let clock = ManualClock(1_795_000_000)
        try await RunningHub.with(ScriptedBackend(), now: { clock.now }) { running in
            try await HubClient.withListener(running) { http, url in
                var ids: [String] = []
                for query in ["negotiateVersion=1", "negotiateVersion=1&useStatefulReconnect=true"] {
                    let request = TransferRequest(
                        .post, url: "\(url)/negotiate?\(query)",
                        headers: [(name: "authorization", value: "Bearer ada")], body: [], timeout: .seconds(300))
                    let answer = try await http.answer(request)
                    ids.append(try #require(try JSONParser.parse(answer.body)["connectionToken"]?.string))
                }
                let other = NotificationHub.endpoint(hub: running.hub)
                clock.set(1_795_000_009)
                for id in ids { #expect(try await Self.status(other, id: id) == .switchingProtocols) }
                clock.set(1_795_000_010)
                #expect(try await Self.status(other, id: ids[0]) == .switchingProtocols)
                #expect(try await Self.status(other, id: ids[1]) == .notFound)
            }
        }
    }

    @Test("takes the first WebSocket of a stateful client only while its negotiation is fresh")
    func negotiated() async throws {
        let clock = ManualClock(1_795_000_000)
        try await RunningHub.with(ScriptedBackend(), now: { clock.now }) { running in
            let endpoint = NotificationHub.endpoint(hub: running.hub)
            let stamped = SignalRIssueTime.stamp("a", at: clock.now.milliseconds)
            for (id, isStateful) in [(stamped, true), ("b", false)] {
                let offer = SignalRDirectory.Offer(owner: "ada", usesStatefulReconnect: isStateful)
                #expect(endpoint.node.directory.add(offer, id: id, until: .max))
            }
            let answers: [(seconds: Int64, stamped: HTTPResponseStatus)] = [
                (1_795_000_009, .switchingProtocols), (1_795_000_010, .notFound),
            ]
            for (seconds, expected) in answers {
                clock.set(seconds)
                let stateful = try await Self.status(endpoint, id: stamped)
                #expect(stateful == expected)
                let other = try await Self.status(endpoint, id: "b")
                #expect(other == .switchingProtocols)
            }
        }
    }

    /// Opens a WebSocket of `id` and attaches it to its connection.
    private static func open(
        _ endpoint: SignalREndpoint, id: String, on eventLoop: any EventLoop
    ) async throws -> LoopReference<SignalRConnection> {
        let admission = try await endpoint.admit(Self.head(id))
        return try await eventLoop.submit {
            guard let socket = admission.open(eventLoop) as? SignalRSocket,
                case .connection(let connection, _) = endpoint.node.directory.entry(id, owner: "ada")
            else { throw FixtureError("the connection was not opened") }
            let (reference, number) = (LoopReference(socket, eventLoop: eventLoop), socket.number)
            connection.call { $0.attach(reference, number) }
            return connection
        }.get()
    }

    @Test("answers 404 to the fresh id of a stateful connection that ended here, as its client negotiates again")
    func ended() async throws {
        let clock = ManualClock(1_795_000_000)
        try await RunningHub.with(ScriptedBackend(), now: { clock.now }) { running in
            let endpoint = NotificationHub.endpoint(hub: running.hub, now: { clock.now.milliseconds })
            let stamped = SignalRIssueTime.stamp("a", at: clock.now.milliseconds)
            for (id, expected) in [(stamped, .notFound), ("b", .switchingProtocols)] as [(String, HTTPResponseStatus)] {
                let connection = try await Self.open(endpoint, id: id, on: running.eventLoop)
                try await connection.ask { $0.drop() }.get()
                let status = try await Self.status(endpoint, id: id)
                #expect(status == expected)
            }
        }
    }

    @Test("treats an id as unknown if its connection ends during the request")
    func ending() async throws {
        let clock = ManualClock(1_795_000_000)
        try await RunningHub.with(ScriptedBackend(), now: { clock.now }) { running in
            let endpoint = NotificationHub.endpoint(hub: running.hub)
            let stale = SignalRIssueTime.stamp("a", at: clock.now.milliseconds - 10_000)
            let (eventLoop, node) = (running.eventLoop, endpoint.node)
            for (id, expected) in [(stale, .notFound), ("b", .switchingProtocols)] as [(String, HTTPResponseStatus)] {
                let gone = try await eventLoop.submit {
                    let offer = SignalRDirectory.Offer(owner: "ada", usesStatefulReconnect: false)
                    let connection = SignalRConnection(
                        id: id, offer: offer, transport: .webSockets, node: node, eventLoop: eventLoop)
                    return LoopReference(connection, eventLoop: eventLoop)
                }.get()
                #expect(node.directory.add(gone, id: id, owner: "ada"))
                let status = try await Self.status(endpoint, id: id)
                #expect(status == expected)
            }
        }
    }

    @Test("replaces a connection whose loss was not noticed, unless its client negotiates again")
    func replaced() async throws {
        let clock = ManualClock(1_795_000_000)
        try await RunningHub.with(ScriptedBackend(), now: { clock.now }) { running in
            let endpoint = NotificationHub.endpoint(hub: running.hub, now: { clock.now.milliseconds })
            let stamped = SignalRIssueTime.stamp("a", at: clock.now.milliseconds)
            for (id, expected) in [(stamped, .conflict), ("b", .switchingProtocols)] as [(String, HTTPResponseStatus)] {
                _ = try await Self.open(endpoint, id: id, on: running.eventLoop)
                let status = try await Self.status(endpoint, id: id)
                #expect(status == expected)
                let isLeft = endpoint.node.directory.entry(id, owner: "ada") != nil
                #expect(isLeft == (expected == .conflict))
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

    @Test("reports a client as slow whose answer does not fit the resend buffer")
    func tooSlow() {
        let (_, connection, application) = Self.connection(.webSockets, resendBuffer: 1)
        connection.receive(Self.record(#"{"protocol":"json","version":2}"#))
        connection.receive(Self.record(#"{"type":1,"target":"A","arguments":[],"invocationId":"1"}"#))
        connection.complete(1, .void)
        #expect(application.heard == ["opened", "A", "slow", "closed"])
    }

    private static let handshake = record(#"{"protocol":"json","version":1}"#)
    private static let ping = record(#"{"type":6}"#)

    private static func record(_ json: String) -> [UInt8] { Array(json.utf8) + [0x1E] }

    private static func connection(
        _ transport: SignalRTransport,
        maximumOutbound: Int = 1024 * 1024,
        resendBuffer: Int? = nil
    ) -> (loop: EmbeddedEventLoop, connection: SignalRConnection, application: Application) {
        let loop = EmbeddedEventLoop()
        let configuration = SignalREndpointConfiguration(
            path: "/hub",
            connection: resendBuffer.map { SignalRConfiguration(resendBufferBytes: $0) } ?? .standard,
            webSocket: WebSocketLimits(maximumMessage: 1024, maximumOutbound: maximumOutbound),
            wallClock: { Tokens.now }
        )
        let connection = SignalRConnection(
            id: "id",
            offer: .init(owner: "ada", usesStatefulReconnect: resendBuffer != nil),
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
                configuration: SignalREndpointConfiguration(
                    path: "/hub", connection: .standard, webSocket: limits, wallClock: { Tokens.now })),
            eventLoop: loop
        )
        let channel = EmbeddedChannel()
        let socket = SignalRSocket(
            number: 1, connection: LoopReference(connection, eventLoop: loop), eventLoop: channel.eventLoop)
        let handler = WebSocketHandler(application: socket, limits: limits)
        try channel.pipeline.syncOperations.addHandler(handler)
        try channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 1)).wait()
        connection.receive(Array(#"{"protocol":"json","version":1}"#.utf8) + [0x1E])
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

@Suite("Messages of SignalR clients", .timeLimit(.minutes(10)))
struct ClientMessageTests {
    private static let handshake = record(#"{"protocol":"json","version":1}"#)
    private static let ping = record(#"{"type":6}"#)

    private static func record(_ json: String) -> [UInt8] { Array(json.utf8) + [0x1E] }

    /// A text frame, masked with zeros.
    private static func frame(_ payload: [UInt8]) -> ByteBuffer {
        let count = payload.count
        let length = count < 126 ? [0x80 | UInt8(count)] : [0xFE, UInt8(count >> 8), UInt8(count & 0xFF)]
        return ByteBuffer(bytes: [0x81] + length + [0, 0, 0, 0] + payload)
    }

    /// Opens a WebSocket of the notification hub.
    private static func open(
        _ harness: HubHarness
    ) throws -> (connection: SignalRConnection, channel: EmbeddedChannel) {
        let loop = harness.eventLoop
        let limits = harness.hub.configuration.webSocketLimits
        let connection = SignalRConnection(
            id: "id",
            offer: .init(owner: "ada", usesStatefulReconnect: false),
            transport: .webSockets,
            node: SignalRNode(
                configuration: SignalREndpointConfiguration(
                    path: "/hub", connection: .standard, webSocket: limits, wallClock: { Tokens.now })),
            eventLoop: loop
        )
        let shard = try #require(harness.hub.shard(on: loop))
        let identity = SocketIdentity(user: "ada", expiresAt: nil)
        let session = SocketSession(connection: "c", identity: identity, since: nil, shard: shard)
        connection.begin(SignalRWire(session: session))
        let socket = SignalRSocket(number: 1, connection: LoopReference(connection, eventLoop: loop), eventLoop: loop)
        let channel = EmbeddedChannel(handler: WebSocketHandler(application: socket, limits: limits), loop: loop)
        try channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 1)).wait()
        return (connection, channel)
    }

    @Test("are counted one by one, however many come in one frame", arguments: [(120, false), (121, true)])
    func records(count: Int, isTooMany: Bool) throws {
        let harness = try HubHarness()
        let (connection, channel) = try Self.open(harness)
        try channel.writeInbound(Self.frame(Self.handshake))
        try channel.writeInbound(Self.frame([[UInt8]](repeating: Self.ping, count: count).flatMap(\.self)))
        var written: [UInt8] = []
        while let buffer = try channel.readOutbound(as: ByteBuffer.self) { written += buffer.readableBytesView }
        // A close frame with 1008.
        #expect((Array(written.suffix(4)) == [0x88, 0x02, 0x03, 0xF0]) == isTooMany)
        #expect(connection.state.isClosed == isTooMany)
        connection.drop()
    }

    @Test("are limited before the handshake, too", arguments: [(119, false), (121, true)])
    func strays(count: Int, isTooMany: Bool) throws {
        let harness = try HubHarness()
        let (connection, channel) = try Self.open(harness)
        // Pings of the WebSocket without a payload, masked with zeros.
        let ping: [UInt8] = [0x89, 0x80, 0, 0, 0, 0]
        try channel.writeInbound(ByteBuffer(bytes: [[UInt8]](repeating: ping, count: count).flatMap(\.self)))
        #expect(channel.isActive == !isTooMany)
        if !isTooMany { try channel.writeInbound(Self.frame(Self.handshake)) }
        #expect(connection.state.isOpen == !isTooMany)
        connection.drop()
    }
}
