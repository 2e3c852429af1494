// Carillon · NativeWire.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import NIOHTTP1
import Protocols

/// The native dialect over a WebSocket.
final class NativeWire: SocketWire, WebSocketApplication {
    let dialect = Dialect.native
    private let session: SocketSession
    private var socket: WebSocketHandler?

    init(session: SocketSession) {
        self.session = session
    }

    private var configuration: SocketConfiguration { self.session.shard.configuration }

    // MARK: From the client

    func webSocketOpened(_ socket: WebSocketHandler) {
        self.socket = socket
        self.session.begin(self)
    }

    func webSocketReceived(text: String) {
        guard self.session.admitMessage() else { return }
        do throws(ClientFault) {
            let (message, reference) = try NativeDialect.decode(text)
            self.session.handle(message, reference: reference)
        } catch {
            self.send(NativeDialect.error(error.reason, reference: error.reference))
        }
    }

    func webSocketReceived(binary: [UInt8]) {
        self.socket?.close(.unsupportedData, reason: "binary messages are not part of this protocol")
    }

    func webSocketReceivedPing() -> Bool { self.session.admitMessage() }

    func webSocketProven(_ sequence: UInt64) { self.session.proven(sequence) }
    func webSocketReadComplete() { self.session.flush() }
    func webSocketIsTooSlow() { self.session.closeAsTooSlow() }

    func webSocketClosed() {
        self.session.end()
        self.socket = nil
    }

    // MARK: To the client

    private func send(_ json: [UInt8]) { self.socket?.send(text: json) }

    func welcome(connection: String, version: Int64) {
        let interval = self.configuration.pingInterval.inMilliseconds
        self.send(NativeDialect.welcome(connection: connection, pingInterval: interval, version: version))
    }

    func sync(_ snapshot: InboxSnapshot, answering reference: [UInt8]?) {
        self.send(NativeDialect.sync(snapshot, reference: reference))
    }

    func change(_ change: LoopChange) {
        let frame = change.encoded(for: .native) { WebSocketFraming.text(NativeDialect.change($0)) }
        self.socket?.send(frame: frame, joins: change.joins)
    }

    func answer(_ answer: SocketAnswer, to reference: [UInt8]?) {
        if let json = NativeDialect.answer(answer, to: reference) { self.send(json) }
    }

    func requestProof(_ sequence: UInt64) { self.socket?.requestProof(sequence) }
    func flush() { self.socket?.flush() }
    func drop() { self.socket?.drop() }

    func close(_ end: SocketEnd) {
        if case .restart(let delay) = end {
            let milliseconds = delay.inMilliseconds
            self.send(NativeDialect.goodbye(.serviceRestart, reason: "restart", reconnectAfter: milliseconds))
        }
        let (code, reason) = end.webSocketClose
        self.socket?.close(code, reason: reason)
    }

    func tick(now: NIODeadline) {
        let (interval, timeout) = (self.configuration.pingInterval, self.configuration.pingTimeout)
        guard let socket, socket.isPingDue(now: now, interval: interval, timeout: timeout) else { return }
        self.session.probe()
    }
}

extension SocketEnd {
    /// The close frame for this end (RFC 6455, section 7.4).
    var webSocketClose: (code: WebSocketCloseCode, reason: String) {
        switch self {
        case .unauthorized(let reason): (.unauthorized, reason)
        case .expired: (.unauthorized, "the token has expired")
        case .policyViolation(let reason): (.policyViolation, reason)
        case .tooSlow: (.tooSlow, "you read too slowly")
        case .tooManyConnections: (.tooManyConnections, "too many newer connections")
        case .tryAgainLater: (.tryAgainLater, "try again later")
        case .restart: (.serviceRestart, "restart")
        }
    }
}

/// The native dialect: JSON objects `{"type": …}` in WebSocket text messages, encoded and decoded
/// without a channel.
enum NativeDialect {
    private static let maximumIDs = 1_000
    /// The most bytes of a reference's JSON, which is kept until its call is answered.
    private static let longestReference = 256

    // MARK: From clients

    /// Decodes a message and the reference that its answer repeats, in JSON.
    static func decode(_ text: String) throws(ClientFault) -> (message: ClientMessage, reference: [UInt8]?) {
        let value: JSONValue
        do throws(JSONFault) {
            value = try JSONParser.parse(Array(text.utf8))
        } catch {
            throw ClientFault(reason: "the message is \(error)", reference: nil)
        }
        guard value.object != nil else {
            throw ClientFault(reason: "the message must be a JSON object", reference: nil)
        }
        let reference = value["ref"].map { JSONWriter.bytes(of: $0) }
        if let reference, reference.count > Self.longestReference {
            throw ClientFault(reason: "ref is longer than \(Self.longestReference) bytes of JSON", reference: nil)
        }
        func fault(_ reason: String) -> ClientFault { ClientFault(reason: reason, reference: reference) }
        func ids() throws(ClientFault) -> [NotificationID] {
            guard let texts = value["ids"]?.strings, texts.count <= Self.maximumIDs else {
                throw fault("ids must be an array of 0 to \(Self.maximumIDs) notification ids")
            }
            let ids = texts.compactMap { NotificationID($0) }
            guard ids.count == texts.count else { throw fault("ids must hold notification ids") }
            return ids
        }
        switch value["type"]?.string {
        case "auth":
            guard let token = value["token"]?.string else { throw fault("token must be a string") }
            return (.auth(token: token), reference)
        case "resume":
            guard let version = value["version"]?.integer, version >= 0 else {
                throw fault("version must be a whole number from 0")
            }
            return (.resume(version: version), reference)
        case "read":
            return (.read(ids: value["all"]?.bool == true ? nil : try ids()), reference)
        case "unread": return (.unread, reference)
        case "ack": return (.acknowledge(ids: try ids()), reference)
        case "focus":
            guard let isActive = value["active"]?.bool else { throw fault("active must be true or false") }
            return (.focus(isActive: isActive), reference)
        case nil: throw fault("type is missing")
        default: throw fault("type must be one of auth, resume, read, unread, ack, focus")
        }
    }

    // MARK: To clients

    private static func object(_ type: StaticString, _ write: (inout JSONWriter) -> Void) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("type", "\(type)")
        write(&writer)
        writer.endObject()
        return writer.bytes
    }

    static func welcome(connection: String, pingInterval: Int64, version: Int64) -> [UInt8] {
        self.object("welcome") { writer in
            writer.member("connection", connection)
            writer.member("ping_interval", pingInterval)
            writer.member("version", version)
        }
    }

    static func sync(_ snapshot: InboxSnapshot, reference: [UInt8]? = nil) -> [UInt8] {
        self.object("sync") { writer in
            writer.member("version", snapshot.version)
            writer.member("unread", snapshot.unread)
            writer.member("total", snapshot.total)
            writer.member("reset", snapshot.isReset)
            writer.member("has_more", snapshot.hasMore)
            writer.member("cursor", snapshot.hasMore ? snapshot.items.last?.id.description : nil)
            writer.key("notifications")
            writer.beginArray()
            for item in snapshot.items { writer.raw(item.json) }
            writer.endArray()
            writer.key("deleted")
            writer.beginArray()
            for deletion in snapshot.deleted { writer.string(deletion.id.description) }
            writer.endArray()
            self.write(reference, to: &writer)
        }
    }

    /// Encodes a change of the inbox or an event.
    static func change(_ change: NodeFrame) -> [UInt8] {
        switch change.kind {
        case .notification: self.notification(change.body, version: change.version, unread: change.unread)
        case .read, .deleted:
            self.change(change.name, change.body, version: change.version, unread: change.unread)
        case .event: self.event(change.body)
        }
    }

    /// Encodes a notification from its canonical JSON.
    static func notification(_ body: [UInt8], version: Int64, unread: Int32) -> [UInt8] {
        var writer = JSONWriter(capacity: body.count + 96)
        writer.beginObject()
        writer.member("type", "notification")
        writer.member("version", version)
        writer.member("unread", unread)
        writer.key("notification")
        writer.raw(body)
        writer.endObject()
        return writer.bytes
    }

    /// Encodes any other change; `body` is an object.
    static func change(_ type: StaticString, _ body: [UInt8], version: Int64, unread: Int32) -> [UInt8] {
        self.object(type) { writer in
            writer.member("version", version)
            writer.member("unread", unread)
            writer.key("change")
            writer.raw(body)
        }
    }

    /// Encodes an ephemeral event; `body` is `{"name":…,"args":[…]}`.
    static func event(_ body: [UInt8]) -> [UInt8] {
        self.object("event") { writer in
            writer.key("event")
            writer.raw(body)
        }
    }

    /// Encodes the answer to a client's message; nil if it needs none.
    static func answer(_ answer: SocketAnswer, to reference: [UInt8]?) -> [UInt8]? {
        switch answer {
        case .done: reference.map { self.done(reference: $0) }
        case .read(let unread), .unread(let unread): self.unread(unread, reference: reference)
        case .error(let reason): self.error(reason, reference: reference)
        case .busy(let reason): self.error(reason, mayRetry: true, reference: reference)
        }
    }

    static func unread(_ count: Int32, reference: [UInt8]?) -> [UInt8] {
        self.object("unread") { writer in
            writer.member("unread", count)
            self.write(reference, to: &writer)
        }
    }

    /// Encodes the confirmation of a message that has no other answer.
    static func done(reference: [UInt8]) -> [UInt8] {
        self.object("done") { self.write(reference, to: &$0) }
    }

    /// - Parameter mayRetry: whether the client may send the same message again.
    static func error(_ reason: String, mayRetry: Bool = false, reference: [UInt8]?) -> [UInt8] {
        self.object("error") { writer in
            writer.member("reason", reason)
            if mayRetry { writer.member("retry", true) }
            self.write(reference, to: &writer)
        }
    }

    static func goodbye(_ code: WebSocketCloseCode, reason: String, reconnectAfter: Int64) -> [UInt8] {
        self.object("goodbye") { writer in
            writer.member("code", code.rawValue)
            writer.member("reason", reason)
            writer.member("reconnect_after", reconnectAfter)
        }
    }

    private static func write(_ reference: [UInt8]?, to writer: inout JSONWriter) {
        guard let reference else { return }
        writer.key("ref")
        writer.raw(reference)
    }
}

/// Native sockets at `/v1/socket`.
package struct NativeEndpoint: TransportEndpoint {
    package static let path = "/v1/socket"
    /// The native dialect's subprotocol; a browser adds its token as a second one,
    /// `bearer.<token>`.
    static let subprotocol = "carillon.v1"

    private let hub: SocketHub

    package init(hub: SocketHub) {
        self.hub = hub
    }

    package func claims(_ path: Substring) -> Bool { path == Self.path }

    package func admit(_ head: HTTPRequestHead) async throws -> WebSocketAdmission {
        let offered = head.headers[canonicalForm: "sec-websocket-protocol"].map { String($0) }
        let query = try RequestQuery(of: head)
        let since = try query.version("resume")
        var credentials = PresentedCredentials(ofSocket: head.headers)
        credentials.token = offered.first { $0.hasPrefix("bearer.") }.map { String($0.dropFirst("bearer.".count)) }
        credentials.ticket = query["ticket"]
        let (hub, presented) = (self.hub, credentials)
        let admitted = try await hub.authenticate { try await $0.authenticate(presented) }
        return WebSocketAdmission(
            subprotocol: offered.contains(Self.subprotocol) ? Self.subprotocol : nil,
            limits: hub.configuration.webSocketLimits
        ) { eventLoop in
            guard let shard = hub.shard(on: eventLoop) else { return nil }
            return NativeWire(
                session: SocketSession(
                    connection: RandomName.make(),
                    identity: admitted,
                    since: since,
                    shard: shard
                )
            )
        }
    }
}

extension SocketConfiguration {
    var webSocketLimits: WebSocketLimits {
        WebSocketLimits(maximumMessage: self.maximumMessage, maximumOutbound: self.maximumOutbound)
    }
}
