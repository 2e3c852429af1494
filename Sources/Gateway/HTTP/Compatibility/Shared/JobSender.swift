// Carillon · JobSender.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Storage

/// Appends single jobs: the test sends of several systems.
struct JobSender {
    let services: APIServices

    /// Checks a job as the dispatcher does, and appends it to its type's lane.
    ///
    /// - Parameter fields: of the job, without `type` and `id`.
    /// - Returns: the job's id.
    /// - Throws: `Problem` 422 with every fault, or 503 if too much waits.
    func send(_ type: NotificationType, _ fields: [(name: String, value: String)]) async throws -> String {
        let id = NotificationID(high: .random(in: .min ... .max), low: .random(in: .min ... .max)).asRandomUUID
        let named = [("type", type.name), ("id", id.description)] + fields
        let bytes = named.map { (name: $0.0, value: Array($0.1.utf8)) }
        do throws(JobFaults) {
            _ = try self.services.catalog.job(bytes.map { ($0.name, $0.value[...]) })
        } catch {
            throw Problem(.unprocessableContent, "some fields are at fault", faults: error.faults)
        }
        try await self.services.requireRoom(in: [type.lane])
        _ = try await self.services.jobs.append([(type.lane, bytes)])
        return id.description
    }
}
