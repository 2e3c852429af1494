// Carillon · JobStream.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// A job in its stream.
package struct AppendedJob: Sendable, Equatable {
    package let stream: String
    package let entry: String
    /// The name of the job in answers: the entry's id, or `stream/entry` if several parts may use
    /// the same id.
    package let name: String
}

/// Appends jobs, as an upstream app may do with plain `XADD`.
package struct JobStream: Sendable {
    /// A lane with this many jobs takes no more; new ones are refused or wait at their source.
    package static let highWaterMark = 1_000_000

    let live: Live

    /// Appends jobs in one round trip.
    ///
    /// After an error some of the jobs may have been appended.
    ///
    /// - Returns: the jobs in their streams, in order.
    package func append(
        _ jobs: [(lane: Lane, fields: [(name: String, value: [UInt8])])]
    ) async throws(RedisError) -> [AppendedJob] {
        var batch = RedisBatch()
        let streams = jobs.map { self.stream(for: $0.lane, $0.fields) }
        for (job, stream) in zip(jobs, streams) { batch.append(entry: job.fields, to: stream) }
        var appended: [AppendedJob] = []
        for (stream, reply) in zip(streams, try await self.live.append(batch)) {
            let entry = try reply.string() ?? ""
            let name = self.live.keys.isSpread ? "\(stream)/\(entry)" : entry
            appended.append(AppendedJob(stream: stream, entry: entry, name: name))
        }
        return appended
    }

    /// Appends entries to their streams.
    ///
    /// In a cluster, a master that fails, or lacks replicas, fails only its own entries; a master
    /// that is away fails them at once.
    ///
    /// - Returns: the error of each entry, in order; nil if it was appended. An entry with an error
    ///   may have been appended all the same.
    package func appendEach(
        _ entries: [(stream: String, fields: [(name: String, value: [UInt8])])]
    ) async -> [RedisError?] {
        // A batch for each master, because WAIT answers for a whole batch.
        var shares: [String: (positions: [Int], batch: RedisBatch)] = [:]
        for (position, entry) in entries.enumerated() {
            let master = self.live.connection.master(of: entry.stream)
            shares[master, default: ([], RedisBatch())].positions.append(position)
            shares[master]?.batch.append(entry: entry.fields, to: entry.stream)
        }
        return await withTaskGroup(of: [(position: Int, error: RedisError?)].self) { group in
            for share in shares.values {
                group.addTask {
                    zip(share.positions, await self.errors(of: share.batch)).map { (position: $0, error: $1) }
                }
            }
            var errors = [RedisError?](repeating: nil, count: entries.count)
            for await share in group {
                for (position, error) in share { errors[position] = error }
            }
            return errors
        }
    }

    /// Appends entries, and returns the error of each; nil for none.
    private func errors(of batch: RedisBatch) async -> [RedisError?] {
        do throws(RedisError) {
            let replies = try await self.live.append(batch, isPatient: false)
            return replies.map { reply -> RedisError? in
                guard case .error(let error) = reply else { return nil }
                return error
            }
        } catch {
            return Array(repeating: error, count: batch.count)
        }
    }

    /// Returns the stream of a job, in the part of its user, so that all its work is in one place.
    ///
    /// For several users, their list determines the part; for none, the first field does.
    package func stream(for lane: Lane, _ fields: [(name: String, value: [UInt8])]) -> String {
        self.part(for: fields).jobs(lane)
    }

    private func part(for fields: [(name: String, value: [UInt8])]) -> Keyspace {
        guard self.live.keys.isSpread else { return self.live.keys }
        let named =
            fields.first { ExactText($0.name) == "user" } ?? fields.first { ExactText($0.name) == "users" }
            ?? fields.first
        return self.live.keys.part(of: String(decoding: named?.value ?? [], as: UTF8.self))
    }

    /// The reason why a job must wait at its source.
    package enum Shortage: Sendable, Equatable {
        case lane(Lane)
        case organisation(String)
    }

    /// Returns a lane or organisation without room for these jobs; nil if all have room.
    ///
    /// Checks only the streams of these jobs. Each part has an equal share of ``highWaterMark``.
    ///
    /// - Parameter jobs: the jobs; an organisation may be empty.
    package func shortage(
        for jobs: [(lane: Lane, org: String, fields: [(name: String, value: [UInt8])])]
    ) async throws(RedisError) -> Shortage? {
        let keys = self.live.keys
        var reasons: [ExactText: Shortage] = [:]
        for job in jobs {
            let part = self.part(for: job.fields)
            reasons[ExactText(part.jobs(job.lane))] = .lane(job.lane)
            if !job.org.isEmpty { reasons[ExactText(part.overflow(job.org))] = .organisation(job.org) }
        }
        let streams = Array(reasons.keys)
        var batch = RedisBatch()
        for stream in streams { batch.append("XLEN", .text(stream.text)) }
        let most = Self.highWaterMark / keys.parts.count
        for (stream, reply) in zip(streams, try await self.live.connection.send(batch)) {
            if try reply.integer() >= most { return reasons[stream] }
        }
        return nil
    }

    /// Returns the number of jobs in each lane, in one round trip; leaves out the streams of a
    /// server of a cluster that is away.
    package func lengths() async throws(RedisError) -> [Lane: Int] {
        var batch = RedisBatch()
        var lanes: [Lane] = []
        for keys in self.live.keys.jobSources {
            for lane in Lane.allCases {
                batch.append("XLEN", .text(keys.jobs(lane)))
                lanes.append(lane)
            }
        }
        var lengths: [Lane: Int] = [:]
        for (lane, reply) in zip(lanes, try await self.live.connection.send(batch, isPatient: false)) {
            if case .error(let error) = reply, error.isOfAbsentServer { continue }
            lengths[lane, default: 0] += Int(try reply.integer())
        }
        return lengths
    }
}
