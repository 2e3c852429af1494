// Carillon · ReplicatedWrites.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Synchronization

/// Writes that replicas must have before their source forgets them, so that they survive the loss
/// of Redis's master.
///
/// WAIT blocks its whole connection, so these writes have their own. While replicas are missing,
/// writes to the same master fail at once instead of waiting one after the other. A failed batch
/// leaves its jobs in Redis, and each retry by their source would add them again. So once a second
/// one write first checks whether the replicas have caught up, and is sent only if they have.
/// Replicas that always lag by more than a second still cause repeats: by the next retry they have
/// caught up with the failed batch, so the check passes.
///
/// In a cluster, writes to other masters go on. WAIT does not say which of a batch's masters lacks
/// replicas. So after a batch to several masters fails, only batches to all of these masters fail
/// at once.
package final class ReplicatedWrites: Sendable {
    /// How long a write waits for its replicas.
    private static let patience: Duration = .seconds(1)
    /// How long writes are refused after one was not replicated in time.
    private static let pause: Duration = .seconds(1)
    /// The time limit of a batch, which waits behind the WAITs before it.
    ///
    /// Connections that renew leases may have a shorter one; these writes renew none.
    private static let timeLimit: Duration = .seconds(5)
    /// How long a failure is remembered if no further batch goes to its masters.
    private static let memory: Duration = .seconds(600)

    private let replicas: Int
    private let connection: RedisClient
    /// When the refusal of batches to all of these masters ends; the next batch must check the
    /// replicas.
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
    ///   has then run, unless replicas still lack an earlier batch to some of its masters.
    func send(_ batch: RedisBatch, isPatient: Bool = true) async throws(RedisError) -> [RedisReply] {
        let masters = self.connection.masters(of: batch)
        let mustAsk = try self.mustAsk(masters)
        do throws(RedisError) {
            if mustAsk {
                _ = try await self.sendAndWait(batch.probe, isPatient: isPatient)
                self.pauses.withLock { pauses in pauses = pauses.filter { !$0.key.isSubset(of: masters) } }
            }
            return try await self.sendAndWait(batch, isPatient: isPatient)
        } catch {
            if error.code == .notReplicated || error.code == .timeout {
                let end = ContinuousClock.now + Self.pause
                self.pauses.withLock { $0[masters] = end }
            }
            throw error
        }
    }

    /// Returns whether an earlier batch to these masters, or to some of them, has failed.
    ///
    /// - Throws: ``RedisError`` with code `notReplicated` while further batches are refused.
    private func mustAsk(_ masters: Set<String>) throws(RedisError) -> Bool {
        let now = ContinuousClock.now
        let mustAsk = self.pauses.withLock { pauses -> Bool? in
            pauses = pauses.filter { now - $0.value < Self.memory }
            let own = pauses.filter { $0.key.isSubset(of: masters) }
            guard own.values.allSatisfy({ $0 <= now }) else { return nil }
            // While one batch checks, the others are refused.
            for key in own.keys { pauses[key] = now + Self.patience + Self.pause }
            return !own.isEmpty
        }
        if let mustAsk { return mustAsk }
        throw RedisError(.notReplicated, "the replicas are not up to date")
    }

    /// Sends a batch, and waits for the replicas of its masters.
    private func sendAndWait(_ batch: RedisBatch, isPatient: Bool) async throws(RedisError) -> [RedisReply] {
        var batch = batch
        batch.append("WAIT", .integer(Int64(self.replicas)), .integer(Self.patience.inMilliseconds))
        var replies = try await self.connection.send(batch, timeout: Self.timeLimit, isPatient: isPatient)
        let count = try replies.popLast()?.integer() ?? 0
        guard count >= Int64(self.replicas) else {
            throw RedisError(.notReplicated, "\(count) of \(self.replicas) replicas had the write in time")
        }
        return replies
    }

    /// Closes its connection.
    package func close() async { await self.connection.close() }
}
