// Carillon · SoakServices.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Support
import Synchronization

/// Gateways and dispatchers that are killed and restarted.
actor SoakServices {
    private enum Kind: String {
        case gateway, dispatcher
    }

    private struct Slot {
        let kind: Kind
        let name: String
        var program: ChildProcess?
        var port: Int?
    }

    private let stack: ScratchStack
    private let settings: [String: String]
    private var slots: [Slot] = []
    /// The ports of the running gateways.
    nonisolated let ports = Mutex<[Int]>([])
    private(set) var kills = ["gateway": 0, "dispatcher": 0]
    /// Services that ended without a kill, with their last log lines.
    private(set) var deaths: [String] = []

    /// - Parameter settings: of all services, besides those of the stack.
    init(stack: ScratchStack, gateways: Int, dispatchers: Int, settings: [String: String]) {
        self.stack = stack
        self.settings = settings
        for number in 1...gateways { self.slots.append(Slot(kind: .gateway, name: "gateway-\(number)")) }
        for number in 1...dispatchers { self.slots.append(Slot(kind: .dispatcher, name: "dispatcher-\(number)")) }
    }

    /// Process id and port of the first gateway, if it runs.
    var firstGateway: (pid: pid_t, port: Int)? {
        guard let slot = self.slots.first(where: { $0.kind == .gateway }), let program = slot.program,
            let port = slot.port
        else { return nil }
        return (program.identifier, port)
    }

    func start() async throws {
        for index in self.slots.indices { try await self.start(index) }
    }

    private func start(_ index: Int) async throws {
        let name = self.slots[index].name
        switch self.slots[index].kind {
        case .gateway:
            let (program, port) = try await self.stack.gateway(name: name, settings: self.settings)
            self.slots[index].program = program
            self.slots[index].port = port
            self.ports.withLock { $0.append(port) }
        case .dispatcher:
            self.slots[index].program = try await self.stack.dispatcher(name: name, settings: self.settings)
        }
    }

    /// Kills a random running service and restarts it within two seconds.
    func killOne() async throws {
        let running = self.slots.indices.filter { self.slots[$0].program != nil }
        guard let index = running.randomElement(), let program = self.slots[index].program else { return }
        self.slots[index].program = nil
        self.kills[self.slots[index].kind.rawValue, default: 0] += 1
        self.forgetPort(index)
        try await program.stop(by: SIGKILL)
        // A supervisor may take this long to restart it.
        try await Task.sleep(for: .milliseconds(Int.random(in: 0...2_000)))
        try await self.start(index)
    }

    private func forgetPort(_ index: Int) {
        guard let port = self.slots[index].port else { return }
        self.slots[index].port = nil
        self.ports.withLock { ports in ports.removeAll { $0 == port } }
    }

    /// Records services that ended unexpectedly, and restarts them.
    func look() async throws {
        for index in self.slots.indices {
            guard let program = self.slots[index].program, let exit = program.exit else { continue }
            self.slots[index].program = nil
            self.forgetPort(index)
            let words = program.tail().split(separator: "\n").suffix(3).joined(separator: " / ")
            self.deaths.append("\(self.slots[index].name) ended with \(exit): \(words)")
            try await self.start(index)
        }
    }

    func stop() async throws {
        for slot in self.slots { try await slot.program?.stop(by: SIGKILL) }
    }
}
