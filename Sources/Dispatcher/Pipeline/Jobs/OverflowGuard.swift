// Carillon · OverflowGuard.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import Storage
import Synchronization

/// When jobs of an organisation go to its overflow.
package struct OverflowPolicy: Sendable {
    /// How many jobs wait in a lane before anything is moved.
    package var backlog: Int
    /// How many jobs an organisation has its turn with in a minute in any case, at each dispatcher.
    package var leastShare: Int

    package init(backlog: Int, leastShare: Int = 1_000) {
        self.backlog = backlog
        self.leastShare = leastShare
    }
}

/// Moves jobs of an organisation that has had its share to the organisation's overflow, so that those behind them get their
/// turn; only while a lane is long.
///
/// The overflow has a job before it leaves its lane. A crash in between leaves it in both, with the same origin and so the
/// same ids. Jobs without an organisation stay.
final class OverflowGuard: Sendable {
    private static let interval: Duration = .seconds(1)

    private struct State {
        var windows: [Lane: OrgWindow] = [:]
        var backlogs: [Lane: Int] = [:]
        /// Organisations whose overflow is full, as of a moment ago.
        var full: Set<String> = []
    }

    private let dispatcher: Dispatcher
    private let policy: OverflowPolicy
    private let streams: OverflowStreams
    private let state = Mutex(State())

    init(dispatcher: Dispatcher, policy: OverflowPolicy) {
        self.dispatcher = dispatcher
        self.policy = policy
        self.streams = dispatcher.live.overflows
    }

    /// Looks how long the lanes are, until the process shuts down.
    func watch() async {
        let jobs = self.dispatcher.live.jobs
        while goesOn {
            if let lengths = try? await jobs.lengths() {
                self.state.withLock { state in
                    state.backlogs = lengths
                    state.full = []
                }
            }
            // A stream tells nobody how long it is.
            await pause(for: Self.interval)
        }
    }

    /// What is left of a batch when the excess has been moved.
    func relieve(_ batch: LaneBatch) async throws -> LaneBatch {
        let excess = self.excess(batch)
        guard !excess.isEmpty else { return batch }
        let jobs = excess.map { item in
            let origin = JobOrigin(stream: batch.group.stream, entry: item.entry.id, fields: item.entry.fields ?? [])
            return (org: item.org, fields: origin.movedFields)
        }
        let lengths = try await self.dispatcher.untilDone("move jobs to the overflow") {
            try await self.streams.append(jobs)
        }
        let full = lengths.filter { $0.value >= OverflowStreams.bound }.map(\.key)
        if !full.isEmpty { self.state.withLock { $0.full.formUnion(full) } }
        let ids = Set(excess.map(\.entry.id))
        try await self.dispatcher.acknowledge(Array(ids), batch.group)
        PipelineMetrics.overflowed.increment(by: excess.count)
        return batch.with(batch.entries.filter { !ids.contains($0.id) })
    }

    private func excess(_ batch: LaneBatch) -> [(org: String, entry: StreamEntry)] {
        let now = self.dispatcher.now()
        return self.state.withLock { state in
            guard state.backlogs[batch.lane, default: 0] >= self.policy.backlog else { return [] }
            var window = state.windows[batch.lane] ?? OrgWindow(leastShare: self.policy.leastShare)
            // Taken out, so that its dictionaries are changed where they are.
            state.windows[batch.lane] = nil
            defer { state.windows[batch.lane] = window }
            return batch.entries.compactMap { entry in
                guard let org = Self.org(entry), !state.full.contains(org), !window.take(org, at: now) else {
                    return nil
                }
                return (org, entry)
            }
        }
    }

    /// The organisation that a job names; nil if it names none, or none that can be.
    private static func org(_ entry: StreamEntry) -> String? {
        guard let bytes = entry["org"], !bytes.isEmpty, bytes.count <= 4 * JobLimits.org else { return nil }
        return String(validating: bytes, as: UTF8.self)
    }
}
