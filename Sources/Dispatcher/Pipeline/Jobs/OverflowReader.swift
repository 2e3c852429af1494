// Carillon · OverflowReader.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import ServiceLifecycle
import Storage

/// Takes a batch of each organisation's overflow in turn, with the weight of the bulk lane.
struct OverflowReader: Sendable {
    private static let interval: Duration = .milliseconds(500)
    private static let batchSize = 64

    let dispatcher: Dispatcher
    let queue: LaneQueue<LaneBatch>

    func run() async {
        let streams = self.dispatcher.live.overflows
        var isFailing = false
        while goesOn {
            do {
                let count = try await self.round(streams)
                isFailing = false
                if count > 0 { continue }
            } catch {
                if !isFailing {
                    self.dispatcher.logger.warning("cannot read overflows", metadata: ["error": "\(error)"])
                }
                isFailing = true
            }
            // There may be any number of streams, and none most of the time: one look at their names is cheaper than
            // waiting on each.
            await pause(for: Self.interval)
        }
    }

    private func round(_ streams: OverflowStreams) async throws -> Int {
        var count = 0
        for org in try await streams.orgs() {
            // As for the lanes: nothing is read without a lease.
            guard goesOn, let term = self.dispatcher.leaseClock.term else { break }
            let group = self.dispatcher.group(self.dispatcher.keys.overflow(org))
            let entries = try await group.takeWaiting(count: Self.batchSize)
            guard !entries.isEmpty else {
                try await streams.dropIfEmpty(org)
                continue
            }
            count += entries.count
            PipelineMetrics.returned.increment(by: entries.count)
            self.dispatcher.inHand.take(entries.lazy.map(\.id), of: group.stream)
            let batch = LaneBatch(lane: .bulk, group: group, entries: entries, term: term)
            for part in batch.parts() { await self.queue.send(part, lane: .bulk) }
        }
        return count
    }
}
