// Carillon · JobStream.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The stream entry of an appended job.
package struct JobPlace: Sendable, Equatable {
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
    /// - Returns: the place of each, in order.
    package func append(
        _ jobs: [(lane: Lane, fields: [(name: String, value: [UInt8])])]
    ) async throws(RedisError) -> [JobPlace] {
        var batch = RedisBatch()
        let streams = jobs.map { self.stream(for: $0.lane, $0.fields) }
        for (job, stream) in zip(jobs, streams) { batch.append(entry: job.fields, to: stream) }
        var places: [JobPlace] = []
        for (stream, reply) in zip(streams, try await self.live.append(batch)) {
            let entry = try reply.string() ?? ""
            let name = self.live.keys.isSpread ? "\(stream)/\(entry)" : entry
            places.append(JobPlace(stream: stream, entry: entry, name: name))
        }
        return places
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

/// Jobs of a part that were moved aside so that others can pass: one stream per organisation, and
/// the set of organisations with a stream.
package struct OverflowStreams: Sendable {
    /// The number of jobs that an organisation's overflow holds in all parts together, an equal
    /// share in each; further jobs stay in their lane.
    ///
    /// A job takes as much memory here as in its lane. The gateway refuses an organisation's jobs
    /// much earlier, at ``JobStream/highWaterMark``, and the outbox holds them back.
    package static let bound = 20_000_000

    let live: Live

    /// Appends jobs that leave a lane of this part, in one round trip.
    ///
    /// - Returns: the new length of each organisation's overflow.
    /// - Throws: ``RedisError`` with code `notReplicated` if the jobs are on another master than
    ///   their lane, and too few replicas have them.
    package func append(
        _ jobs: [(org: String, fields: [(name: String, value: [UInt8])])]
    ) async throws(RedisError) -> [ExactText: Int] {
        var batch = RedisBatch()
        // Redis tells names apart by their bytes.
        let orgs = Array(Set(jobs.map { ExactText($0.org) }))
        // Before the jobs, so that they are found if Redis gets only the start of the batch.
        for org in orgs.map(\.text) { batch.append("SADD", .text(self.keys(of: org).overflows), .text(org)) }
        for job in jobs { batch.append(entry: job.fields, to: self.keys(of: job.org).overflow(job.org)) }
        let first = batch.count
        // After the jobs, too, as another process may have removed the organisation in between.
        for org in orgs.map(\.text) {
            batch.append("SADD", .text(self.keys(of: org).overflows), .text(org))
            batch.append("XLEN", .text(self.keys(of: org).overflow(org)))
        }
        // A replica of their lane's master has the jobs before it learns that they left the lane.
        let isOneMaster = !self.live.connection.isCluster || self.live.keys.index != nil
        let replies = try await isOneMaster ? self.live.connection.send(batch) : self.live.append(batch)
        for reply in replies { _ = try reply.checked() }
        var lengths: [ExactText: Int] = [:]
        for (place, org) in orgs.enumerated() {
            lengths[org] = Int(try replies[first + 2 * place + 1].integer())
        }
        return lengths
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

/// The first stream entry of a job; the ids of its notifications derive from it, however often the
/// job moves.
package struct JobOrigin: Sendable {
    /// The field of a moved job that holds its entry before it moved, or its row in an outbox.
    package static let movedField = "carillon:origin"
    /// The field of a replayed job that holds its first entry.
    package static let replayField = "carillon:replay"
    /// The names of both fields.
    private static let marks: Set = [ExactText(Self.movedField), ExactText(Self.replayField)]
    /// The most bytes of such a field; PostgreSQL could not index much longer ones.
    private static let longestPlace = 1_024
    /// The most bytes of a `traceparent`; a longer one would be stored with each part of its job.
    private static let longestTrace = 128

    private let place: (stream: String, entry: String)
    /// The entry from when the job was last enqueued or replayed; a move keeps it, and a dead
    /// letter names it.
    private let latest: (stream: String, entry: String)
    /// The job's fields without the two that hold its origin, and without a `traceparent` that is
    /// too long.
    package let fields: [(name: String, value: ArraySlice<UInt8>)]
    private let isReplay: Bool
    /// The first entry as `stream/entry`.
    package let text: String
    /// The entry that notifications record for the job: the first, even if the job was scheduled.
    package var jobEntry: String

    /// Reads an entry of a stream.
    package init(stream: String, entry: String, fields: [(name: String, value: ArraySlice<UInt8>)]) {
        let moved = Self.place(Self.movedField, fields)
        let replayed = Self.place(Self.replayField, fields)
        self.latest = moved ?? (stream, entry)
        self.place = replayed ?? self.latest
        self.text = "\(self.place.stream)/\(self.place.entry)"
        self.jobEntry = self.text
        self.isReplay = replayed != nil
        let isMarked = moved != nil || replayed != nil
        let kept = isMarked ? fields.filter { !Self.marks.contains(ExactText($0.name)) } : fields
        self.fields = kept.contains { Self.isLongTrace($0) } ? kept.filter { !Self.isLongTrace($0) } : kept
    }

    private static func isLongTrace(_ field: (name: String, value: ArraySlice<UInt8>)) -> Bool {
        field.value.count > Self.longestTrace && ExactText(field.name) == "traceparent"
    }

    /// Reads `stream/entry` from the named field; nil if that is missing or malformed.
    private static func place(
        _ name: String,
        _ fields: [(name: String, value: ArraySlice<UInt8>)]
    ) -> (stream: String, entry: String)? {
        guard let field = fields.last(where: { ExactText($0.name) == ExactText(name) }),
            field.value.count <= Self.longestPlace, !field.value.contains(0)
        else { return nil }
        let text = String(decoding: field.value, as: UTF8.self)
        guard let slash = text.lastIndex(of: "/") else { return nil }
        return (String(text[..<slash]), String(text[text.index(after: slash)...]))
    }

    /// The input of the ids of its notifications.
    package var digest: EntryDigest {
        EntryDigest(
            stream: self.stream, entry: self.entry, fields: self.fields,
            isOfMillisecond: self.stream != Keyspace.schedules)
    }

    /// The stream of the first entry.
    package var stream: String { self.place.stream }

    /// The id of the first entry.
    package var entry: String { self.place.entry }

    /// The stream of the latest entry.
    package var latestStream: String { self.latest.stream }

    /// The id of the latest entry.
    package var latestEntry: String { self.latest.entry }

    /// When the job was enqueued or replayed, in Unix milliseconds; nil if the entry's id has no
    /// time.
    package var milliseconds: Int64? { StreamEntry.milliseconds(ofID: self.latest.entry) }

    /// Returns when the job was enqueued or replayed, at most `now`; `now` if the entry's id has no
    /// time.
    package func enqueuedAt(now: Timestamp) -> Timestamp {
        min(Timestamp(milliseconds: self.milliseconds ?? now.milliseconds), now)
    }

    /// Returns when a job counts as created: when it was enqueued or replayed or, if later, at its
    /// `deliver_at`; at most `now`.
    package func createdAt(deliverAt: Timestamp?, now: Timestamp) -> Timestamp {
        let enqueuedAt = self.enqueuedAt(now: now)
        return min(max(enqueuedAt, deliverAt ?? enqueuedAt), now)
    }

    /// The fields of the latest entry.
    package var latestFields: [(name: String, value: ArraySlice<UInt8>)] {
        self.isReplay ? self.fields + [(Self.replayField, ArraySlice(self.text.utf8))] : self.fields
    }

    /// The fields for a replay.
    package var replayFields: [(name: String, value: [UInt8])] {
        self.fields.map { ($0.name, Array($0.value)) } + [(Self.replayField, Array(self.text.utf8))]
    }

    /// The fields for a move to another stream.
    package var movedFields: [(name: String, value: [UInt8])] {
        let origin = "\(self.latest.stream)/\(self.latest.entry)"
        return self.latestFields.map { ($0.name, Array($0.value)) } + [(Self.movedField, Array(origin.utf8))]
    }
}
