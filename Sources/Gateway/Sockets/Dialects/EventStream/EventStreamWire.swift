// Carillon · EventStreamWire.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import NIOHTTP1
import Protocols

/// Server-Sent Events (HTML Living Standard, section 9.2): the native dialect's objects as the data of events.
///
/// An event's id is the inbox version that the client has with it, so that a client resumes from it. One that sends its token
/// in a header comes back by itself; a browser's `EventSource` has a ticket in its URL, which is good once, so its page opens
/// a new one. Nothing proves receipt here but the client's own word over REST.
final class EventStreamWire: SocketWire {
    /// How long a client waits before it comes back, in milliseconds.
    private static let retry = 2_000

    let dialect = Dialect.sse
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
                // Proxies that buffer would hold events back.
                "x-accel-buffering": "no",
            ]
        )
        self.session.begin(self)
    }

    private func send(_ name: String?, _ json: [UInt8], version: Int64?) {
        self.outbound.writeBytes(Self.event(name, json, version: version))
    }

    private static func event(_ name: String?, _ json: [UInt8], version: Int64?) -> [UInt8] {
        // Names and ids are ours and fit on a line, so that this cannot fail.
        (try? EventStreamEncoder.event(data: json, name: name, id: version.map { String($0) })) ?? []
    }

    func welcome(connection: String, version: Int64) {
        let interval = self.session.shard.configuration.pingInterval.inMicroseconds / 1_000
        let json = NativeDialect.welcome(connection: connection, pingInterval: interval, version: version)
        self.outbound.writeBytes((try? EventStreamEncoder.event(data: nil, retryMilliseconds: Self.retry)) ?? [])
        self.send("welcome", json, version: nil)
    }

    func sync(_ snapshot: InboxSnapshot, answering reference: [UInt8]?) {
        self.send("sync", NativeDialect.sync(snapshot), version: snapshot.version)
    }

    func change(_ change: LoopChange) {
        let frame = change.frame(.sse) { change in
            let version = change.version > 0 ? change.version : nil
            return ByteBuffer(bytes: Self.event(change.name, NativeDialect.change(change), version: version))
        }
        self.outbound.writeImmutableBuffer(frame)
    }

    func answer(_ answer: SocketAnswer, to reference: [UInt8]?) {
        switch answer {
        case .error(let reason), .busy(let reason):
            self.send("error", NativeDialect.error(reason, reference: nil), version: nil)
        case .done, .read, .unread: break
        }
    }

    func requestProof(_ sequence: UInt64) {}

    func flush() {
        guard self.outbound.readableBytes > 0 else { return }
        self.exchange.write(self.outbound)
        self.outbound = ByteBuffer()
        self.lastSent = .now()
        if self.exchange.backlog > self.session.shard.configuration.maximumOutbound { self.session.isTooSlow() }
    }

    func close(_ end: SocketEnd) {
        guard end != .tooSlow else { return self.drop() }
        var delay: Int64 = Int64(Self.retry)
        if case .restart(let reconnectAfter) = end { delay = reconnectAfter.inMicroseconds / 1_000 }
        let (code, reason) = end.webSocketClose
        let json = NativeDialect.goodbye(code, reason: reason, reconnectAfter: delay)
        self.outbound.writeBytes((try? EventStreamEncoder.event(data: nil, retryMilliseconds: Int(delay))) ?? [])
        self.send("goodbye", json, version: nil)
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

extension NodeChange {
    /// What the native dialect calls it.
    var name: String {
        switch self.kind {
        case .notification: "notification"
        case .read: "read"
        case .deleted: "deleted"
        case .event: "event"
        }
    }
}
