// Carillon · ConformanceSocketIO.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols
import Sockets
import Synchronization

/// `/socket.io/`: the namespaces `/` and `/custom`, which return the `auth` payload and echo
/// messages.
///
/// With recovery, every event has an offset, and each client's last hundred events are kept.
final class ConformanceSocketIO: SocketIOApplication {
    /// Events sent to each client by its `pid`, for recovery.
    private final class Memory: Sendable {
        struct Client {
            let sid: String
            var events: [SocketIOMissedEvent] = []
            var count = 0
        }

        let clients = Mutex<[String: Client]>([:])
    }

    private static let namespaces: Set = ["/", "/custom"]
    private let memory: Memory?
    private var connection: SocketIOConnection?
    private var pids: [String: String] = [:]

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
        guard Self.namespaces.contains(request.namespace) else {
            self.connection?.refuse(request.ticket, message: SocketIOStateMachine.unknownNamespace)
            return
        }
        if let recovery = request.recovery, let client = self.memory?.clients.withLock({ $0[recovery.pid] }),
            let place = client.events.firstIndex(where: { $0.offset == recovery.offset })
        {
            self.pids[request.namespace] = recovery.pid
            let missed = Array(client.events[(place + 1)...])
            self.connection?.accept(
                request.ticket, sid: client.sid, recovery: .init(pid: recovery.pid, missed: missed))
            return
        }
        let sid = Self.name()
        let pid = Self.name()
        if let memory {
            memory.clients.withLock { $0[pid] = Memory.Client(sid: sid) }
            self.pids[request.namespace] = pid
        }
        self.connection?.accept(request.ticket, sid: sid, recovery: self.memory == nil ? nil : .init(pid: pid))
        self.emit("auth", [.json(request.auth)], to: request.namespace)
    }

    func socketIOReceived(
        _ name: SocketIOEventName,
        _ arguments: [SocketIOValue],
        in namespace: String,
        acknowledgement: UInt64?
    ) {
        switch name {
        case "message": self.emit("message-back", arguments, to: namespace)
        // Records an event and drops the connection before it can arrive.
        case "lose":
            self.keep("message-back", arguments, namespace)
            self.connection?.drop()
        case "message-with-ack":
            if let acknowledgement { self.connection?.acknowledge(acknowledgement, with: arguments, in: namespace) }
        default: break
        }
    }

    private func emit(_ name: SocketIOEventName, _ arguments: [SocketIOValue], to namespace: String) {
        let offset = self.keep(name, arguments, namespace).map { [SocketIOValue.json(.string($0))] } ?? []
        self.connection?.emit(name, arguments + offset, to: namespace)
    }

    @discardableResult
    private func keep(_ name: SocketIOEventName, _ arguments: [SocketIOValue], _ namespace: String) -> String? {
        guard let memory, let pid = self.pids[namespace] else { return nil }
        return memory.clients.withLock { clients in
            guard var client = clients[pid] else { return nil }
            client.count += 1
            let offset = "o\(client.count)"
            client.events.append(SocketIOMissedEvent(name, arguments, offset: offset))
            client.events = client.events.suffix(100)
            clients[pid] = client
            return offset
        }
    }

    private static func name() -> String { String(UInt64.random(in: .min ... .max), radix: 36) }
}
