// Carillon · EngineIOServer.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Protocols
import Synchronization

/// What all connections of an endpoint share.
final class EngineIOServer: Sendable {
    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")

    let configuration: EngineIOConfiguration
    let directory: SessionDirectory<EngineIOConnection>
    /// Counts the polling sessions of strangers, by their addresses.
    let strangers: AddressTally
    let open: @Sendable (EngineIOOpening, any EventLoop) -> (any EngineIOApplication)?
    private let lastCarrier = Atomic<UInt64>(0)
    // Each roster is confined to its loop by the bound.
    private let rosters = Mutex<[ObjectIdentifier: NIOLoopBound<EngineIORoster>]>([:])

    init(
        configuration: EngineIOConfiguration,
        maximumPollingSessions: Int,
        maximumStrangers: Int,
        open: @escaping @Sendable (EngineIOOpening, any EventLoop) -> (any EngineIOApplication)?
    ) {
        self.configuration = configuration
        self.directory = SessionDirectory(limit: maximumPollingSessions)
        self.strangers = AddressTally(limit: maximumStrangers)
        self.open = open
    }

    /// A number for a request or a WebSocket.
    func carrier() -> EngineIOCarrier { EngineIOCarrier(self.lastCarrier.wrappingAdd(1, ordering: .relaxed).newValue) }

    /// A session's secret id: 120 random bits.
    func makeSid() -> String {
        String((0..<20).map { _ in Self.alphabet[Int.random(in: 0..<64)] })
    }

    /// The roster of a loop, to be called on it.
    func roster(on eventLoop: any EventLoop) -> EngineIORoster {
        self.rosters.withLock { rosters in
            if let bound = rosters[ObjectIdentifier(eventLoop)] { return bound }
            let bound = NIOLoopBound(EngineIORoster(eventLoop: eventLoop), eventLoop: eventLoop)
            rosters[ObjectIdentifier(eventLoop)] = bound
            return bound
        }.value
    }
}
