// Carillon · ConformanceSocketIO.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import Protocols
import Sockets
import Synchronization

/// `/socket.io/`: returns the `auth` payload and echoes messages.
///
/// With recovery, every event has an offset, and each client's last hundred events are kept.
final class ConformanceSocketIO: SocketIOApplication {
    /// Events sent to each client by its `pid`, for recovery.
    private final class Memory: Sendable {
        struct Client {
            let sid: String
            var events: [(offset: String, packet: [UInt8])] = []
            var count = 0
        }

        let clients = Mutex<[String: Client]>([:])
    }

    private let memory: Memory?
    private var connection: SocketIOConnection?
    private var pid: String?

    private init(memory: Memory?) {
        self.memory = memory
    }

    static func endpoint(_ options: ConformanceOptions) -> EngineIOEndpoint {
        let configuration = SocketIOConfiguration(
            // Long enough for a client that only answers three pings.
            connectTimeout: 2 * Int64(options.pingInterval + options.pingTimeout),
            offersRecovery: options.allowsRecovery
        )
        let memory = options.allowsRecovery ? Memory() : nil
        return EngineIOEndpoint(path: "/socket.io", configuration: options.engineIO) { _, _ in
            SocketIOConnection(ConformanceSocketIO(memory: memory), configuration: configuration)
        }
    }

    func socketIOOpened(_ connection: SocketIOConnection) { self.connection = connection }
    func socketIOIsTooSlow() { self.connection?.drop() }
    func socketIOClosed(_ reason: EngineIOCloseReason) { self.connection = nil }

    func socketIOConnectRequested(_ request: SocketIOConnectRequest) {
        if let recovery = request.recovery, let client = self.memory?.clients.withLock({ $0[recovery.pid] }),
            let place = client.events.firstIndex(where: { $0.offset == recovery.offset })
        {
            self.pid = recovery.pid
            let missed = client.events[(place + 1)...].map { $0.packet }
            self.connection?.accept(
                request.ticket, sid: client.sid, recovery: .init(pid: recovery.pid, missed: missed))
            return
        }
        let sid = Self.name()
        if let memory {
            let pid = Self.name()
            memory.clients.withLock { $0[pid] = Memory.Client(sid: sid) }
            self.pid = pid
        }
        self.connection?.accept(request.ticket, sid: sid, recovery: self.pid.map { .init(pid: $0) })
        self.emit("auth", [request.auth])
    }

    func socketIOReceived(_ name: String, _ arguments: [JSONValue], acknowledgement: UInt64?) {
        switch name {
        case "message": self.emit("message-back", arguments)
        // Records an event and drops the connection before it can arrive.
        case "lose":
            _ = self.packet("message-back", arguments)
            self.connection?.drop()
        case "message-with-ack":
            if let acknowledgement { self.connection?.acknowledge(acknowledgement, with: arguments) }
        default: break
        }
    }

    private func emit(_ name: String, _ arguments: [JSONValue]) {
        self.connection?.emit(frame: WebSocketFraming.text(Array("4".utf8) + self.packet(name, arguments)))
    }

    /// Encodes an event; with recovery, adds its offset and keeps it.
    private func packet(_ name: String, _ arguments: [JSONValue]) -> [UInt8] {
        let elements: [JSONValue] = [.string(name)] + arguments
        guard let memory, let pid else { return Self.event(elements) }
        return memory.clients.withLock { clients in
            guard var client = clients[pid] else { return Self.event(elements) }
            client.count += 1
            let offset = "o\(client.count)"
            let packet = Self.event(elements + [.string(offset)])
            client.events.append((offset, packet))
            client.events = client.events.suffix(100)
            clients[pid] = client
            return packet
        }
    }

    private static func event(_ elements: [JSONValue]) -> [UInt8] {
        Array("2".utf8) + JSONWriter.bytes(of: .array(elements))
    }

    private static func name() -> String { String(UInt64.random(in: .min ... .max), radix: 36) }
}
