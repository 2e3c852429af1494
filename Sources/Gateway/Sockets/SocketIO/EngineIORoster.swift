// Carillon · EngineIORoster.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Protocols

/// The connections of one event loop, and the one timer that serves them while there are any.
///
/// Owned by that loop: no lock, and every call is on it.
final class EngineIORoster {
    /// Between two looks at all connections; what is due sooner has a task of its own.
    static let interval: Milliseconds = 1_000

    let eventLoop: any EventLoop
    private var connections: [ObjectIdentifier: EngineIOConnection] = [:]
    private var timer: RepeatedTask?

    init(eventLoop: any EventLoop) {
        self.eventLoop = eventLoop
    }

    static func now() -> Milliseconds { Milliseconds(NIODeadline.now().uptimeNanoseconds / 1_000_000) }

    func add(_ connection: EngineIOConnection) {
        self.connections[ObjectIdentifier(connection)] = connection
        guard self.timer == nil else { return }
        let bound = NIOLoopBound(self, eventLoop: self.eventLoop)
        let interval = TimeAmount.milliseconds(Self.interval)
        self.timer = self.eventLoop.scheduleRepeatedTask(initialDelay: interval, delay: interval) { _ in
            bound.value.tick()
        }
    }

    func remove(_ connection: EngineIOConnection) {
        self.connections[ObjectIdentifier(connection)] = nil
        guard self.connections.isEmpty else { return }
        self.timer?.cancel()
        self.timer = nil
    }

    private func tick() {
        let now = Self.now()
        for connection in self.connections.values where connection.isDue(now) { connection.tick(now) }
    }
}
