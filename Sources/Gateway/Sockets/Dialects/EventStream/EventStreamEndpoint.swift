// Carillon · EventStreamEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import NIOCore
import NIOHTTP1
import Protocols

/// Server-Sent Events at `/v1/stream`.
package struct EventStreamEndpoint: TransportEndpoint {
    /// The path.
    package static let path = "/v1/stream"

    private let hub: SocketHub
    private let backend: any SocketBackend

    package init(hub: SocketHub, backend: any SocketBackend) {
        self.hub = hub
        self.backend = backend
    }

    package func claims(_ path: Substring) -> Bool { path == Self.path }

    package func admit(_ head: HTTPRequestHead, from address: SocketAddress?) async throws -> WebSocketAdmission {
        throw self.refusal(.badRequest, reason: "this path streams events; WebSockets begin at \(NativeEndpoint.path)")
    }

    package func handle(_ exchange: HTTPExchange) {
        guard exchange.head.method == .GET else {
            var refusal = TransportRefusal.problem(.methodNotAllowed, "a stream begins with GET")
            refusal.headers.add(name: "allow", value: "GET")
            return exchange.respond(refusal)
        }
        let resumed = exchange.head.headers.first(name: "last-event-id")
        let since: Int64?
        var credentials = SocketCredentials(exchange.head.headers)
        do throws(TransportRefusal) {
            let query = try RequestQuery(of: exchange.head)
            since = try query.version("last_event_id", orHeader: resumed)
            // A browser's EventSource sends no header of its own.
            credentials.ticket = query["ticket"]
        } catch {
            return exchange.respond(error)
        }
        let backend = self.backend
        let presented = credentials
        let identity = exchange.eventLoop.makeFutureWithTask { try await backend.authenticate(presented) }
        let bound = NIOLoopBound((exchange, self.hub), eventLoop: exchange.eventLoop)
        identity.whenComplete { result in
            let (exchange, hub) = bound.value
            switch result {
            case .success(.some(let identity)): Self.begin(exchange, hub, identity, since: since)
            case .success(nil): exchange.respond(.problem(.unauthorized, "a bearer token or a ticket is required"))
            case .failure(let refusal as SocketRefusal):
                SocketMetrics.refused.increment()
                exchange.respond(.problem(HTTPResponseStatus(statusCode: refusal.status), refusal.reason))
            case .failure: exchange.respond(.problem(.serviceUnavailable, "try again later"))
            }
        }
    }

    private static func begin(_ exchange: HTTPExchange, _ hub: SocketHub, _ identity: SocketIdentity, since: Int64?) {
        guard let shard = hub.shard(on: exchange.eventLoop) else {
            return exchange.respond(.problem(.serviceUnavailable, "try again later"))
        }
        guard exchange.countStream() else {
            return exchange.respond(HTTPExchange.tooManyStreams)
        }
        let session = SocketSession(connection: RandomName.make(), identity: identity, since: since, shard: shard)
        EventStreamWire(session: session, exchange: exchange).begin()
    }
}

extension RequestQuery {
    /// The query of a request.
    ///
    /// - Throws: A refusal with 400 that names what is wrong with it.
    init(of head: HTTPRequestHead) throws(TransportRefusal) {
        do throws(QueryFault) {
            try self.init(target: head.uri)
        } catch {
            throw .problem(.badRequest, error.description)
        }
    }

    /// The inbox version that a client has; an empty value says that it has none.
    ///
    /// - Parameter header: `Last-Event-ID`, which counts before the query.
    /// - Throws: A refusal with 400 that names what is wrong with it.
    func version(_ name: String, orHeader header: String? = nil) throws(TransportRefusal) -> Int64? {
        guard let text = header ?? self[name], !text.isEmpty else { return nil }
        guard let version = Int64(text), version >= 0 else {
            let field = header == nil ? name : "Last-Event-ID"
            throw .problem(.badRequest, "\(field): must be a whole number from 0")
        }
        return version
    }
}
