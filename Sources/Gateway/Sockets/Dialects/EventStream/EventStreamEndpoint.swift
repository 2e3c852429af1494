// Carillon · EventStreamEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import EventStream
import Model
package import NIOCore
package import NIOHTTP1
package import Transports

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
        do throws(TransportRefusal) {
            since = try Self.version(resumed ?? RequestQuery(exchange.head.uri)["last_event_id"])
        } catch {
            return exchange.respond(error)
        }
        var credentials = SocketCredentials(exchange.head.headers)
        // A browser's EventSource sends no header of its own.
        credentials.ticket = RequestQuery(exchange.head.uri)["ticket"]
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

    private static func version(_ text: String?) throws(TransportRefusal) -> Int64? {
        guard let text, !text.isEmpty else { return nil }
        guard let version = Int64(text), version >= 0 else {
            throw .problem(.badRequest, "Last-Event-ID must be a whole number from 0")
        }
        return version
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
