// Carillon · SignalRNode.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import NIOCore
import Protocols
import Synchronization

/// All connections of a hub on this node.
final class SignalRNode: Sendable {
    let configuration: SignalREndpointConfiguration
    let directory: SignalRDirectory
    // Each is confined to its loop by the bound.
    private let loops = Mutex<[ObjectIdentifier: NIOLoopBound<SignalRLoop>]>([:])

    init(configuration: SignalREndpointConfiguration) {
        self.configuration = configuration
        self.directory = SignalRDirectory(limit: configuration.maximumConnections)
    }

    /// The connections of a loop; called on it.
    func loop(_ eventLoop: any EventLoop) -> SignalRLoop {
        let key = ObjectIdentifier(eventLoop)
        if let existing = self.loops.withLock({ $0[key] }) { return existing.value }
        let bound = NIOLoopBound(SignalRLoop(), eventLoop: eventLoop)
        self.loops.withLock { $0[key] = bound }
        let tick = self.configuration.tick
        eventLoop.scheduleRepeatedTask(initialDelay: tick, delay: tick) { [weak self] task in
            guard let self else { return task.cancel() }
            self.directory.sweep(now: SignalRLoop.now)
            bound.value.tick()
        }
        return bound.value
    }

    /// Begins a connection on its event loop, which is the caller's; nil if it cannot be.
    func begin(
        id: String,
        offer: SignalRDirectory.Offer,
        transport: SignalRTransport,
        permit: SignalRPermit,
        on eventLoop: any EventLoop
    ) -> SignalRSession? {
        let session = SignalRSession(id: id, offer: offer, transport: transport, node: self, eventLoop: eventLoop)
        let reference = LoopReference(session, eventLoop: eventLoop)
        guard self.directory.add(reference, id: id, owner: permit.owner) else {
            SignalRMetrics.refused.increment()
            return nil
        }
        guard let application = permit.open(session) else {
            self.directory.remove(id)
            return nil
        }
        session.begin(application)
        self.loop(eventLoop).add(session)
        return session
    }

    /// A connection is gone; called on its loop.
    func end(_ session: SignalRSession, on eventLoop: any EventLoop) {
        self.directory.remove(session.id)
        self.loop(eventLoop).remove(session)
    }
}
