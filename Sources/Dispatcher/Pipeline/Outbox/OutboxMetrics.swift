// Carillon · OutboxMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Metrics
import Storage

/// The metrics of one outbox.
struct OutboxMetrics: Sendable {
    /// Rows that were moved to their streams by this dispatcher.
    let moved: Counter
    /// Looks that found a lane full, so that rows stayed where they are.
    let held: Counter
    private let waiting: Meter
    private let age: Meter

    init(database: String) {
        let dimensions = [("database", database)]
        self.moved = Counter(label: "carillon.outbox.moved", dimensions: dimensions)
        self.held = Counter(label: "carillon.outbox.held", dimensions: dimensions)
        self.waiting = Meter(label: "carillon.outbox.waiting", dimensions: dimensions)
        self.age = Meter(label: "carillon.outbox.age", dimensions: dimensions)
    }

    func note(_ backlog: OutboxStore.Backlog, now: Timestamp) {
        self.waiting.set(Int64(backlog.count))
        let age = backlog.oldest.map { max(0, (now - $0).inMicroseconds) } ?? 0
        self.age.set(Double(age) / 1_000_000)
    }
}
