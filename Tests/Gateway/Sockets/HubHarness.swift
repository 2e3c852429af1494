// Carillon · HubHarness.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import NIOCore
import NIOEmbedded

@testable import Sockets

/// Records what a session writes.
final class RecordingWire: SocketWire {
    let dialect: Dialect
    private(set) var versions: [Int64] = []
    private(set) var syncs: [Int64] = []
    /// The versions of the synced items.
    private(set) var rows: [Int64] = []
    /// The references that the syncs answered, in order.
    private(set) var references: [String?] = []
    private(set) var answers: [SocketAnswer] = []
    private(set) var end: SocketEnd?
    var provesReceipt = true
    var isAway = false
    var onDrop: () -> Void = {}
    var onChange: () -> Void = {}

    init(_ dialect: Dialect) {
        self.dialect = dialect
    }

    func welcome(connection: String, version: Int64) {}
    func sync(_ snapshot: InboxSnapshot, answering reference: [UInt8]?) {
        self.syncs.append(snapshot.version)
        self.rows += snapshot.items.map(\.version) + snapshot.deleted.map(\.version)
        self.references.append(reference.map { String(decoding: $0, as: UTF8.self) })
    }
    func change(_ change: LoopChange) {
        self.versions.append(change.frame.version)
        self.onChange()
    }
    func answer(_ answer: SocketAnswer, to reference: [UInt8]?) { self.answers.append(answer) }
    func requestProof(_ sequence: UInt64) {}
    func flush() {}
    func close(_ end: SocketEnd) { self.end = end }
    func drop() { self.onDrop() }
    func tick(now: NIODeadline) {}
}

/// A hub of one loop whose tasks do not run.
final class HubHarness {
    let eventLoop = EmbeddedEventLoop()
    let hub: SocketHub
    private let shard: HubShard

    init(_ change: (inout SocketConfiguration) -> Void = { _ in }) throws {
        var configuration = SocketConfiguration()
        change(&configuration)
        self.hub = SocketHub(
            eventLoopGroup: self.eventLoop,
            configuration: configuration,
            backend: ScriptedBackend(),
            logger: Logger(label: "test"),
            now: { Timestamp(seconds: 1_795_000_000) }
        )
        self.eventLoop.run()
        guard let shard = self.hub.shard(on: self.eventLoop) else { throw ChannelError.operationUnsupported }
        self.shard = shard
    }

    deinit {
        self.shard.stop()
    }

    /// Opens a socket; authenticated if a user is given.
    func open(_ user: String?, _ dialect: Dialect) -> (session: SocketSession, wire: RecordingWire) {
        self.open(by: user.map { SocketIdentity(user: $0, expiresAt: nil) }, dialect)
    }

    func open(
        by identity: SocketIdentity?, _ dialect: Dialect, client: String? = nil
    ) -> (session: SocketSession, wire: RecordingWire) {
        let session = SocketSession(connection: "c", identity: identity, since: nil, client: client, shard: self.shard)
        let wire = RecordingWire(dialect)
        session.begin(wire)
        return (session, wire)
    }

    /// Opens a native socket over a channel; authenticated if a user is given.
    func connect(_ user: String? = nil) throws -> (session: SocketSession, channel: EmbeddedChannel) {
        let identity = user.map { SocketIdentity(user: $0, expiresAt: nil) }
        let session = SocketSession(connection: "c", identity: identity, since: nil, shard: self.shard)
        let handler = WebSocketHandler(
            application: NativeWire(session: session),
            limits: self.hub.configuration.webSocketLimits
        )
        let channel = EmbeddedChannel(handler: handler, loop: self.eventLoop)
        try channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 1)).wait()
        return (session, channel)
    }

    func deliver(_ changes: [NodeFrame]) {
        self.hub.deliver(changes)
        self.eventLoop.run()
    }

    /// The snapshot item of ``notification(_:_:camelCase:)``.
    static func item(_ version: Int64, awaitsProof: Bool = false) -> InboxSnapshot.Item {
        InboxSnapshot.Item(
            id: NotificationID(high: 1, low: UInt64(version)), version: version, json: Array("{}".utf8),
            awaitsProof: awaitsProof, lane: .normal, isRead: false
        )
    }

    static func notification(_ user: String, _ version: Int64, camelCase: String = "") -> NodeFrame {
        NodeFrame(
            kind: .notification, user: user, previous: max(0, version - 1), version: version, unread: 1,
            id: NotificationID(high: 1, low: UInt64(version)), body: Array("{}".utf8),
            camelCaseBody: Array(camelCase.utf8)
        )
    }
}
