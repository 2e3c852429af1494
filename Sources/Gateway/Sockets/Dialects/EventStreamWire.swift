// Carillon · EventStreamWire.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import NIOHTTP1
import Protocols

/// Server-Sent Events (HTML Living Standard, section 9.2) with the native dialect's objects as
/// data.
///
/// An event's id is the inbox version that the client has reached with it, so it can resume there.
/// A client that sends its token in a header reconnects on its own; a browser's `EventSource` has a
/// one-use ticket in its URL, so its page must open a new one. Clients confirm receipt only over
/// REST.
final class EventStreamWire: SocketWire {
    /// The reconnect delay of clients.
    private static let retry: Milliseconds = 2_000
    /// The delay of a client whose user has too many connections.
    ///
    /// An event stream cannot forbid reconnecting. With a short delay, clients over the limit would
    /// close each other in turn.
    private static let excessRetry: Milliseconds = 3_600_000

    let dialect = Dialect.sse
    let provesReceipt = false
    private let session: SocketSession
    private let exchange: HTTPExchange
    private var outbound = ByteBuffer()
    private var lastSent: NIODeadline

    init(session: SocketSession, exchange: HTTPExchange) {
        self.session = session
        self.exchange = exchange
        self.lastSent = .now()
    }

    /// Sends the head and begins the session.
    func begin() {
        self.exchange.onAbort = { self.session.end() }
        self.exchange.begin(
            .ok,
            headers: [
                "content-type": EventStreamEncoder.contentType, "cache-control": "no-store",
                // Keeps proxies from buffering events.
                "x-accel-buffering": "no",
            ]
        )
        self.session.begin(self)
    }

    private func send(_ name: StaticString, _ json: [UInt8], version: Int64? = nil) {
        self.outbound.writeBytes(EventStreamEncoder.event(data: json, name: name, id: version))
    }

    func welcome(connection: String, version: Int64) {
        let interval = self.session.shard.configuration.pingInterval.inMilliseconds
        let json = NativeDialect.welcome(connection: connection, pingInterval: interval, version: version)
        self.outbound.writeBytes(EventStreamEncoder.event(retryMilliseconds: Self.retry))
        self.send("welcome", json)
    }

    func sync(_ snapshot: InboxSnapshot, answering reference: [UInt8]?) {
        self.send("sync", NativeDialect.sync(snapshot), version: snapshot.version)
    }

    func change(_ change: LoopChange) {
        let frame = change.encoded(for: .sse) { change in
            let json = NativeDialect.change(change)
            let version = change.version > 0 ? change.version : nil
            return ByteBuffer(bytes: EventStreamEncoder.event(data: json, name: change.name, id: version))
        }
        self.outbound.writeImmutableBuffer(frame)
    }

    func answer(_ answer: SocketAnswer, to reference: [UInt8]?) {
        switch answer {
        case .error(let reason), .busy(let reason):
            self.send("error", NativeDialect.error(reason, reference: nil))
        case .done, .read, .unread: break
        }
    }

    func requestProof(_ sequence: UInt64) {}

    func flush() {
        guard self.outbound.readableBytes > 0 else { return }
        self.exchange.write(self.outbound)
        self.outbound = ByteBuffer()
        self.lastSent = .now()
        if self.exchange.backlog > self.session.shard.configuration.maximumOutbound { self.session.closeAsTooSlow() }
    }

    func close(_ end: SocketEnd) {
        guard end != .tooSlow else { return self.drop() }
        let delay =
            switch end {
            case .restart(let reconnectAfter): reconnectAfter.inMilliseconds
            case .tooManyConnections: Self.excessRetry
            default: Self.retry
            }
        let (code, reason) = end.webSocketClose
        let json = NativeDialect.goodbye(code, reason: reason, reconnectAfter: delay)
        self.outbound.writeBytes(EventStreamEncoder.event(retryMilliseconds: delay))
        self.send("goodbye", json)
        self.flush()
        self.drop()
    }

    func drop() {
        self.exchange.end()
        self.session.end()
    }

    func tick(now: NIODeadline) {
        guard now - self.lastSent > TimeAmount(self.session.shard.configuration.pingInterval) else { return }
        self.outbound.writeBytes(EventStreamEncoder.comment())
        self.flush()
    }
}

extension NodeFrame {
    /// The event name in the native dialect.
    var name: StaticString {
        switch self.kind {
        case .notification: "notification"
        case .read: "read"
        case .deleted: "deleted"
        case .event: "event"
        }
    }
}

/// Server-Sent Events at `/v1/stream`.
package struct EventStreamEndpoint: TransportEndpoint {
    package static let path = "/v1/stream"

    private let hub: SocketHub

    package init(hub: SocketHub) {
        self.hub = hub
    }

    package func claims(_ path: Substring) -> Bool { path == Self.path }

    package func admit(_ head: HTTPRequestHead) async throws -> WebSocketAdmission {
        throw self.refusal(.badRequest, reason: "this path streams events; open WebSockets at \(NativeEndpoint.path)")
    }

    package func handle(_ exchange: HTTPExchange) {
        guard exchange.head.method == .GET else { return exchange.respond(.onlyGet("open a stream with GET")) }
        let resumed = exchange.head.headers.first(name: "last-event-id")
        let since: Int64?
        var credentials = PresentedCredentials(ofSocket: exchange.head.headers)
        do throws(TransportRefusal) {
            let query = try RequestQuery(of: exchange.head)
            since = try query.version("last_event_id", orHeader: resumed)
            // A browser's EventSource cannot set headers.
            credentials.ticket = query["ticket"]
        } catch {
            return exchange.respond(error)
        }
        let (hub, presented) = (self.hub, credentials)
        let identity = exchange.eventLoop.makeFutureWithTask {
            try await hub.authenticate { try await $0.authenticate(presented) }
        }
        let bound = NIOLoopBound(exchange, eventLoop: exchange.eventLoop)
        identity.whenComplete { result in
            let exchange = bound.value
            switch result {
            case .success(.some(let identity)): Self.begin(exchange, hub, identity, since: since)
            case .success(nil):
                let refusal = SocketRefusal(status: 401, reason: "a bearer token or a ticket is required")
                exchange.respond(refusal.counted())
            case .failure(let refusal as TransportRefusal): exchange.respond(refusal)
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
    /// Reads the query of a request.
    ///
    /// - Throws: A refusal with 400 that names the fault.
    init(of head: HTTPRequestHead) throws(TransportRefusal) {
        do throws(QueryFault) {
            try self.init(target: head.uri)
        } catch {
            throw .problem(.badRequest, error.description)
        }
    }

    /// The inbox version that a client has; nil if the value is empty.
    ///
    /// - Parameter header: `Last-Event-ID`, which takes precedence over the query.
    /// - Throws: A refusal with 400 that names the fault.
    func version(_ name: String, orHeader header: String? = nil) throws(TransportRefusal) -> Int64? {
        guard let text = header ?? self[name], !text.isEmpty else { return nil }
        guard let version = Int64(text), version >= 0 else {
            let field = header == nil ? name : "Last-Event-ID"
            throw .problem(.badRequest, "\(field): must be a whole number from 0")
        }
        return version
    }
}
