// Carillon · EventPublisher.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Metrics
import Storage

/// Publishes events about users to upstream apps, after the change is stored.
///
/// Events are best effort: they are lost if Redis is unavailable or the process dies.
package struct EventPublisher: Sendable {
    private static let written = Counter(label: "carillon.events.written")
    private static let lost = Counter(label: "carillon.events.lost")

    private let log: EventLog?
    private let connection: RedisClient?
    private let logger: Logger?

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
    package func note(_ replies: ArraySlice<RedisReply>) {
        guard !replies.isEmpty else { return }
        let refused = replies.count { if case .error = $0 { true } else { false } }
        Self.written.increment(by: replies.count - refused)
        if refused > 0 { Self.lost.increment(by: refused) }
    }

    /// Writes events; counts and logs those that Redis does not take, which are lost.
    package func publish(_ events: [LifecycleEvent]) async {
        guard let log, let connection, !events.isEmpty else { return }
        do throws(RedisError) {
            try await log.append(events, on: connection)
            Self.written.increment(by: events.count)
        } catch {
            self.lose(events.count, error)
        }
    }

    /// Counts and logs events that Redis did not take, which are lost.
    package func lose(_ count: Int, _ error: RedisError) {
        guard self.log != nil, count > 0 else { return }
        Self.lost.increment(by: count)
        self.logger?.warning(
            "lost events for upstream apps; check Redis", metadata: ["count": "\(count)", "error": "\(error)"])
    }
}
