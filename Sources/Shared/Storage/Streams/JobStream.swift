// Carillon · JobStream.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Appends jobs, as any upstream app may do with plain `XADD`.
package struct JobStream: Sendable {
    /// At this many waiting jobs in a lane, new ones are refused or wait where they are.
    package static let highWaterMark = 1_000_000

    let live: Live

    /// Appends jobs in one round trip.
    ///
    /// - Returns: the entry ids, in order. When it throws, some of the jobs may have been appended.
    package func append(
        _ jobs: [(lane: Lane, fields: [(name: String, value: [UInt8])])]
    ) async throws(RedisError) -> [String] {
        var batch = RedisBatch()
        for job in jobs {
            batch.begin(argumentCount: 3 + job.fields.count * 2)
            batch.argument("XADD")
            batch.argument(.text(self.live.keys.jobs(job.lane)))
            batch.argument("*")
            for field in job.fields {
                batch.argument(.text(field.name))
                batch.argument(.bytes(field.value))
            }
        }
        var ids: [String] = []
        for reply in try await self.live.connection.send(batch) { ids.append(try reply.string() ?? "") }
        return ids
    }

    /// How many jobs wait in a lane, those being worked on included.
    package func length(_ lane: Lane) async throws(RedisError) -> Int {
        Int(try await self.live.connection.send("XLEN", .text(self.live.keys.jobs(lane))).integer())
    }

    /// How many jobs wait in each lane, in one round trip.
    package func lengths() async throws(RedisError) -> [Lane: Int] {
        var batch = RedisBatch()
        for lane in Lane.allCases { batch.append("XLEN", .text(self.live.keys.jobs(lane))) }
        var lengths: [Lane: Int] = [:]
        for (lane, reply) in zip(Lane.allCases, try await self.live.connection.send(batch)) {
            lengths[lane] = Int(try reply.integer())
        }
        return lengths
    }
}
