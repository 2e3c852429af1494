// Carillon · OverflowStreams.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

/// Jobs that were moved out of the others' way: a stream an organisation, and the set of organisations that have one.
package struct OverflowStreams: Sendable {
    /// How many jobs an organisation's overflow holds; beyond it they stay where they are.
    package static let bound = 1_000_000

    let live: Live

    /// Appends jobs in one round trip.
    ///
    /// - Returns: how many jobs each organisation's overflow holds now.
    package func append(
        _ jobs: [(org: String, fields: [(name: String, value: [UInt8])])]
    ) async throws(RedisError) -> [String: Int] {
        var batch = RedisBatch()
        for job in jobs {
            batch.begin(argumentCount: 3 + job.fields.count * 2)
            batch.argument("XADD")
            batch.argument(.text(self.live.keys.overflow(job.org)))
            batch.argument("*")
            for field in job.fields {
                batch.argument(.text(field.name))
                batch.argument(.bytes(field.value))
            }
        }
        let orgs = Array(Set(jobs.map(\.org)))
        let first = batch.count
        // After its jobs, so that nobody forgets it in between.
        for org in orgs {
            batch.append("SADD", .text(self.live.keys.overflows), .text(org))
            batch.append("XLEN", .text(self.live.keys.overflow(org)))
        }
        let replies = try await self.live.connection.send(batch)
        for reply in replies { _ = try reply.checked() }
        var lengths: [String: Int] = [:]
        for (place, org) in orgs.enumerated() {
            lengths[org] = Int(try replies[first + 2 * place + 1].integer())
        }
        return lengths
    }

    /// The organisations that have an overflow, in the order of their names.
    package func orgs() async throws(RedisError) -> [String] {
        try await self.live.connection.send("SMEMBERS", .text(self.live.keys.overflows)).strings().sorted()
    }

    /// Forgets an organisation's overflow if nothing is left in it.
    package func dropIfEmpty(_ org: String) async throws(RedisError) {
        try await self.live.connection.run(
            StreamScripts.dropOverflow,
            keys: [.text(self.live.keys.overflows), .text(self.live.keys.overflow(org))],
            arguments: [.text(org)]
        )
    }
}
