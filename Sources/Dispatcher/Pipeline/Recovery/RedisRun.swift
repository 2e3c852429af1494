// Carillon · RedisRun.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// A run of a Redis master: every start and every failover begins one, with a new id.
struct RedisRun: Sendable {
    /// The note of the last sweep in ``Keyspace/runNote``:
    /// `<run> <beat> <first seen> <repaired> <epoch>`.
    ///
    /// The moments are Unix milliseconds; `-` stands for none.
    struct Note: Sendable {
        let run: String
        /// When the last sweep saw the run, by PostgreSQL's clock.
        let beat: Timestamp?
        /// When a sweep first saw the run, by Redis's clock.
        let firstSeen: Int64?
        /// When a sweep first repaired what the run may lack, by PostgreSQL's clock; nil once the
        /// second repair is done.
        let repaired: Timestamp?
        /// The epoch of PostgreSQL.
        let epoch: Int64?

        /// Its moments by PostgreSQL's clock.
        var moments: [Timestamp] { [self.beat, self.repaired].compactMap(\.self) }

        init(_ text: String) {
            let parts = text.split(separator: " ")
            self.run = parts.first.map { String($0) } ?? ""
            self.beat = parts.count > 1 ? Int64(parts[1]).map { Timestamp(milliseconds: $0) } : nil
            let firstSeen = parts.count > 2 ? Int64(parts[2]) : nil
            self.firstSeen = firstSeen.flatMap { Timestamp.writableMilliseconds.contains($0) ? $0 : nil }
            self.repaired = parts.count > 3 ? Int64(parts[3]).map { Timestamp(milliseconds: $0) } : nil
            self.epoch = parts.count > 4 ? Int64(parts[4]) : nil
        }
    }

    /// How long a dispatcher may write to a former master, in milliseconds: it asks the Sentinels
    /// every five seconds.
    private static let formerMaster: Int64 = 30_000

    /// Nil if Redis does not tell, for example because the user may not call INFO.
    let id: String?
    /// Unix milliseconds by its clock.
    let now: Int64
    /// Nil if no sweep has run since Redis was emptied.
    let note: Note?

    /// When a sweep first saw this run, in Unix milliseconds by Redis's clock; nil if none has.
    var firstSeen: Int64? {
        guard let id, let note, note.run == id else { return nil }
        return note.firstSeen
    }

    /// Decides whether this Redis, or PostgreSQL, may have lost something since the last sweep.
    ///
    /// - Parameters:
    ///   - now: the moment of this sweep, by PostgreSQL's clock.
    ///   - epoch: the epoch of PostgreSQL.
    ///   - oldest: the moment before which nothing is repaired.
    /// - Returns: the moment since which something may be lost, nil if nothing is; and the note to
    ///   write once that is repaired.
    func finding(now: Timestamp, epoch: Int64, oldest: Timestamp) -> (lostSince: Timestamp?, note: String) {
        // If PostgreSQL's clock has stepped back behind a noted moment, the loss may be older.
        func start(_ noted: Timestamp?) -> Timestamp { noted.flatMap { $0 <= now ? $0 : nil } ?? oldest }
        let id = self.id ?? "unknown"
        let firstSeen = self.firstSeen ?? self.now
        var lostSince: Timestamp?
        var repaired: Timestamp?
        if self.note?.run != id {
            let beat = start(self.note?.beat)
            lostSince = min(beat, self.note?.repaired ?? beat)
            // An emptied Redis has no former master.
            if self.note != nil { repaired = now }
        } else if let earlier = self.note?.repaired {
            if self.now - firstSeen >= Self.formerMaster {
                lostSince = start(earlier)
            } else {
                repaired = earlier
            }
        }
        if let known = self.note?.epoch, known != epoch { lostSince = oldest }
        let mark = repaired.map { String($0.milliseconds) } ?? "-"
        return (lostSince, "\(id) \(now.milliseconds) \(firstSeen) \(mark) \(epoch)")
    }

    /// Asks Redis.
    ///
    /// - Parameter key: the key of the note; a cluster asks the server that has it.
    static func ask(_ connection: RedisClient, note key: String) async throws(RedisError) -> RedisRun {
        // One batch, so that one process answers all.
        var batch = RedisBatch()
        batch.append("INFO", "server")
        batch.append("INFO", "replication")
        batch.append("TIME")
        batch.append("GET", .text(key))
        // A sweep must not wait for a server of a cluster that is away.
        let replies = try await connection.send(batch, isPatient: false)
        return RedisRun(
            id: try Self.id(replies[0], replies[1]), now: try replies[2].time().milliseconds,
            note: try replies[3].string().map { Note($0) })
    }

    /// Returns the ids of a process and of its replication history.
    ///
    /// The process's id alone is not enough, because a process may become master a second time. The
    /// history's id also changes when the first replica attaches, which costs one repair.
    private static func id(_ server: RedisReply, _ replication: RedisReply) throws(RedisError) -> String? {
        guard let process = try Self.value("run_id", in: server) else { return nil }
        guard let history = try Self.value("master_replid", in: replication) else { return process }
        return "\(process)-\(history)"
    }

    /// Returns a value in a reply to INFO.
    private static func value(_ name: String, in reply: RedisReply) throws(RedisError) -> String? {
        // NOPERM comes from an access list, ERR from a server that renamed or lacks the command.
        if case .error(let error) = reply, error.serverCode == "NOPERM" || error.serverCode == "ERR" { return nil }
        let lines = (try reply.string() ?? "").split(whereSeparator: \.isNewline)
        return lines.first { $0.hasPrefix(name + ":") }.map { String($0.dropFirst(name.count + 1)) }
    }
}
