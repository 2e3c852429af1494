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

/// Where a job stood when it was enqueued, which its notifications' ids are made of, however often it was moved since.
package struct JobOrigin: Sendable {
    /// The field of a job that was moved to make room for others: where it stood.
    package static let movedField = "carillon:origin"
    /// The field of a job that was a dead letter: where it stood first.
    package static let replayField = "carillon:replay"

    private let place: (stream: String, entry: String)
    /// Where it was enqueued the last time, which is how a dead letter names it.
    private let latest: (stream: String, entry: String)
    /// The job's fields, without those that tell where it stood.
    package let fields: [(name: String, value: ArraySlice<UInt8>)]
    private let isReplay: Bool

    /// Reads an entry as it stands in a stream.
    package init(stream: String, entry: String, fields: [(name: String, value: ArraySlice<UInt8>)]) {
        let moved = Self.place(Self.movedField, fields)
        let replayed = Self.place(Self.replayField, fields)
        self.latest = moved ?? (stream, entry)
        self.place = replayed ?? self.latest
        self.isReplay = replayed != nil
        let isMarked = moved != nil || replayed != nil
        self.fields =
            isMarked ? fields.filter { $0.name != Self.movedField && $0.name != Self.replayField } : fields
    }

    /// `stream/entry` in a field of that name.
    private static func place(
        _ name: String,
        _ fields: [(name: String, value: ArraySlice<UInt8>)]
    ) -> (stream: String, entry: String)? {
        guard let field = fields.last(where: { $0.name == name }) else { return nil }
        let text = String(decoding: field.value, as: UTF8.self)
        guard let slash = text.lastIndex(of: "/") else { return nil }
        return (String(text[..<slash]), String(text[text.index(after: slash)...]))
    }

    /// The stream of its first place.
    package var stream: String { self.place.stream }

    /// The entry of its first place.
    package var entry: String { self.place.entry }

    /// The first place as `stream/entry`.
    package var text: String { "\(self.place.stream)/\(self.place.entry)" }

    /// The stream that it was enqueued in the last time.
    package var latestStream: String { self.latest.stream }

    /// The entry as which it was enqueued the last time.
    package var latestEntry: String { self.latest.entry }

    /// When the job was made, in Unix milliseconds, a replayed one by its replay; nil if the entry's id does not say.
    package var milliseconds: Int64? { Int64(Substring(self.latest.entry.utf8.prefix { $0 != UInt8(ascii: "-") })) }

    /// The fields with which it was enqueued the last time.
    package var latestFields: [(name: String, value: ArraySlice<UInt8>)] {
        self.isReplay ? self.fields + [(Self.replayField, ArraySlice(self.text.utf8))] : self.fields
    }

    /// The fields with which it is replayed.
    package var replayFields: [(name: String, value: [UInt8])] {
        self.fields.map { ($0.name, Array($0.value)) } + [(Self.replayField, Array(self.text.utf8))]
    }

    /// The fields with which it is moved to another stream.
    package var movedFields: [(name: String, value: [UInt8])] {
        let origin = "\(self.latest.stream)/\(self.latest.entry)"
        return self.latestFields.map { ($0.name, Array($0.value)) } + [(Self.movedField, Array(origin.utf8))]
    }
}
