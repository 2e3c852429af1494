// Carillon · SignalREndpoint+Requests.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import NIOCore
import NIOHTTP1
import Protocols

/// What asks for no WebSocket: negotiation, Server-Sent Events, polls, messages.
extension SignalREndpoint {
    package func handle(_ exchange: HTTPExchange) {
        let head = exchange.head
        let headers = self.corsHeaders(head)
        let query: RequestQuery
        do throws(TransportRefusal) {
            query = try self.query(head)
        } catch {
            var refusal = error
            refusal.headers.add(contentsOf: headers)
            return exchange.respond(refusal)
        }
        let connect = SignalRConnectRequest(
            query: query, authorization: head.headers.first(name: "authorization"))
        let caller = SignalRCaller(accessToken: connect.accessToken, head: head, address: exchange.address)
        let hub = self.hub
        let permit = exchange.eventLoop.makeFutureWithTask { try await hub.admit(caller) }
        let bound = NIOLoopBound(exchange, eventLoop: exchange.eventLoop)
        permit.whenComplete { result in
            let exchange = bound.value
            switch result {
            case .success(let permit) where self.isNegotiation(exchange.path):
                self.negotiate(exchange, query, permit, headers)
            case .success(let permit): self.serve(exchange, id: connect.id, permit, headers)
            case .failure(var refusal as TransportRefusal):
                refusal.headers.add(contentsOf: headers)
                exchange.respond(refusal)
            case .failure:
                SignalRReply.send(.refusal(503, "Try again later."), headers, to: exchange)
            }
        }
    }

    // MARK: Origins

    /// What lets a page of another origin read the answer.
    private func corsHeaders(_ head: HTTPRequestHead) -> HTTPHeaders {
        let allowed = self.configuration.allowedOrigins
        guard !allowed.isEmpty else { return [:] }
        var headers: HTTPHeaders = ["vary": "Origin"]
        guard let origin = head.headers.first(name: "origin"), allowed.contains(origin) || allowed.contains("*") else {
            return headers
        }
        // With credentials, which clients send unless told otherwise, the origin is named exactly.
        headers.add(name: "access-control-allow-origin", value: origin)
        headers.add(name: "access-control-allow-credentials", value: "true")
        return headers
    }

    // MARK: Requests

    private func negotiate(
        _ exchange: HTTPExchange, _ query: RequestQuery, _ permit: SignalRPermit, _ headers: HTTPHeaders
    ) {
        let connectionID = self.makeID()
        let negotiation = SignalRNegotiation(
            method: exchange.head.method.rawValue,
            query: query,
            transports: self.configuration.transports,
            connectionID: connectionID,
            connectionToken: self.makeID(),
            allowsStatefulReconnect: self.configuration.allowsStatefulReconnect
        )
        if let offer = negotiation.offer {
            _ = self.node.loop(exchange.eventLoop)
            let isTaken = self.node.directory.add(
                SignalRDirectory.Offer(
                    connectionID: connectionID,
                    owner: permit.owner,
                    usesStatefulReconnect: offer.usesStatefulReconnect
                ),
                id: offer.id,
                until: SignalRLoop.now + SignalRNegotiation.unusedLimit
            )
            guard isTaken else {
                SignalRMetrics.refused.increment()
                return SignalRReply.send(.refusal(503, "Too many connections."), headers, to: exchange)
            }
        }
        SignalRReply.send(negotiation.response, headers, to: exchange)
    }

    private func serve(_ exchange: HTTPExchange, id: String?, _ permit: SignalRPermit, _ headers: HTTPHeaders) {
        let request = SignalRHubRequest(
            method: exchange.head.method.rawValue,
            id: id,
            wantsWebSocket: false,
            accept: exchange.head.headers[canonicalForm: "accept"].joined(separator: ",")
        )
        // A GET is a stream or a poll.
        guard exchange.head.method != .GET || exchange.countStream() else {
            var refusal = HTTPExchange.tooManyStreams
            refusal.headers.add(contentsOf: headers)
            return exchange.respond(refusal)
        }
        let transports = self.configuration.transports
        let number = self.node.directory.nextNumber()
        let reply = SignalRReply(exchange, headers: headers)
        switch id.flatMap({ self.node.directory.entry($0, owner: permit.owner) }) {
        case nil: self.refuse(request.verdict(nil, transports: transports), reply)
        case .offer(let offer) where exchange.head.method == .POST && transports.contains(.longPolling):
            // One client says its first words before its first poll.
            guard let session = self.begin(exchange, id, offer, .longPolling, permit, reply) else { return }
            let body = Array(exchange.body.readableBytesView)
            if let response = session.serve(request, body, number: number, reply: reply) { reply.send(response) }
        case .offer(let offer):
            let standing = SignalRHubRequest.Standing(transport: nil, isAttached: false, canReattach: false)
            switch request.verdict(standing, transports: transports) {
            case .attach(.serverSentEvents):
                guard let session = self.begin(exchange, id, offer, .serverSentEvents, permit, reply) else { return }
                session.stream(to: exchange, headers: headers)
            case .poll:
                guard let session = self.begin(exchange, id, offer, .longPolling, permit, reply) else { return }
                session.poll(number, reply)
            case let verdict: self.refuse(verdict, reply)
            }
        case .connection(let session, _):
            exchange.onAbort = { session.call { $0.pollLost(number) } }
            let body = Array(exchange.body.readableBytesView)
            session.ask { session in
                session.renew(permit)
                return session.serve(request, body, number: number, reply: reply)
            }.whenComplete { result in
                switch result {
                case .success(let response): if let response { reply.send(response) }
                case .failure: reply.send(.refusal(404, "No Connection with that ID"))
                }
            }
        }
    }

    private func begin(
        _ exchange: HTTPExchange,
        _ id: String?,
        _ offer: SignalRDirectory.Offer,
        _ transport: SignalRTransport,
        _ permit: SignalRPermit,
        _ reply: SignalRReply
    ) -> SignalRSession? {
        guard let id else { return nil }
        let session = self.node.begin(
            id: id,
            offer: offer,
            transport: transport,
            permit: permit,
            on: exchange.eventLoop
        )
        if session == nil { reply.send(.refusal(503, "Try again later.")) }
        return session
    }

    private func refuse(_ verdict: SignalRHubRequest.Verdict, _ reply: SignalRReply) {
        if case .refuse(let response) = verdict { return reply.send(response) }
        // A WebSocket alone can be created or attached here, and this is none.
        reply.send(.refusal(400))
    }
}

extension SignalRSession {
    /// Begins the answer that carries all that is written from now on.
    func stream(to exchange: HTTPExchange, headers: HTTPHeaders) {
        var headers = headers
        headers.add(name: "content-type", value: SignalREventStream.contentType)
        headers.add(name: "cache-control", value: SignalRResponse.cacheControl)
        // Proxies that buffer would hold events back.
        headers.add(name: "x-accel-buffering", value: "no")
        self.link = .eventStream(exchange)
        let reference = LoopReference(self, eventLoop: self.eventLoop)
        exchange.onAbort = { reference.call { $0.transportLost() } }
        exchange.begin(.ok, headers: headers)
        exchange.write(ByteBuffer(bytes: SignalREventStream.opening))
    }
}
