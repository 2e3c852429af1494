// Carillon · SignalRWire.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import NIOCore
import NIOHTTP1
import Protocols

/// A session's messages to a SignalR client over any transport.
final class SignalRWire: SocketWire, SignalRApplication {
    let dialect = Dialect.signalr
    private let session: SocketSession
    /// Nil before the handshake and after the end.
    private var transport: SignalRConnection?
    /// Whether the transport proves receipt; kept after its end.
    private(set) var provesReceipt = false
    private var leftUnwritten = false
    /// Whether the transport still holds records, or held some when it ended.
    var hasUnwritten: Bool { self.transport?.holdsRecords ?? self.leftUnwritten }
    var isAway: Bool { self.transport?.isAway ?? false }
    /// The methods of running calls, by number, for their answers.
    ///
    /// Bounded by the transport's limits.
    private var targets: [UInt64: String] = [:]

    init(session: SocketSession) {
        self.session = session
    }

    // MARK: From the client

    /// Adopts the valid token of a later request on the connection.
    func renew(_ identity: SocketIdentity) { self.session.renew(identity) }

    func signalROpened(_ transport: SignalRConnection) {
        self.transport = transport
        self.provesReceipt = transport.provesReceipt
        self.session.begin(self)
    }

    func signalRInvoked(_ call: SignalRCall) {
        guard self.session.phase != .closing else { return }
        let target = call.invocation.target
        do throws(ClientFault) {
            guard let message = try SignalRDialect.message(call.invocation) else {
                self.transport?.complete(call.number, .void)
                return
            }
            self.targets[call.number] = target
            self.session.handle(message, reference: Array(String(call.number).utf8))
        } catch {
            self.transport?.complete(call.number, .error(error.reason))
        }
    }

    func signalRHeard() {
        self.session.heard()
        _ = self.session.admitMessage()
    }
    func signalRPolled() { self.session.heard() }
    func signalRReadComplete() { if self.transport != nil { self.session.flush() } }
    func signalRProven(_ sequence: UInt64) { self.session.proven(sequence) }
    func signalRLost() { self.session.recordBookmark(now: .now()) }
    func signalRReturned() { self.session.returned() }
    func signalRStopped() { self.session.clientStopped() }

    func signalRIsTooSlow() {
        if self.transport != nil { self.session.closeAsTooSlow() }
    }

    func signalRClosed() {
        self.leftUnwritten = self.transport?.holdsRecords ?? false
        self.transport = nil
        self.session.end()
    }

    // MARK: To the client

    func welcome(connection: String, version: Int64) {}

    func sync(_ snapshot: InboxSnapshot, answering reference: [UInt8]?) {
        for record in SignalRDialect.sync(snapshot) { self.transport?.send(record) }
    }

    func change(_ change: LoopChange) {
        self.transport?.send(change.bundle { SignalRBundle(SignalRDialect.change($0)) })
    }

    func answer(_ answer: SocketAnswer, to reference: [UInt8]?) {
        guard let reference, let call = UInt64(String(decoding: reference, as: UTF8.self)),
            let target = self.targets.removeValue(forKey: call)
        else { return }
        self.transport?.complete(call, SignalRDialect.outcome(answer, target: target))
    }

    func requestProof(_ sequence: UInt64) { self.transport?.requestProof(sequence) }
    func flush() { self.transport?.flush() }

    func close(_ end: SocketEnd) {
        let (code, reason) = end.webSocketClose
        switch end {
        case .unauthorized, .policyViolation, .tooManyConnections:
            self.transport?.close(error: reason, code: code)
        // Without an error, because some clients do not reconnect after one.
        case .expired, .tooSlow, .tryAgainLater: self.transport?.close(allowReconnect: true, code: code)
        case .restart: self.transport?.close(allowReconnect: true, code: .goingAway)
        }
    }

    func drop() { self.transport?.drop() }

    /// Refuses the waiting polls, so that the client polls again with a fresh token; if none comes,
    /// the transport ends the connection.
    func awaitsFreshToken() -> Bool { self.transport?.refusePolls() ?? false }

    /// Does nothing: the transport runs the protocol's own keep-alive.
    func tick(now: NIODeadline) {}
}

/// The methods of the notification hub: those it calls on clients and those clients may call.
enum SignalRDialect {
    private static let maximumIDs = 1_000

    // MARK: To clients

    static func received(_ json: [UInt8]) -> SignalRRecord {
        SignalRRecord(target: "ReceiveNotification", encodedArguments: [json])
    }

    static func unreadCount(_ count: Int32) -> SignalRRecord {
        SignalRRecord(target: "UnreadCountChanged", encodedArguments: [Array(String(count).utf8)])
    }

    static func read(_ id: String) -> SignalRRecord {
        SignalRRecord(target: "NotificationRead", encodedArguments: [Self.text(id)])
    }

    static func deleted(_ id: String) -> SignalRRecord {
        SignalRRecord(target: "NotificationDeleted", encodedArguments: [Self.text(id)])
    }

    private static func allRead(upTo version: Int64) -> SignalRRecord {
        SignalRRecord(target: "AllNotificationsRead", encodedArguments: [Array(String(version).utf8)])
    }

    private static func allReadDeleted(upTo version: Int64) -> SignalRRecord {
        SignalRRecord(target: "AllReadNotificationsDeleted", encodedArguments: [Array(String(version).utf8)])
    }

    private static func text(_ text: String) -> [UInt8] { JSONWriter.bytes(of: .string(text)) }

    /// Encodes a change of the inbox or an event.
    static func change(_ change: NodeFrame) -> [SignalRRecord] {
        let unread = Self.unreadCount(change.unread)
        switch change.kind {
        case .notification: return [Self.received(change.camelCaseBody), unread]
        case .read: return Self.change(change, all: Self.allRead) { Self.read($0) } + [unread]
        case .deleted: return Self.change(change, all: Self.allReadDeleted) { Self.deleted($0) } + [unread]
        case .event:
            guard let event = try? JSONParser.parse(change.body), let name = event["name"]?.string else {
                return []
            }
            let arguments = event["args"]?.array ?? []
            return [
                SignalRRecord(target: name, encodedArguments: arguments.map { JSONWriter.bytes(of: $0) })
            ]
        }
    }

    /// Encodes a change with a record for each id, or with one if it covers all up to a version.
    private static func change(
        _ change: NodeFrame,
        all: (_ version: Int64) -> SignalRRecord,
        _ record: (String) -> SignalRRecord
    ) -> [SignalRRecord] {
        let body = try? JSONParser.parse(change.body)
        if let ids = body?["ids"]?.strings { return ids.map(record) }
        // Not the frame's version, which may be later.
        return [all(body?["up_to_version"]?.integer ?? change.version)]
    }

    /// Encodes the records that bring a client up to date.
    ///
    /// A reset lists no reads and no deletions. But its counts show whether all notifications are
    /// read, and whether all read ones are deleted.
    static func sync(_ snapshot: InboxSnapshot) -> [SignalRRecord] {
        var records: [SignalRRecord] = []
        if snapshot.isReset, snapshot.unread == 0 { records.append(Self.allRead(upTo: snapshot.version)) }
        if snapshot.isReset, snapshot.unread == snapshot.total {
            records.append(Self.allReadDeleted(upTo: snapshot.version))
        }
        records += snapshot.items.map { $0.isRead ? Self.read($0.id.description) : Self.received($0.json) }
        records += snapshot.deleted.map { Self.deleted($0.id.description) }
        return records + [Self.unreadCount(snapshot.unread)]
    }

    // MARK: From clients

    /// Decodes a call; nil for one that needs no work.
    ///
    /// - Throws: ``ClientFault``, whose reason is the completion's error.
    static func message(_ invocation: SignalRInvocation) throws(ClientFault) -> ClientMessage? {
        let method = ["MarkAsRead", "MarkRead", "MarkAllAsRead", "GetUnreadCount", "Subscribe"]
            .first { invocation.calls($0) }
        guard let method else { throw Self.fault(SignalRErrorText.unknownMethod(invocation.target)) }
        guard !invocation.isStream else { throw Self.fault(SignalRErrorText.plainMethodStreamed(invocation.target)) }
        switch method {
        case "MarkAsRead", "MarkRead":
            let argument = invocation.arguments.first
            let texts = argument?.strings ?? argument?.string.map { [$0] } ?? []
            let ids = texts.compactMap { NotificationID($0) }
            guard !ids.isEmpty, ids.count == texts.count, ids.count <= Self.maximumIDs else {
                throw Self.fault(
                    SignalRErrorText.failed(
                        invocation.target,
                        "the first argument must be a notification id, or an array of 1 to \(Self.maximumIDs) ids"
                    )
                )
            }
            return .read(ids: ids)
        case "MarkAllAsRead": return .read(ids: nil)
        case "GetUnreadCount": return .unread
        default: return nil
        }
    }

    private static func fault(_ reason: String) -> ClientFault { ClientFault(reason: reason, reference: nil) }

    /// Encodes an answer as a completion.
    static func outcome(_ answer: SocketAnswer, target: String) -> SignalROutcome {
        switch answer {
        case .done: .void
        case .read(let unread), .unread(let unread): .result(.number(String(unread)))
        case .error(let reason), .busy(let reason): .error(SignalRErrorText.failed(target, reason))
        }
    }
}

/// The SignalR hub at `/hubs/notifications`.
package struct NotificationHub: SignalRHub {
    static let path = "/hubs/notifications"

    private let hub: SocketHub

    /// Makes the endpoint that serves the hub.
    ///
    /// - Parameter now: the clock of its connections.
    package static func endpoint(
        hub: SocketHub,
        now: @escaping @Sendable () -> Milliseconds = systemUptime
    ) -> SignalREndpoint {
        var configuration = SignalREndpointConfiguration(
            path: Self.path,
            connection: SignalRConfiguration(
                maximumMessageBytes: hub.configuration.maximumMessage,
                // A returning client acknowledges nothing until it has everything that it missed.
                resendBufferBytes: hub.configuration.maximumOutbound),
            webSocket: hub.configuration.webSocketLimits,
            wallClock: hub.now
        )
        // A client negotiates again for each transport that it tries, and unused negotiations count
        // for 15 s.
        configuration.openingsPerOwner = SignalRTransport.allCases.count * max(32, hub.configuration.connectionsPerUser)
        return SignalREndpoint(
            hub: NotificationHub(hub: hub),
            configuration: configuration,
            makeID: { RandomName.make() },
            now: now
        )
    }

    private init(hub: SocketHub) {
        self.hub = hub
    }

    /// Tells a user's clients apart by their `User-Agent`, because they do not identify themselves.
    private static func client(_ headers: HTTPHeaders) -> String {
        let digest = SHA256.hash(data: Array((headers.first(name: "user-agent") ?? "").utf8))
        return digest.prefix(8).hex
    }

    package func admit(_ caller: SignalRCaller) async throws -> SignalRPermit {
        guard let token = caller.accessToken else {
            let reason = "a bearer token is required, in the header or as access_token"
            throw SocketRefusal(status: 401, reason: reason).counted()
        }
        let hub = self.hub
        let identity = try await hub.authenticate { try await $0.authenticate(token: token) }
        let client = Self.client(caller.head.headers)
        var permit = SignalRPermit(owner: identity.user) { connection in
            guard let shard = hub.shard(on: connection.eventLoop) else { return nil }
            return SignalRWire(
                session: SocketSession(
                    connection: RandomName.make(),
                    identity: identity,
                    since: nil,
                    client: client,
                    shard: shard
                )
            )
        }
        permit.renew = { application in (application as? SignalRWire)?.renew(identity) }
        return permit
    }
}
