// Carillon · EngineIOEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1
import Protocols
import Synchronization

/// Engine.IO 4 at a path, with or without a trailing slash: polling, WebSockets, and the upgrade
/// from one to the other.
///
/// Limits all polling sessions, and those of one address whose client is not identified yet
/// (``EngineIOConnection/welcome()``). Above a limit, a new session is answered with 503 and
/// `isFull` is called. Sessions that begin on a WebSocket do not count: no other request can reach
/// them.
package struct EngineIOEndpoint: TransportEndpoint {
    private let path: String
    private let server: EngineIOServer
    private let limits: WebSocketLimits
    private let isFull: @Sendable () -> Void

    /// - Parameters:
    ///   - path: without a trailing slash.
    ///   - maximumUnidentified: the most polling sessions of one address whose clients are not
    ///     identified yet.
    ///   - maximumOutbound: the most bytes that may wait for a slow WebSocket; above it, the
    ///     application closes the WebSocket.
    ///   - isFull: called for each session that is refused.
    ///   - open: makes the application's side of a new connection, on the given event loop; nil
    ///     refuses it with 503.
    package init(
        path: String,
        configuration: EngineIOConfiguration,
        maximumPollingSessions: Int = 100_000,
        maximumUnidentified: Int = 1_000,
        maximumOutbound: Int = 1024 * 1024,
        isFull: @escaping @Sendable () -> Void = {},
        open: @escaping @Sendable (EngineIOOpening, any EventLoop) -> (any EngineIOApplication)?
    ) {
        self.path = path
        self.server = EngineIOServer(
            configuration: configuration,
            maximumPollingSessions: maximumPollingSessions,
            maximumUnidentified: maximumUnidentified,
            open: open
        )
        self.limits = WebSocketLimits(
            maximumMessage: configuration.maximumPayload, maximumOutbound: maximumOutbound)
        self.isFull = isFull
    }

    /// Clients may be set to send credentials; only the token identifies the caller.
    package var allowsCredentials: Bool { true }

    package func claims(_ path: Substring) -> Bool {
        path == self.path || path.last == "/" && path.dropLast() == self.path
    }

    package var maximumBody: Int { self.server.configuration.maximumPayload }

    package func refusal(_ status: HTTPResponseStatus, reason: String) -> TransportRefusal {
        let headers: HTTPHeaders = ["content-type": "text/html", "cache-control": "no-store"]
        return TransportRefusal(status, headers: headers, body: Array(reason.utf8))
    }

    private func judge(_ head: HTTPRequestHead, _ query: EngineIOQuery, asksForWebSocket: Bool)
        -> EngineIORequest.Decision
    {
        EngineIORequest(
            method: head.method.rawValue,
            query: query,
            asksForWebSocket: asksForWebSocket
        ).judge(isKnown: { self.server.directory[$0] != nil })
    }

    /// The query of a request; nil if it cannot be read.
    private static func query(_ head: HTTPRequestHead) -> EngineIOQuery? {
        (try? RequestQuery(target: head.uri)).map { EngineIOQuery($0) }
    }

    // MARK: WebSockets

    package func admit(_ head: HTTPRequestHead) async throws -> WebSocketAdmission {
        guard let query = Self.query(head) else {
            throw self.refusal(.badRequest, reason: EngineIORefusal.badRequest.message)
        }
        let server = self.server
        switch self.judge(head, query, asksForWebSocket: true) {
        case .refuse(let refusal): throw self.refusal(.badRequest, reason: refusal.message)
        case .open:
            let opening = EngineIOOpening(head: head, query: query)
            return WebSocketAdmission(limits: self.limits) { eventLoop in
                server.open(opening, eventLoop).map { EngineIOWebSocket(server, .open($0), eventLoop: eventLoop) }
            }
        case .takeOver(let sid):
            guard let session = server.directory[sid] else {
                throw self.refusal(.badRequest, reason: EngineIORefusal.unknownSession.message)
            }
            return WebSocketAdmission(limits: self.limits) { eventLoop in
                EngineIOWebSocket(server, .takeOver(session), eventLoop: eventLoop)
            }
        case .poll, .post: throw self.refusal(.badRequest, reason: EngineIORefusal.badRequest.message)
        }
    }

    // MARK: Polling

    /// Reports a POST as soon as its head has arrived, so the session sees when two overlap;
    /// refuses one without a session at once, so its body is not kept.
    package func begin(_ exchange: HTTPExchange) {
        let head = exchange.head
        guard head.method == .POST else { return }
        let request = EngineIOExchange(exchange, carrier: self.server.carrier())
        guard let query = Self.query(head) else { return request.respond(EngineIORefusal.badRequest.response) }
        let sid: String
        switch self.judge(head, query, asksForWebSocket: false) {
        case .post(let named): sid = named
        case .refuse(let refusal): return request.respond(refusal.response)
        case .open, .poll, .takeOver: return
        }
        guard let session = self.server.directory[sid] else {
            return request.respond(EngineIORefusal.unknownSession.response)
        }
        let carrier = request.carrier
        let type = head.headers.first(name: "content-type")
        let length = head.headers.first(name: "content-length").flatMap { Int($0) }
        exchange.onAbort = { session.call { $0.postAborted(carrier) } }
        exchange.onBody = { bytes in
            let body = Array(bytes.readableBytesView)
            session.call { connection in
                connection.postCompleted(carrier, body: body)
            } ifGone: {
                request.respond(EngineIORefusal.unknownSession.response)
            }
        }
        session.call { connection in
            connection.postStarted(request, contentType: type, contentLength: length)
        } ifGone: {
            request.respond(EngineIORefusal.unknownSession.response)
        }
    }

    package func handle(_ exchange: HTTPExchange) {
        let head = exchange.head
        // Preflights were answered earlier.
        if head.method == .OPTIONS { return exchange.respond(.noContent) }
        let request = EngineIOExchange(exchange, carrier: self.server.carrier())
        guard let query = Self.query(head) else { return request.respond(EngineIORefusal.badRequest.response) }
        let decision = self.judge(head, query, asksForWebSocket: false)
        switch decision {
        case .open, .poll:
            guard exchange.countStream() else { return exchange.respond(HTTPExchange.tooManyStreams) }
        case .refuse, .post, .takeOver: break
        }
        switch decision {
        case .refuse(let refusal): request.respond(refusal.response)
        case .open: self.open(exchange, request, query)
        case .poll(let sid):
            let carrier = request.carrier
            guard let session = self.server.directory[sid] else {
                return request.respond(EngineIORefusal.unknownSession.response)
            }
            exchange.onAbort = { session.call { $0.pollAborted(carrier) } }
            let mark = query.mark
            session.call { connection in
                connection.poll(request, mark: mark)
            } ifGone: {
                request.respond(EngineIORefusal.unknownSession.response)
            }
        // Never reached: `begin` answers a POST or takes its body.
        case .post: request.respond(EngineIORefusal.unknownSession.response)
        case .takeOver: request.respond(EngineIORefusal.badRequest.response)
        }
    }

    private func open(_ exchange: HTTPExchange, _ request: EngineIOExchange, _ query: EngineIOQuery) {
        let opening = EngineIOOpening(head: exchange.head, query: query)
        let eventLoop = exchange.eventLoop
        guard let application = self.server.open(opening, eventLoop) else {
            return exchange.respond(.problem(.serviceUnavailable, "try again later"))
        }
        let address = exchange.client
        if let address, !self.server.unidentified.reserve(address) {
            self.isFull()
            return exchange.respond(
                .problem(.serviceUnavailable, "too many sessions of this address have not joined, try again later"))
        }
        let sid = self.server.makeSid()
        let registry = self.server.registry(on: eventLoop)
        let connection = EngineIOConnection(
            self.server, registry, sid: sid, polling: request, mark: query.mark, unidentified: address)
        guard self.server.directory.add(sid, LoopReference(connection, eventLoop: eventLoop)) else {
            if let address { self.server.unidentified.release(address) }
            self.isFull()
            return exchange.respond(.problem(.serviceUnavailable, "too many sessions, try again later"))
        }
        connection.begin(application)
    }
}

/// State that all connections of an endpoint share.
final class EngineIOServer: Sendable {
    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")

    let configuration: EngineIOConfiguration
    let directory: EngineIODirectory
    /// Counts the polling sessions of unidentified clients, by address.
    let unidentified: AddressLimiter
    let open: @Sendable (EngineIOOpening, any EventLoop) -> (any EngineIOApplication)?
    private let lastCarrier = Atomic<UInt64>(0)
    // The bound confines each registry to its loop.
    private let registries = Mutex<[ObjectIdentifier: NIOLoopBound<EngineIORegistry>]>([:])

    init(
        configuration: EngineIOConfiguration,
        maximumPollingSessions: Int,
        maximumUnidentified: Int,
        open: @escaping @Sendable (EngineIOOpening, any EventLoop) -> (any EngineIOApplication)?
    ) {
        self.configuration = configuration
        self.directory = EngineIODirectory(limit: maximumPollingSessions)
        self.unidentified = AddressLimiter(limit: maximumUnidentified)
        self.open = open
    }

    /// Returns a number for a request or a WebSocket.
    func carrier() -> EngineIOCarrier { EngineIOCarrier(self.lastCarrier.wrappingAdd(1, ordering: .relaxed).newValue) }

    /// Makes a session's secret id: 120 random bits.
    func makeSid() -> String {
        String((0..<20).map { _ in Self.alphabet[Int.random(in: 0..<64)] })
    }

    /// Returns the registry of a loop, for use on it.
    func registry(on eventLoop: any EventLoop) -> EngineIORegistry {
        self.registries.withLock { registries in
            if let bound = registries[ObjectIdentifier(eventLoop)] { return bound }
            let bound = NIOLoopBound(EngineIORegistry(eventLoop: eventLoop), eventLoop: eventLoop)
            registries[ObjectIdentifier(eventLoop)] = bound
            return bound
        }.value
    }
}

/// The polling sessions of all event loops, by their secret ids.
final class EngineIODirectory: Sendable {
    private let limit: Int
    private let connections = Mutex<[String: LoopReference<EngineIOConnection>]>([:])

    /// - Parameter limit: sessions beyond this are refused.
    init(limit: Int) {
        self.limit = limit
    }

    /// Adds a session; false if there are too many or the id is taken.
    func add(_ sid: String, _ connection: LoopReference<EngineIOConnection>) -> Bool {
        self.connections.withLock { connections in
            guard connections.count < self.limit, connections[sid] == nil else { return false }
            connections[sid] = connection
            return true
        }
    }

    subscript(sid: String) -> LoopReference<EngineIOConnection>? { self.connections.withLock { $0[sid] } }

    func remove(_ sid: String) {
        _ = self.connections.withLock { $0.removeValue(forKey: sid) }
    }
}

/// The connections of one event loop, and the one timer that serves them while there are any.
///
/// Confined to that loop: no lock, and every call runs on it.
final class EngineIORegistry {
    /// Interval of the check of all connections; earlier deadlines have their own timer.
    static let interval: Milliseconds = 1_000

    let eventLoop: any EventLoop
    private var connections: [ObjectIdentifier: EngineIOConnection] = [:]
    private var timer: RepeatedTask?
    private var stallGuard = StallGuard()

    init(eventLoop: any EventLoop) {
        self.eventLoop = eventLoop
    }

    func add(_ connection: EngineIOConnection) {
        self.connections[ObjectIdentifier(connection)] = connection
        guard self.timer == nil else { return }
        self.stallGuard = StallGuard()
        let bound = NIOLoopBound(self, eventLoop: self.eventLoop)
        let interval = TimeAmount.milliseconds(Self.interval)
        self.timer = self.eventLoop.scheduleRepeatedTask(initialDelay: interval, delay: interval) { _ in
            bound.value.tick()
        }
    }

    func remove(_ connection: EngineIOConnection) {
        self.connections[ObjectIdentifier(connection)] = nil
        guard self.connections.isEmpty else { return }
        self.timer?.cancel()
        self.timer = nil
    }

    private func tick() {
        let now = systemUptime()
        guard self.stallGuard.admitsRound(at: now) else { return }
        for connection in self.connections.values where connection.isDue(now) { connection.tick(now) }
    }
}

/// Answers a polling request from the session's event loop.
struct EngineIOExchange: Sendable {
    let carrier: EngineIOCarrier
    private let exchange: LoopReference<HTTPExchange>

    /// Called on the exchange's loop.
    init(_ exchange: HTTPExchange, carrier: EngineIOCarrier) {
        self.carrier = carrier
        self.exchange = LoopReference(exchange, eventLoop: exchange.eventLoop)
    }

    func respond(_ response: EngineIOResponse) {
        self.exchange.call { exchange in
            var headers: HTTPHeaders = ["cache-control": "no-store"]
            if let type = response.contentType { headers.add(name: "content-type", value: type.rawValue) }
            exchange.respond(
                HTTPResponseStatus(statusCode: response.status), headers: headers,
                body: ByteBuffer(bytes: response.body))
        }
    }
}

/// The request that opens a connection.
package struct EngineIOOpening: Sendable {
    let head: HTTPRequestHead
    let query: EngineIOQuery
}
