// Carillon · EventTeller.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Metrics
import Storage

/// Tells upstream apps what users did, after it was stored.
///
/// What was stored stands whether or not this arrives: an event is lost if Redis is out of reach or the process dies.
package struct EventTeller: Sendable {
    private static let written = Counter(label: "carillon.events.written")
    private static let lost = Counter(label: "carillon.events.lost")

    private let log: EventLog?
    private let connection: RedisConnection?
    private let logger: Logger?

    /// Tells nobody.
    package init() {
        self.log = nil
        self.connection = nil
        self.logger = nil
    }

    package init(log: EventLog, connection: RedisConnection, logger: Logger) {
        self.log = log.isOn ? log : nil
        self.connection = connection
        self.logger = logger
    }

    /// Adds events to a batch that is sent anyway; their replies come at its end.
    func add(_ events: [LifecycleEvent], in batch: inout RedisBatch) {
        guard let log else { return }
        for event in events { log.add(event, in: &batch) }
    }

    /// Counts what became of events that were in a batch, by their replies.
    func note(_ replies: some Collection<RedisReply>) {
        guard !replies.isEmpty else { return }
        let refused = replies.count { if case .error = $0 { true } else { false } }
        Self.written.increment(by: replies.count - refused)
        if refused > 0 { Self.lost.increment(by: refused) }
    }

    /// Writes events.
    package func tell(_ events: [LifecycleEvent]) async {
        guard let log, let connection, !events.isEmpty else { return }
        do throws(RedisError) {
            try await log.append(events, on: connection)
            Self.written.increment(by: events.count)
        } catch {
            Self.lost.increment(by: events.count)
            self.logger?.warning("events lost", metadata: ["count": "\(events.count)", "error": "\(error)"])
        }
    }
}
