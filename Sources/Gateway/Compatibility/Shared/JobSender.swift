// Carillon · JobSender.swift
// SPDX-License-Identifier: Apache-2.0

import API
import Catalog
import HTTPTypes
import Model
import Streams

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
            _ = try JobDecoder.decode(bytes.map { ($0.name, $0.value[...]) }) { self.services.catalog[$0] != nil }
        } catch {
            throw Problem(.unprocessableContent, "some fields are at fault", faults: error.faults)
        }
        guard try await self.services.jobs.length(type.lane) < JobStream.highWaterMark else {
            throw Problem(.serviceUnavailable, "too many jobs wait in lane \(type.lane.rawValue)", retryAfter: 5)
        }
        _ = try await self.services.jobs.append([(type.lane, bytes)])
        return id.description
    }
}
