// Carillon · SignalRWire.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import Protocols

/// A session's words to a SignalR client, over whichever transport it has.
final class SignalRWire: SocketWire, SignalRApplication {
    let dialect = Dialect.signalr
    private let session: SocketSession
    /// Nil before the handshake and after the end.
    private var transport: SignalRSession?
    private var isSynced = false
    /// Whether the transport proves receipt; as it was while there was one.
    private(set) var provesReceipt = false
    private var leftUnwritten = false
    /// Whether the transport still holds records, or ended while it held some.
    var hasUnwritten: Bool { self.transport?.holdsRecords ?? self.leftUnwritten }
    /// The version up to which the client was told everything.
    private var told: Int64 = 0
    /// Calls that run, by number: their methods, for answers.
    ///
    /// Bounded by the transport's limits.
    private var targets: [UInt64: String] = [:]
    /// A call that came before the inbox was read; there is at most one, as a client's calls run one by one.
    private var early: [SignalRCall] = []

    init(session: SocketSession) {
        self.session = session
    }

    // MARK: From the client

    /// A request for the connection brought a token that is good.
    func renew(_ identity: SocketIdentity) { self.session.renew(identity) }

    func signalROpened(_ transport: SignalRSession) {
        self.transport = transport
        self.provesReceipt = transport.provesReceipt
        self.session.begin(self)
    }

    func signalRInvoked(_ call: SignalRCall) {
        guard self.session.spend() else { return }
        guard self.isSynced else { return self.early.append(call) }
        self.obey(call)
    }

    private func obey(_ call: SignalRCall) {
        let target = call.invocation.target
        do throws(ClientFault) {
            guard let message = try SignalRDialect.message(call.invocation) else {
                self.transport?.complete(call.number, .void)
                return
            }
            self.targets[call.number] = target
            self.session.obey(message, reference: Array(String(call.number).utf8))
        } catch {
            self.transport?.complete(call.number, .error(error.reason))
        }
    }

    func signalRHeard() { _ = self.session.spend() }
    func signalRReadComplete() { if self.transport != nil { self.session.flush() } }
    func signalRProven(_ number: UInt64) { self.session.proven(number) }

    func signalRIsTooSlow() {
        if self.transport != nil { self.session.isTooSlow() }
    }

    func signalRClosed() {
        self.leftUnwritten = self.transport?.holdsRecords ?? false
        self.transport = nil
        self.session.end()
    }

    // MARK: To the client

    func welcome(connection: String, version: Int64) {}

    func sync(_ snapshot: InboxSnapshot, answering reference: [UInt8]?) {
        // An inbox that began anew counts from the start.
        if snapshot.isReset, snapshot.version < self.told { self.told = 0 }
        for record in SignalRDialect.sync(snapshot, isFirst: !self.isSynced, after: self.told) {
            self.transport?.send(record)
        }
        self.told = max(self.told, snapshot.version)
        guard !self.isSynced else { return }
        self.isSynced = true
        let early = self.early
        self.early = []
        for call in early { self.obey(call) }
    }

    func change(_ change: LoopChange) {
        self.told = max(self.told, change.change.version)
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
        case .unauthorized, .policyViolation, .unsupportedData, .tooManyConnections:
            self.transport?.close(error: reason, code: code)
        // Without an error, after which some clients do not come back.
        case .expired, .tooSlow, .tryAgainLater: self.transport?.close(allowReconnect: true, code: code)
        case .restart: self.transport?.close(allowReconnect: true, code: .goingAway)
        }
    }

    func drop() { self.transport?.drop() }

    /// Polls that wait are refused, so that their client polls again with a fresh token; if none
    /// comes, the transport ends the connection.
    func awaitsFreshToken() -> Bool { self.transport?.refusePolls() ?? false }

    /// The transport keeps itself alive, in the protocol's own way.
    func tick(now: NIODeadline) {}
}
