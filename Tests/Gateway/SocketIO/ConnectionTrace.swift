// Carillon · ConnectionTrace.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols

/// A connection and what it did, one short line an action.
///
/// `> 0{…}` sends a packet (bytes follow in brackets), `join #1 / {…}` asks, `withdrawn #1`, `event / a [1] 7` and
/// `ack / 3 [1]` deliver, `left / reason`, `close reason`. The numbers of wishes count from 1.
struct ConnectionTrace {
    var connection: SocketIOConnection
    private(set) var requests: [SocketIOConnectRequest] = []

    init(_ configuration: SocketIOConfiguration = SocketIOConfiguration()) {
        self.connection = SocketIOConnection(configuration: configuration, now: 0)
    }

    /// A connection that has joined these namespaces.
    static func joined(
        _ namespaces: String..., configuration: SocketIOConfiguration = SocketIOConfiguration()
    ) -> ConnectionTrace {
        var trace = ConnectionTrace(configuration)
        for namespace in namespaces {
            _ = trace.receive("0\(namespace),")
            _ = trace.accept(trace.requests.count, sid: "S")
        }
        return trace
    }

    mutating func receive(_ text: String, at now: Milliseconds = 0) -> [String] {
        self.run { $0.receive(.text(Array(text.utf8)), now: now, into: &$1) }
    }

    mutating func receive(bytes: [UInt8], at now: Milliseconds = 0) -> [String] {
        self.run { $0.receive(.binary(bytes), now: now, into: &$1) }
    }

    mutating func accept(_ request: Int, sid: String, recovery: SocketIORecoveryGrant? = nil) -> [String] {
        let ticket = self.requests[request - 1].ticket
        return self.run { $0.accept(ticket, sid: sid, recovery: recovery, into: &$1) }
    }

    mutating func refuse(_ request: Int, _ message: String, data: JSONValue? = nil) -> [String] {
        let ticket = self.requests[request - 1].ticket
        return self.run { $0.refuse(ticket, message: message, data: data, into: &$1) }
    }

    mutating func emit(
        _ name: SocketIOEventName, _ arguments: [SocketIOValue] = [], to namespace: String = "/",
        as emission: SocketIOEmission = .plain
    ) -> [String] {
        var result = SocketIOEmissionResult.sent
        let lines = self.run { result = $0.emit(name, arguments, to: namespace, as: emission, into: &$1) }
        return lines + (result == .sent ? [] : ["\(result)"])
    }

    mutating func acknowledge(_ id: UInt64, _ arguments: [SocketIOValue] = [], in namespace: String = "/") -> [String] {
        self.run { $0.acknowledge(id, with: arguments, in: namespace, into: &$1) }
    }

    mutating func disconnect(_ namespace: String = "/", at now: Milliseconds = 0) -> [String] {
        self.run { $0.disconnect(namespace, now: now, into: &$1) }
    }

    mutating func close(_ reason: SocketIOCloseReason) -> [String] {
        self.run { $0.close(reason, into: &$1) }
    }

    mutating func sessionClosed(_ reason: EngineIOCloseReason) -> [String] {
        self.run { $0.sessionClosed(reason, into: &$1) }
    }

    mutating func tick(_ now: Milliseconds) -> [String] {
        self.run { $0.tick(now: now, into: &$1) }
    }

    private mutating func run(_ call: (inout SocketIOConnection, inout [SocketIOAction]) -> Void) -> [String] {
        var actions: [SocketIOAction] = []
        call(&self.connection, &actions)
        for case .connectRequested(let request) in actions { self.requests.append(request) }
        return actions.map { self.line($0) }
    }

    private func number(_ ticket: SocketIOConnectRequest.Ticket) -> Int {
        (self.requests.firstIndex { $0.ticket == ticket } ?? -1) + 1
    }

    private func line(_ action: SocketIOAction) -> String {
        switch action {
        case .send(let messages): "> " + messages.map { Self.text($0) }.joined(separator: " ")
        case .connectRequested(let request):
            "join #\(self.number(request.ticket)) \(request.namespace) \(Self.text(JSONWriter.bytes(of: request.auth)))"
        case .connectWithdrawn(let ticket): "withdrawn #\(self.number(ticket))"
        case .event(let namespace, let name, let arguments, let id):
            "event \(namespace) \(Self.text(name)) \(Self.text(arguments))" + (id.map { " \($0)" } ?? "")
        case .acknowledged(let namespace, let id, let arguments): "ack \(namespace) \(id) \(Self.text(arguments))"
        case .left(let namespace, let reason): "left \(namespace) \(reason.rawValue)"
        case .close(.fault(let fault)): "close \(fault)"
        case .close(let reason): "close \(reason)"
        }
    }

    private static func text(_ name: SocketIOEventName) -> String {
        switch name {
        case .text(let text): text
        case .number(let text): "number \(text)"
        }
    }

    private static func text(_ arguments: [SocketIOValue]) -> String {
        let packet = SocketIOPacket(.acknowledgement(0, arguments)).messages
        return packet.map { Self.text($0) }.joined(separator: " ").replacing(#/^(?:30|6\d+-0)/#, with: "")
    }

    private static func text(_ message: EngineIOMessage) -> String {
        switch message {
        case .text(let bytes): Self.text(bytes)
        case .binary(let bytes): "\(bytes)"
        }
    }

    private static func text(_ bytes: [UInt8]) -> String {
        String(decoding: bytes, as: UTF8.self)
    }
}
