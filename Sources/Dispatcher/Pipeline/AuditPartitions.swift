// Carillon · AuditPartitions.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Storage
import Synchronization

/// The daily partitions of the audit: the sweep creates those for the days ahead, and retention
/// drops old ones.
///
/// While either waits for a reader's lock, writes to the audit wait too. A dump may hold its lock
/// for hours, so the next try comes after a pause.
struct AuditPartitions: Sendable {
    /// How often a dispatcher creates partitions.
    private static let interval: Duration = .seconds(3_600)
    private static let pause: Duration = .seconds(600)

    let dispatcher: Dispatcher
    private let creationDue = DueTime()
    private let dropsDue = DueTime()

    /// Whether to create partitions.
    var areDue: Bool { self.creationDue.isOver }

    /// Creates the partitions for the days ahead, unless a dispatcher failed to in the last ten
    /// minutes.
    ///
    /// A failure is harmless, because partitions exist seven days ahead.
    func create() async throws {
        let (redis, failure) = (self.dispatcher.redis, RedisArgument.text(self.dispatcher.keys.partsFailure))
        let pause = Self.pause.inMilliseconds
        let left = try await redis.send("PTTL", failure).integer()
        // A longer pause counts as over: Redis's clock has stepped back.
        guard left <= 0 || left > pause else { return }
        do {
            try await self.dispatcher.database.deliveries.makeAttemptPartitions()
            self.creationDue.set(in: Self.interval)
        } catch {
            self.dispatcher.logger.warning(
                "cannot create the audit's partitions; retrying in ten minutes", metadata: ["error": "\(error)"])
            try await redis.send("SET", failure, "", "PX", .integer(pause))
        }
    }

    /// Drops the oldest partition if it ends before the day of `firstKept`.
    ///
    /// - Returns: false if there is none, or during the pause after a failed drop.
    func drop(firstKept: Timestamp) async throws(PostgresError) -> Bool {
        guard self.dropsDue.isOver else { return false }
        do throws(PostgresError) {
            let retention = self.dispatcher.database.retention
            guard let name = try await retention.dropAttemptPartition(firstKept: firstKept) else { return false }
            self.dispatcher.logger.info("dropped a partition of the audit", metadata: ["partition": "\(name)"])
            return true
        } catch {
            guard error.sqlState == "55P03" else { throw error }
            self.dropsDue.set(in: Self.pause)
            self.dispatcher.logger.warning(
                "cannot drop a partition of the audit while it is read; retrying in ten minutes",
                metadata: ["error": "\(error)"])
            return false
        }
    }
}

/// The moment at which something is due; initially now.
private final class DueTime: Sendable {
    private let moment = Mutex(ContinuousClock.now)

    var isOver: Bool { self.moment.withLock { $0 } <= ContinuousClock.now }

    func set(in pause: Duration) {
        self.moment.withLock { $0 = ContinuousClock.now + pause }
    }
}
