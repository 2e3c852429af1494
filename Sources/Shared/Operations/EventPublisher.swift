// Carillon · EventPublisher.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Metrics
import Storage
import Synchronization

/// Publishes events about users to upstream apps, after the change is stored.
///
/// Events are best effort: they are lost if Redis is unavailable or the process dies.
package struct EventPublisher: Sendable {
    private static let written = Counter(label: "carillon.events.written")
    private static let lost = Counter(label: "carillon.events.lost")

    private let log: EventLog?
    private let connection: RedisClient?
    private let logger: Logger?
    private let warnings = Warnings()

    /// Creates an instance that publishes nothing.
    package init() {
        self.log = nil
        self.connection = nil
        self.logger = nil
    }

    /// Creates an instance that publishes to a log, unless that is off.
    package init(log: EventLog, connection: RedisClient, logger: Logger) {
        self.log = log.isOn ? log : nil
        self.connection = connection
        self.logger = logger
    }

    /// Adds events to an existing batch; their replies come last.
    package func add(_ events: [LifecycleEvent], in batch: inout RedisBatch) {
        guard let log else { return }
        for event in events { log.add(event, in: &batch) }
    }

    /// Counts written and lost events by the replies of a batch.
    package func count(_ replies: ArraySlice<RedisReply>) {
        guard !replies.isEmpty else { return }
        var refused = 0
        var first: RedisError?
        for reply in replies {
            guard case .error(let error) = reply else { continue }
            refused += 1
            first = first ?? error
        }
        Self.written.increment(by: replies.count - refused)
        if let first { self.lose(refused, first) }
    }

    /// Writes events; counts and logs events that are lost because Redis does not take them.
    ///
    /// - Parameter isPatient: whether to wait for an unreachable server.
    package func publish(_ events: [LifecycleEvent], isPatient: Bool = true) async {
        guard let log, let connection else { return }
        self.count(await log.append(events, on: connection, isPatient: isPatient)[...])
    }

    /// Counts events that are lost because Redis did not take them; logs at most one warning a
    /// minute.
    package func lose(_ count: Int, _ error: RedisError) {
        guard self.log != nil, count > 0 else { return }
        Self.lost.increment(by: count)
        guard self.warnings.areDue() else { return }
        self.logger?.warning(
            "lost events for upstream apps; check Redis", metadata: ["count": "\(count)", "error": "\(error)"])
    }
}

/// Limits warnings to one a minute, because every call loses its events while Redis is unreachable.
private final class Warnings: Sendable {
    private let next = Mutex(ContinuousClock.now)

    /// Whether a warning is due; if so, defers the next one by a minute.
    func areDue() -> Bool {
        self.next.withLock { next in
            let now = ContinuousClock.now
            guard now >= next else { return false }
            next = now + .seconds(60)
            return true
        }
    }
}
