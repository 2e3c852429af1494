// Carillon · OverflowStreams.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Jobs of a part that were moved aside so that others can pass: one stream per organisation, and
/// the set of organisations with a stream.
///
/// At ``JobStream/highWaterMark`` the gateway refuses an organisation's jobs, and the outbox holds
/// them back. Redis's memory bounds those that an app appends itself: a job takes as much of it
/// here as in its lane.
package struct OverflowStreams: Sendable {
    /// A job that leaves its lane.
    package typealias Job = (org: String, fields: [(name: String, value: [UInt8])])

    let live: Live

    /// Appends jobs that leave a lane of this part, in one round trip.
    ///
    /// - Parameters:
    ///   - jobs: the jobs; afterwards those whose append failed.
    ///   - orgs: the organisations of all jobs, also of those that an earlier try appended.
    /// - Throws: ``RedisError`` with code `notReplicated` if the jobs are on another master than
    ///   their lane, and too few replicas have them.
    package func append(_ jobs: inout [Job], of orgs: Set<ExactText>) async throws(RedisError) {
        var batch = RedisBatch()
        // Before the jobs, so that they are found if Redis gets only the start of the batch.
        for org in orgs.map(\.text) { batch.append("SADD", .text(self.keys(of: org).overflows), .text(org)) }
        for job in jobs { batch.append(entry: job.fields, to: self.keys(of: job.org).overflow(job.org)) }
        // After the jobs, too, as another process may have removed the organisation in between.
        for org in orgs.map(\.text) { batch.append("SADD", .text(self.keys(of: org).overflows), .text(org)) }
        // A replica of their lane's master has the jobs before it learns that they left the lane.
        let isOneMaster = !self.live.connection.isCluster || self.live.keys.index != nil
        let replies = try await isOneMaster ? self.live.connection.send(batch) : self.live.append(batch)
        jobs.keepFailed(by: replies.dropFirst(orgs.count))
        for reply in replies { _ = try reply.checked() }
    }

    /// The keys of the part that takes an organisation's jobs.
    private func keys(of org: String) -> Keyspace { self.live.keys.overflowPart(of: org) }

    /// The organisations with an overflow in each of these parts, by name, in one round trip.
    ///
    /// - Returns: a result for each part; one whose server is away fails at once.
    package func orgs(in parts: [Keyspace]) async throws(RedisError) -> [Result<[String], RedisError>] {
        var batch = RedisBatch()
        for keys in parts { batch.append("SMEMBERS", .text(keys.overflows)) }
        var results: [Result<[String], RedisError>] = []
        for reply in try await self.live.connection.send(batch, isPatient: false) {
            do throws(RedisError) {
                results.append(.success(try reply.strings().sorted()))
            } catch {
                results.append(.failure(error))
            }
        }
        return results
    }

    /// The organisations with at least `count` jobs in the overflows of all parts together.
    ///
    /// Leaves out the overflows on a server of a cluster that is away.
    package func orgs(withAtLeast count: Int) async throws(RedisError) -> [String] {
        let sources = self.live.keys.jobSources
        var batch = RedisBatch()
        var names: [ExactText] = []
        for (keys, result) in zip(sources, try await self.orgs(in: sources)) {
            guard case .success(let orgs) = result else { continue }
            for org in orgs {
                batch.append("XLEN", .text(keys.overflow(org)))
                names.append(ExactText(org))
            }
        }
        guard !batch.isEmpty else { return [] }
        var lengths: [ExactText: Int] = [:]
        for (name, reply) in zip(names, try await self.live.connection.send(batch, isPatient: false)) {
            if case .error(let error) = reply, error.isOfAbsentServer { continue }
            lengths[name, default: 0] += Int(try reply.integer())
        }
        return lengths.filter { $0.value >= count }.map(\.key.text)
    }

    /// Removes an organisation's overflow if it is empty.
    package func dropIfEmpty(_ org: String) async throws(RedisError) {
        try await self.live.connection.run(
            StreamScripts.dropOverflow,
            keys: [.text(self.live.keys.overflows), .text(self.live.keys.overflow(org))],
            arguments: [.text(org)]
        )
    }
}
