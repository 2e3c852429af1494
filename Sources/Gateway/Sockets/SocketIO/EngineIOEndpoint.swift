// Carillon · EngineIOEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1
import Protocols

/// Engine.IO 4 at a path, with and without a slash at its end: polling, WebSockets, and the change from one to the other.
///
/// Polling sessions are bounded in number, and so are an address's sessions whose application has not yet said who their
/// client is (``EngineIOConnection/welcome()``); at a bound a new one is answered with 503, and the owner told. Sessions that
/// begin on a WebSocket are not in these numbers, and are reached by their WebSocket only.
package struct EngineIOEndpoint: TransportEndpoint {
    private let path: String
    private let server: EngineIOServer
    private let limits: WebSocketLimits
    private let origins: EngineIOOrigins
    private let isFull: @Sendable () -> Void

    /// - Parameters:
    ///   - path: Without a slash at its end.
    ///   - maximumStrangers: Polling sessions of one address whose clients nobody knows yet.
    ///   - maximumOutbound: Bytes that wait for a slow WebSocket; beyond, the application is told.
    ///   - isFull: Called for each session that is one too many.
    ///   - open: Makes what speaks over a new connection, on the event loop given; nil refuses it with 503.
    package init(
        path: String,
        configuration: EngineIOConfiguration,
        origins: EngineIOOrigins,
        maximumPollingSessions: Int = 100_000,
        maximumStrangers: Int = 1_000,
        maximumOutbound: Int = 1024 * 1024,
        isFull: @escaping @Sendable () -> Void = {},
        open: @escaping @Sendable (EngineIOOpening, any EventLoop) -> (any EngineIOApplication)?
    ) {
        self.path = path
        self.server = EngineIOServer(
            configuration: configuration,
            maximumPollingSessions: maximumPollingSessions,
            maximumStrangers: maximumStrangers,
            open: open
        )
        self.limits = WebSocketLimits(
            maximumMessage: configuration.maximumPayload, maximumOutbound: maximumOutbound)
        self.origins = origins
        self.isFull = isFull
    }

    /// Clients may be told to send them; who calls, a token alone says.
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
            asksForWebSocket: asksForWebSocket,
            origin: head.headers.first(name: "origin").map { Array($0.utf8) }
        ).judge(transportOf: {
            // Those that have taken to a WebSocket refuse polls themselves.
            self.server.directory[$0] == nil ? nil : .polling
        })
    }

    /// Nil if it cannot be read.
    private static func query(_ head: HTTPRequestHead) -> EngineIOQuery? {
        (try? RequestQuery(target: head.uri)).map { EngineIOQuery($0) }
    }

    // MARK: WebSockets

    package func admit(_ head: HTTPRequestHead, from address: SocketAddress?) async throws -> WebSocketAdmission {
        guard let query = Self.query(head) else {
            throw self.refusal(.badRequest, reason: EngineIORefusal.badRequest.message)
        }
        let server = self.server
        switch self.judge(head, query, asksForWebSocket: true) {
        case .refuse(let refusal):
            let response = refusal.upgradeResponse
            throw self.refusal(HTTPResponseStatus(statusCode: response.status), reason: refusal.message)
        case .open:
            let opening = EngineIOOpening(head: head, query: query, address: address)
            return WebSocketAdmission(limits: self.limits) { eventLoop in
                server.open(opening, eventLoop).map {
                    EngineIOWebSocket(server, .open(opening, $0), eventLoop: eventLoop)
                }
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

    /// A session is told of a POST by its head, so that it sees when two overlap; one that is of no
    /// session is refused by its head, so that its body is not kept.
    package func begin(_ exchange: HTTPExchange) {
        let head = exchange.head
        guard head.method == .POST else { return }
        let request = EngineIOExchange(
            exchange, carrier: self.server.carrier(), headers: self.origins.headers(for: head))
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
        let headers = self.origins.headers(for: head)
        // Preflights are answered before.
        if head.method == .OPTIONS { return exchange.respond(.noContent, headers: headers) }
        let request = EngineIOExchange(exchange, carrier: self.server.carrier(), headers: headers)
        guard let query = Self.query(head) else { return request.respond(EngineIORefusal.badRequest.response) }
        let decision = self.judge(head, query, asksForWebSocket: false)
        switch decision {
        case .open, .poll:
            guard exchange.countStream() else {
                var refusal = HTTPExchange.tooManyStreams
                refusal.headers.add(contentsOf: headers)
                return exchange.respond(refusal)
            }
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
            session.call({ $0.poll(request) }, ifGone: { request.respond(EngineIORefusal.unknownSession.response) })
        // A POST is answered by its head.
        case .post: request.respond(EngineIORefusal.unknownSession.response)
        case .takeOver: request.respond(EngineIORefusal.badRequest.response)
        }
    }

    private func open(_ exchange: HTTPExchange, _ request: EngineIOExchange, _ query: EngineIOQuery) {
        let opening = EngineIOOpening(head: exchange.head, query: query, address: exchange.address)
        let eventLoop = exchange.eventLoop
        guard let application = self.server.open(opening, eventLoop) else {
            return exchange.respond(.problem(.serviceUnavailable, "try again later"))
        }
        let stranger = exchange.client
        if let stranger, !self.server.strangers.take(stranger) {
            self.isFull()
            return exchange.respond(
                .problem(.serviceUnavailable, "too many sessions of this address have not joined, try again later"))
        }
        let sid = self.server.makeSid()
        let roster = self.server.roster(on: eventLoop)
        let connection = EngineIOConnection(self.server, roster, sid: sid, polling: request, stranger: stranger)
        guard self.server.directory.add(sid, LoopReference(connection, eventLoop: eventLoop)) else {
            if let stranger { self.server.strangers.giveBack(stranger) }
            self.isFull()
            return exchange.respond(.problem(.serviceUnavailable, "too many sessions, try again later"))
        }
        connection.begin(application)
    }
}
