// Carillon · SummaryFaults.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import Synchronization

/// The types whose summaries the catalog's words did not fit: each is told once, however many summaries it makes.
final class SummaryFaults: Sendable {
    private let types = Mutex<Set<String>>([])

    /// Counts a fault, and tells of it if it is the type's first.
    func note(_ fault: JobFault, type: String, logger: Logger) {
        PipelineMetrics.faultySummaries.increment()
        guard self.types.withLock({ $0.insert(type).inserted }) else { return }
        logger.warning("a summary's words ask for what is not there", metadata: ["error": "\(fault)"])
    }
}
