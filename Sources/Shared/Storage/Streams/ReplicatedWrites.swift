// Carillon · ReplicatedWrites.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Synchronization

/// Writes that replicas must have before their source forgets them, so that they survive the loss
/// of Redis's master.
///
/// WAIT holds up its whole connection, so these writes have their own. While replicas are missing,
/// writes to the same master fail at once instead of waiting one after the other. In a cluster,
/// those to other masters go on. WAIT does not tell which of a batch's masters lacks replicas, so
/// after a batch to several masters, only batches to all of these fail at once.
package final class ReplicatedWrites: Sendable {
    /// How long a write waits for its replicas.
    private static let patience: Duration = .seconds(1)
    /// How long writes are refused after one was not replicated in time.
    private static let pause: Duration = .seconds(1)

    private let replicas: Int
    private let connection: RedisClient
    /// Until when batches to all of these masters are refused.
    private let pauses = Mutex<[Set<String>: ContinuousClock.Instant]>([:])

    /// - Parameters:
    ///   - replicas: how many replicas must have a write.
    ///   - connection: a connection that nothing else uses.
    package init(replicas: Int, on connection: RedisClient) {
        self.replicas = replicas
        self.connection = connection
    }

    /// Sends a batch, and waits until enough replicas have its writes.
    ///
    /// - Parameter isPatient: whether to wait for a server of a cluster that is away.
    /// - Throws: ``RedisError`` with code `notReplicated` if too few have them in time; the batch
    ///   has then run, unless an earlier one to its masters, or to some of them, failed in the last
    ///   second.
    func send(_ batch: RedisBatch, isPatient: Bool = true) async throws(RedisError) -> [RedisReply] {
        let masters = self.connection.masters(of: batch)
        let isPaused = self.pauses.withLock { pauses in
            let now = ContinuousClock.now
            pauses = pauses.filter { $0.value > now }
            return pauses.keys.contains { $0.isSubset(of: masters) }
        }
        guard !isPaused else { throw RedisError(.notReplicated, "the replicas are not up to date") }
        var batch = batch
        let milliseconds = Self.patience.inMilliseconds
        batch.append("WAIT", .integer(Int64(self.replicas)), .integer(milliseconds))
        do throws(RedisError) {
            var replies = try await self.connection.send(batch, isPatient: isPatient)
            let count = try replies.popLast()?.integer() ?? 0
            guard count >= Int64(self.replicas) else {
                throw RedisError(.notReplicated, "\(count) of \(self.replicas) replicas had the write in time")
            }
            return replies
        } catch {
            if error.code == .notReplicated || error.code == .timeout {
                let end = ContinuousClock.now + Self.pause
                self.pauses.withLock { $0[masters] = end }
            }
            throw error
        }
    }

    /// Closes its connection.
    package func close() async { await self.connection.close() }
}
