// Carillon · DeadLetterQueue.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import Storage

/// Stores dead letters in PostgreSQL.
struct DeadLetterQueue: Sendable {
    private static let batchSize = 100
    /// The bytes at which a batch ends, so that PostgreSQL stores it in time.
    private static let batchBytes = 4 * 1_048_576
    private static let longestReason = 200

    let dispatcher: Dispatcher

    /// Stores letters; returns when PostgreSQL has them.
    ///
    /// An entry that is set aside twice has one row and is counted once. The log may name it again,
    /// with the new letters of its batch.
    ///
    /// - Parameters:
    ///   - isPatient: whether to retry until it has them. If not, the first error is thrown, for
    ///     callers that hold a transaction open.
    ///   - replacesKnown: whether they replace letters that have another reason or whose replay is
    ///     scheduled.
    func setAside(_ letters: [DeadLetter], isPatient: Bool = true, replacesKnown: Bool = false) async throws {
        var rest = letters[...]
        while !rest.isEmpty {
            var size = 0
            let batch = Array(
                rest.prefix(Self.batchSize).prefix { letter in
                    defer { size += letter.size }
                    return size < Self.batchBytes
                })
            rest = rest.dropFirst(batch.count)
            var attempts = 0
            let stored: Int = try await self.dispatcher.retrying("store dead letters", isFinal: { _ in !isPatient }) {
                attempts += 1
                return try await self.dispatcher.database.deadLetters.add(batch, replacesKnown: replacesKnown)
            }
            // A failed attempt may have stored them without returning their number.
            let count = attempts == 1 ? stored : batch.count
            guard count > 0 else { continue }
            PipelineMetrics.dead.increment(by: count)
            self.log(batch, count: count)
        }
    }

    /// Logs one line per batch, because bad entries come in floods; each letter at level debug.
    ///
    /// - Parameter count: the number of letters that were not stored before.
    private func log(_ batch: [DeadLetter], count: Int) {
        guard let first = batch.first else { return }
        var metadata = Self.metadata(of: first)
        metadata["count"] = "\(count)"
        self.dispatcher.logger.warning("moved entries to the dead-letter queue", metadata: metadata)
        guard self.dispatcher.logger.logLevel <= .debug else { return }
        for letter in batch { self.dispatcher.logger.debug("dead letter", metadata: Self.metadata(of: letter)) }
    }

    private static func metadata(of letter: DeadLetter) -> Logger.Metadata {
        // A reason may quote a job's field names, which may be long.
        let reason = String(letter.reason.unicodeScalars.prefix(Self.longestReason))
        var metadata: Logger.Metadata = [
            "redis.entry": "\(letter.entry)", "redis.stream": "\(letter.stream)", "reason": "\(reason)",
        ]
        if let id = letter.fields.first(where: { ExactText($0.name) == "id" }) {
            metadata["job.id"] = "\(String(decoding: id.value.prefix(Self.longestReason), as: UTF8.self))"
        }
        return metadata
    }
}
