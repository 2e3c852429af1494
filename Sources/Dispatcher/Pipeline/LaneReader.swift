// Carillon · LaneReader.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import ServiceLifecycle
import Storage

/// Takes batches from one stream and offers them to the workers, until the process shuts down.
struct LaneReader: Sendable {
    private static let block: Duration = .seconds(1)
    private static let leasePoll: Duration = .milliseconds(200)

    let lane: Lane
    let group: ConsumerGroup
    /// A connection of its own, as it blocks.
    let connection: RedisConnection
    let count: Int
    let queue: LaneQueue<LaneBatch>
    let inHand: EntriesInHand
    let leaseClock: LeaseClock
    let logger: Logger

    /// The Redis that the reader reads from, as far as it is known.
    private struct Source {
        var session = 0
        var run: String?
        /// Entries appended before this may have been taken before; Unix milliseconds by Redis's
        /// clock.
        ///
        /// A Redis that came back without its last second has forgotten what it handed out in it.
        var firstSure: Int64 = 0
    }

    func run() async throws {
        let backoff = Backoff(base: .milliseconds(50), limit: .seconds(2))
        var failures = 0
        var source = Source()
        while goesOn {
            // Without a lease, others may take over each entry at once. The term is taken before
            // the read: the process may stand still between Redis's reply and its next step.
            guard let term = self.leaseClock.term else {
                await pause(for: Self.leasePoll)
                continue
            }
            do {
                let entries = try await self.group.read(on: self.connection, count: self.count, block: Self.block)
                failures = 0
                guard !entries.isEmpty else { continue }
                // Entries that are not in hand when this fails are found as a lost reply.
                try await self.look(at: &source)
                self.inHand.take(entries.lazy.map(\.id), of: self.group.stream)
                var batch = LaneBatch(lane: self.lane, group: self.group, entries: entries, term: term)
                batch.firstSure = source.firstSure
                for part in batch.parts() { await self.queue.send(part, lane: self.lane) }
            } catch {
                if failures == 0 {
                    self.logger.warning(
                        "cannot read stream",
                        metadata: ["redis.stream": "\(self.group.stream)", "error": "\(error)"]
                    )
                }
                // Backoff before the next read; Redis does not signal when it is back.
                try? await Task.sleep(for: backoff.delay(attempt: failures))
                failures += 1
            }
        }
    }

    /// Asks which Redis it is, if the connection was made anew since.
    private func look(at source: inout Source) async throws {
        let session = self.connection.session
        guard session != source.session else { return }
        if let run = try await RedisRun.ask(self.connection) {
            // A replica that took over is as old as it is, and may lack what its master had last.
            source.firstSure = source.run == nil || source.run == run.id ? run.startedAt : run.now
            source.run = run.id
        }
        source.session = session
    }
}
