// Carillon · DeadLetterOffice.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import Redis
import Stores
import Streams

/// Sets work aside: in PostgreSQL first, then in the dead stream.
struct DeadLetterOffice: Sendable {
    private static let batchSize = 100

    let dispatcher: Dispatcher

    /// Returns when both have the letters.
    ///
    /// An entry that is set aside twice has one row, and may stand twice in the stream.
    func setAside(_ letters: [DeadLetter]) async throws {
        var rest = letters[...]
        while !rest.isEmpty {
            let batch = Array(rest.prefix(Self.batchSize))
            rest = rest.dropFirst(batch.count)
            try await self.dispatcher.untilDone("store dead letters") {
                try await self.dispatcher.deadLetters.add(
                    batch.map { ($0.stream, $0.entry, $0.reason, $0.at, $0.fields) }
                )
            }
            try await self.dispatcher.untilDone("append dead letters") {
                var commands = RedisBatch()
                for letter in batch { DeadStream(keys: self.dispatcher.keys).add(letter, in: &commands) }
                for reply in try await self.dispatcher.redis.send(commands) { _ = try reply.checked() }
            }
            PipelineMetrics.dead.increment(by: batch.count)
        }
    }
}
