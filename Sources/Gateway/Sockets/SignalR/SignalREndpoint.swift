// Carillon · SignalREndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import NIOCore
import NIOHTTP1
import Protocols

/// A SignalR hub over negotiation, WebSockets, Server-Sent Events and long polling.
package struct SignalREndpoint: TransportEndpoint {
    let hub: any SignalRHub
    let node: SignalRNode
    /// Makes ids that cannot be guessed.
    let makeID: @Sendable () -> String
    // Stored, because the path of every request to the node is compared with them.
    private let negotiation: String
    private let pathWithSlash: String

    package init(
        hub: any SignalRHub,
        configuration: SignalREndpointConfiguration,
        makeID: @escaping @Sendable () -> String,
        now: @escaping @Sendable () -> Milliseconds = systemUptime
    ) {
        self.hub = hub
        self.node = SignalRNode(configuration: configuration, now: now)
        self.makeID = makeID
        self.negotiation = "\(configuration.path)/negotiate"
        self.pathWithSlash = "\(configuration.path)/"
    }

    var configuration: SignalREndpointConfiguration { self.node.configuration }

    package var maximumBody: Int { self.configuration.webSocket.maximumMessage }

    /// Clients send credentials by default; only the token identifies the caller.
    package var allowsCredentials: Bool { true }

    package func claims(_ path: Substring) -> Bool {
        path == self.configuration.path || self.isNegotiation(path) || path == self.pathWithSlash
    }

    func isNegotiation(_ path: Substring) -> Bool { path == self.negotiation }

    package func refusal(_ status: HTTPResponseStatus, reason: String) -> TransportRefusal {
        TransportRefusal(status, headers: ["content-type": SignalRResponse.plainText], body: Array(reason.utf8))
    }

    /// Reads a request's query; names ignore case, as in ASP.NET.
    ///
    /// - Throws: ``TransportRefusal`` 400 if it cannot be read.
    func query(_ head: HTTPRequestHead) throws(TransportRefusal) -> RequestQuery {
        do throws(QueryFault) {
            return try RequestQuery(target: head.uri, ignoresCase: true)
        } catch {
            throw self.refusal(.badRequest, reason: error.description)
        }
    }

    private func refusal(_ response: SignalRResponse) -> TransportRefusal {
        TransportRefusal(
            HTTPResponseStatus(statusCode: response.status),
            headers: ["content-type": response.contentType],
            body: response.body
        )
    }

    // MARK: WebSockets

    package func admit(_ head: HTTPRequestHead) async throws -> WebSocketAdmission {
        let caller = SignalRConnectRequest(
            query: try self.query(head), authorization: head.headers.first(name: "authorization"))
        let permit = try await self.hub.admit(SignalRCaller(accessToken: caller.accessToken, head: head))
        guard let id = caller.id else { return try self.create(nil, permit) }
        switch self.node.directory.entry(id, owner: permit.owner) {
        // Only a fresh id: later, the client may have used the offer at another node.
        case .offer(let offer) where self.isFresh(id): return self.begin(id, offer, permit)
        case .offer: throw self.refusal(SignalRResponse.unknownConnection)
        case .connection(let connection, _):
            if let standing = try? await connection.ask({ $0.standing }).get() {
                return try await self.reattach(id, connection, standing, permit)
            }
        case nil: break
        }
        // Reached for an unknown id, and for a connection that has just ended.
        guard self.acceptsForeign(id) else { throw self.refusal(SignalRResponse.unknownConnection) }
        return try self.create(id, permit)
    }

    /// Admits a new socket of a connection that was opened before.
    private func reattach(
        _ id: String,
        _ connection: LoopReference<SignalRConnection>,
        _ standing: SignalRHubRequest.Standing,
        _ permit: SignalRPermit
    ) async throws -> WebSocketAdmission {
        let request = SignalRHubRequest(method: "GET", id: id, wantsWebSocket: true, accept: nil)
        switch request.verdict(standing) {
        case .reattach:
            return self.admission { eventLoop in
                SignalRSocket(
                    number: self.node.directory.nextNumber(),
                    connection: connection,
                    eventLoop: eventLoop,
                    renewal: permit
                )
            }
        case .replace where !SignalRIssueTime.isStamped(id):
            // Some clients do not negotiate again when they have lost a socket; the gateway may
            // notice the loss later. Clients with stateful reconnect do negotiate.
            try? await connection.ask { $0.drop() }.get()
            return try self.create(id, permit)
        case .refuse(let response): throw self.refusal(response)
        // A lost connection with a stamped id, or a verdict for other requests.
        case .replace, .create, .attach, .poll, .send, .delete: throw self.refusal(.conflict, reason: "")
        }
    }

    /// Admits a connection that was not negotiated here, or whose negotiation is used up.
    ///
    /// - Parameter foreign: the id that the client brings; nil if there was no negotiation.
    private func create(_ foreign: String?, _ permit: SignalRPermit) throws(TransportRefusal) -> WebSocketAdmission {
        guard self.node.directory.hasRoom(for: permit.owner) else {
            SignalRMetrics.refused.increment()
            throw self.refusal(Self.tooManyOpenings)
        }
        let offer = SignalRDirectory.Offer(
            owner: permit.owner,
            // A client asks for the version with stateful reconnect only if another node has
            // offered it.
            usesStatefulReconnect: foreign != nil && self.configuration.allowsStatefulReconnect
        )
        // Keep the id, so the client can reconnect with it, unless it is taken here.
        let id = foreign.flatMap { self.node.directory.isFree($0) ? $0 : nil }
        return self.begin(id ?? self.makeID(), offer, permit)
    }

    /// Whether another node may have issued an id that this one does not know.
    private func acceptsForeign(_ id: String) -> Bool {
        id.utf8.count <= 128 && !self.node.directory.hasEnded(id) && self.isFresh(id)
    }

    /// Whether a client may still be about to open its first WebSocket with an id.
    ///
    /// A client that resumes a lost connection must get 404, or it would try again without end.
    private func isFresh(_ id: String) -> Bool {
        SignalRIssueTime.isFresh(id, at: self.configuration.wallClock().milliseconds)
    }

    /// Makes the secret id of a negotiated connection, with its issue time if the client may resume
    /// the connection.
    private func makeToken(_ query: RequestQuery) -> String {
        let id = self.makeID()
        guard SignalRNegotiation.asksForStatefulReconnect(query) else { return id }
        return SignalRIssueTime.stamp(id, at: self.configuration.wallClock().milliseconds)
    }

    private func begin(_ id: String, _ offer: SignalRDirectory.Offer, _ permit: SignalRPermit) -> WebSocketAdmission {
        self.admission { eventLoop in
            guard
                let connection = self.node.begin(
                    id: id,
                    offer: offer,
                    transport: .webSockets,
                    permit: permit,
                    on: eventLoop
                )
            else { return nil }
            return SignalRSocket(
                number: self.node.directory.nextNumber(),
                connection: LoopReference(connection, eventLoop: eventLoop),
                eventLoop: eventLoop
            )
        }
    }

    private func admission(
        _ open: @escaping @Sendable (any EventLoop) -> (any WebSocketApplication)?
    ) -> WebSocketAdmission {
        WebSocketAdmission(limits: self.configuration.webSocket, open: open)
    }
}

/// Requests other than WebSockets: negotiation, Server-Sent Events, polls, messages.
extension SignalREndpoint {
    package func handle(_ exchange: HTTPExchange) {
        let head = exchange.head
        let query: RequestQuery
        do throws(TransportRefusal) {
            query = try self.query(head)
        } catch {
            return exchange.respond(error)
        }
        let connect = SignalRConnectRequest(
            query: query, authorization: head.headers.first(name: "authorization"))
        let caller = SignalRCaller(accessToken: connect.accessToken, head: head)
        let hub = self.hub
        let permit = exchange.eventLoop.makeFutureWithTask { try await hub.admit(caller) }
        let bound = NIOLoopBound(exchange, eventLoop: exchange.eventLoop)
        permit.whenComplete { result in
            let exchange = bound.value
            switch result {
            case .success(let permit) where self.isNegotiation(exchange.path):
                self.negotiate(exchange, query, permit)
            case .success(let permit): self.serve(exchange, connect, permit)
            case .failure(let refusal as TransportRefusal): exchange.respond(refusal)
            case .failure: exchange.respond(.refusal(503, "Try again later."))
            }
        }
    }

    // MARK: Requests

    private static let tooManyOpenings = SignalRResponse.refusal(429, "Too many connections without a handshake.")

    private func negotiate(_ exchange: HTTPExchange, _ query: RequestQuery, _ permit: SignalRPermit) {
        let negotiation = SignalRNegotiation(
            method: exchange.head.method.rawValue,
            query: query,
            connectionID: self.makeID(),
            connectionToken: self.makeToken(query),
            allowsStatefulReconnect: self.configuration.allowsStatefulReconnect
        )
        if let offer = negotiation.offer {
            _ = self.node.loop(exchange.eventLoop)
            guard self.node.directory.hasRoom(for: permit.owner) else {
                SignalRMetrics.refused.increment()
                return exchange.respond(Self.tooManyOpenings)
            }
            let isAdded = self.node.directory.add(
                SignalRDirectory.Offer(
                    owner: permit.owner,
                    usesStatefulReconnect: offer.usesStatefulReconnect
                ),
                id: offer.id,
                until: self.node.now() + SignalRNegotiation.unusedLimit
            )
            guard isAdded else {
                SignalRMetrics.refused.increment()
                return exchange.respond(.refusal(503, "Too many connections."))
            }
        }
        exchange.respond(negotiation.response)
    }

    private func serve(_ exchange: HTTPExchange, _ connect: SignalRConnectRequest, _ permit: SignalRPermit) {
        let id = connect.id
        let request = SignalRHubRequest(
            method: exchange.head.method.rawValue,
            id: id,
            wantsWebSocket: false,
            accept: exchange.head.headers[canonicalForm: "accept"].joined(separator: ","),
            mark: connect.mark
        )
        // A GET is a stream or a poll.
        guard exchange.head.method != .GET || exchange.countStream() else {
            return exchange.respond(HTTPExchange.tooManyStreams)
        }
        let number = self.node.directory.nextNumber()
        let reply = LoopReference(exchange, eventLoop: exchange.eventLoop)
        switch id.flatMap({ self.node.directory.entry($0, owner: permit.owner) }) {
        case nil: self.refuse(request.verdict(nil), exchange)
        case .offer(let offer) where exchange.head.method == .POST:
            // Some clients send their first messages before their first poll.
            guard let connection = self.begin(exchange, id, offer, .longPolling, permit) else { return }
            let body = Array(exchange.body.readableBytesView)
            if let response = connection.serve(request, body, number: number, reply: reply) {
                exchange.respond(response)
            }
        case .offer(let offer):
            let standing = SignalRHubRequest.Standing(transport: nil, isAttached: false, canReattach: false)
            switch request.verdict(standing) {
            case .attach(.serverSentEvents):
                guard let connection = self.begin(exchange, id, offer, .serverSentEvents, permit) else { return }
                connection.stream(to: exchange)
            case .poll:
                guard let connection = self.begin(exchange, id, offer, .longPolling, permit) else { return }
                connection.poll(number, mark: request.mark, reply)
            case let verdict: self.refuse(verdict, exchange)
            }
        case .connection(let connection, _):
            exchange.onAbort = { connection.call { $0.pollLost(number) } }
            let body = Array(exchange.body.readableBytesView)
            connection.call { connection in
                connection.renew(permit)
                let response = connection.serve(request, body, number: number, reply: reply)
                if let response { reply.call { $0.respond(response) } }
            } ifGone: {
                reply.call { $0.respond(.unknownConnection) }
            }
        }
    }

    private func begin(
        _ exchange: HTTPExchange,
        _ id: String?,
        _ offer: SignalRDirectory.Offer,
        _ transport: SignalRTransport,
        _ permit: SignalRPermit
    ) -> SignalRConnection? {
        guard let id else { return nil }
        let connection = self.node.begin(
            id: id,
            offer: offer,
            transport: transport,
            permit: permit,
            on: exchange.eventLoop
        )
        if connection == nil { exchange.respond(.refusal(503, "Try again later.")) }
        return connection
    }

    private func refuse(_ verdict: SignalRHubRequest.Verdict, _ exchange: HTTPExchange) {
        if case .refuse(let response) = verdict { return exchange.respond(response) }
        // The other verdicts are for WebSockets only.
        exchange.respond(.refusal(400))
    }
}

extension SignalRConnection {
    /// Begins the event stream that carries everything written from now on.
    func stream(to exchange: HTTPExchange) {
        let headers: HTTPHeaders = [
            "content-type": EventStreamEncoder.contentType,
            "cache-control": SignalRResponse.cacheControl,
            // Keeps proxies from buffering events.
            "x-accel-buffering": "no",
        ]
        self.link = .eventStream(exchange)
        let reference = LoopReference(self, eventLoop: self.eventLoop)
        exchange.onAbort = { reference.call { $0.transportLost() } }
        exchange.begin(.ok, headers: headers)
        // Some browsers report a stream as open only after its first bytes.
        exchange.write(ByteBuffer(bytes: EventStreamEncoder.comment(lineEnd: .carriageReturnLineFeed)))
    }
}

extension HTTPExchange {
    func respond(_ response: SignalRResponse) {
        var headers: HTTPHeaders = ["cache-control": SignalRResponse.cacheControl]
        if !response.body.isEmpty { headers.add(name: "content-type", value: response.contentType) }
        if response.status == 405 { headers.add(name: "allow", value: "GET, POST, DELETE, OPTIONS") }
        self.respond(
            HTTPResponseStatus(statusCode: response.status),
            headers: headers,
            body: ByteBuffer(bytes: response.body)
        )
    }
}
