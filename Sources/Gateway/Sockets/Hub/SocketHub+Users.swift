// Carillon · SocketHub+Users.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import NIOCore
import Synchronization

/// What concerns all sockets of a user on this node.
extension SocketHub {
    private static let mostWatched = 10_000

    /// Removes presences that stayed behind.
    ///
    /// Presence is read before the sockets are counted, so that a socket which comes meanwhile is not taken for a ghost.
    func serveGhosts() async {
        while let batch = await self.ghosts.next(limit: Self.batchSize) {
            for user in ExactText.distinct(batch) {
                guard let registered = try? await self.backend.registered(user: user), !registered.isEmpty else {
                    continue
                }
                var here: Set<String> = []
                for eventLoop in self.eventLoops {
                    here.formUnion(
                        (try? await eventLoop.submit { self.shard(on: eventLoop)?.connections(of: user) ?? [] }.get())
                            ?? []
                    )
                }
                let ghosts = registered.filter { !here.contains($0) }
                guard !ghosts.isEmpty else { continue }
                SocketMetrics.ghosts.increment(by: ghosts.count)
                try? await self.backend.close(ghosts.map { (user, $0) })
            }
        }
    }

    /// Closes the oldest sockets of users who have too many.
    ///
    /// The newest is where the user is; an old one is often a connection whose client is gone already.
    func serveCrowds() async {
        while let batch = await self.crowds.next(limit: Self.batchSize) {
            for user in ExactText.distinct(batch) {
                var crowd: [(openedAt: NIODeadline, reference: LoopReference<SocketSession>)] = []
                for eventLoop in self.eventLoops {
                    crowd +=
                        (try? await eventLoop.submit { self.shard(on: eventLoop)?.crowd(of: user) ?? [] }.get()) ?? []
                }
                self.watch(user, isCrowd: crowd.count > self.loopShare)
                let excess = crowd.count - self.configuration.connectionsPerUser
                guard excess > 0 else { continue }
                SocketMetrics.crowded.increment(by: excess)
                for (_, reference) in crowd.sorted(by: { $0.openedAt < $1.openedAt }).prefix(excess) {
                    reference.call { socket in
                        socket.close(.tooManyConnections)
                        socket.flush()
                    }
                }
            }
        }
    }

    private func watch(_ user: String, isCrowd: Bool) {
        self.watched.withLock { watched in
            if watched.count >= Self.mostWatched { watched = [] }
            if isCrowd { watched.insert(ExactText(user)) } else { watched.remove(ExactText(user)) }
        }
    }

    func servePresences() async {
        while let batch = await self.presences.next(limit: Self.batchSize) {
            await self.persist("focus cannot be recorded", tries: 3, count: batch.count) {
                try await self.backend.setStates(batch)
            }
        }
    }
}
