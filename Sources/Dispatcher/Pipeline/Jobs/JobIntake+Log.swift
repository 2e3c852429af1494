// Carillon · JobIntake+Log.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import Storage

extension JobIntake {
    /// One line a job, by the id and the entry that whoever sent it was told.
    func log(_ jobs: [PreparedJob]) {
        guard self.dispatcher.logger.logLevel <= .debug else { return }
        for job in jobs {
            var metadata: Logger.Metadata = [
                "job.entry": "\(job.origin.entry)", "redis.stream": "\(job.origin.stream)",
                "notifications.count": "\(job.notifications.count)",
            ]
            metadata["job.id"] = job.notifications.first?.jobID.map { "\($0)" }
            self.dispatcher.logger.debug("job stored", metadata: metadata)
        }
    }
}
