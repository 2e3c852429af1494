// Carillon · Bookmarks.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The inbox version that a connection has seen.
package struct Bookmark: Sendable, Equatable {
    /// The mark that tells the user's clients apart, such as a digest of their `User-Agent`.
    let client: String
    /// The inbox version up to which the connection has seen everything.
    let version: Int64
    /// When the client was last heard from, if the connection has ended or waits for a client that
    /// may be gone; else nil.
    let lastHeard: Timestamp?

    package init(client: String, version: Int64, lastHeard: Timestamp?) {
        self.client = client
        self.version = version
        self.lastHeard = lastHeard
    }
}

/// Bookmarks of connections, for clients that reconnect without naming a version.
///
/// A user's hash has one field per connection: `1 <client> <version> <left: 0 or 1> <claim> <noted
/// at, in ms>`. A bookmark counts for an hour; connections that stay open note theirs again well
/// within that time.
///
/// A client often returns before its gateway notices that the earlier connection is lost, so there
/// is no ended connection whose bookmark it could use up. The time of its return then stays as the
/// claim, in ms, else 0. The claim uses up the bookmark of the next connection that ends and was
/// last heard from before it. A connection that ends on purpose takes its claim along.
package struct Bookmarks: Sendable {
    /// How long a bookmark counts.
    static let lifetime: Duration = .seconds(3_600)
    /// The most bookmarks of a user; a further one removes the oldest.
    private static let mostPerUser = 64
    /// The field that makes the script ignore bookmarks, and how long it stays: longer than a
    /// gateway needs to learn of an erasure and to close its sockets.
    private static let erased: RedisArgument = "erased"
    private static let erasure: Duration = .seconds(60)

    private struct Entry {
        let connection: String
        let client: String
        let version: Int64
        let hasLeft: Bool
        let claim: Int64
        let at: Timestamp
    }

    let live: Live

    /// Stores bookmarks in one round trip; nil removes the connection's bookmark.
    ///
    /// In a cluster, bookmarks for a master that is away are lost; their clients receive some
    /// changes twice.
    package func store(
        _ entries: [(user: String, connection: String, bookmark: Bookmark?)],
        at now: Timestamp
    ) async throws(RedisError) {
        guard !entries.isEmpty else { return }
        var batch = RedisBatch()
        for (user, connection, bookmark) in entries {
            if let bookmark {
                self.store(user, connection, bookmark, at: now, in: &batch)
            } else {
                batch.append("HDEL", .text(self.live.keys.bookmarks(user)), .text(connection))
            }
        }
        for reply in try await self.live.replies(batch) where !self.live.isOfAbsentMaster(reply) {
            _ = try reply.checked()
        }
    }

    /// Removes the bookmarks of an erased user, and blocks new ones for a minute.
    ///
    /// Gateways that have not learned of the erasure yet still serve the user's sockets.
    func erase(user: String, in batch: inout RedisBatch) {
        let key = RedisArgument.text(self.live.keys.bookmarks(user))
        batch.append("DEL", key)
        batch.append("HSET", key, Self.erased, "")
        batch.append("PEXPIRE", key, .integer(Self.erasure.inMilliseconds))
    }

    private func store(
        _ user: String,
        _ connection: String,
        _ bookmark: Bookmark,
        claim: Int64? = nil,
        at now: Timestamp,
        in batch: inout RedisBatch
    ) {
        let key = RedisArgument.text(self.live.keys.bookmarks(user))
        batch.append(
            StreamScripts.noteBookmark,
            keys: [key],
            arguments: [
                .text(connection), .text(bookmark.client), .integer(bookmark.version),
                bookmark.lastHeard.map { .integer($0.milliseconds) } ?? "", claim.map { .integer($0) } ?? "",
                .integer(now.milliseconds), .integer(Self.lifetime.inMilliseconds),
                .integer(Int64(Self.mostPerUser)),
            ]
        )
    }

    /// Finds the version from which each new connection missed changes, and notes it as the
    /// connection's bookmark.
    ///
    /// A returning connection cannot be matched with its own bookmark. So each resumes from the
    /// client's oldest bookmark, and removes the newest one of an ended connection, now or when the
    /// next one ends. Once all have returned, no bookmark is left over and no change was missed.
    ///
    /// - Parameter alive: returns the open connections of each user, in order; any other connection
    ///   with a bookmark has ended without notice.
    /// - Returns: a version for each opening, in order; nil for a client without a bookmark within
    ///   ``lifetime``.
    package func claim(
        _ openings: [(user: String, connection: String, client: String)],
        at now: Timestamp,
        alive: ([String]) async throws(RedisError) -> [Set<String>]
    ) async throws(RedisError) -> [Int64?] {
        guard !openings.isEmpty else { return [] }
        var batch = RedisBatch()
        for opening in openings { batch.append("HGETALL", .text(self.live.keys.bookmarks(opening.user))) }
        var found: [[Entry]] = []
        for reply in try await self.live.connection.send(batch) { found.append(try Self.entries(reply)) }
        let known = found.indices.filter { !found[$0].isEmpty }
        let living = known.isEmpty ? [] : try await alive(known.map { openings[$0].user })
        guard living.count == known.count else { throw RedisError(.malformedReply, "expected one presence per user") }
        var versions = [Int64?](repeating: nil, count: openings.count)
        var changes = RedisBatch()
        /// Bookmarks that an earlier connection of the batch has removed.
        var taken: Set<String> = []
        for (index, alive) in zip(known, living) {
            let (user, connection, client) = openings[index]
            let key = RedisArgument.text(self.live.keys.bookmarks(user))
            let valid = found[index].filter { now - $0.at < Self.lifetime && $0.connection != connection }
            var dropped = found[index].filter { now - $0.at >= Self.lifetime }.map(\.connection)
            let own = valid.filter { $0.client == client }
            let over = own.filter { entry in
                (entry.hasLeft || !alive.contains(entry.connection)) && !taken.contains(entry.connection)
            }
            // Open connections count, too, because their node may just have died. If it has not,
            // their bookmarks are nearly up to date.
            versions[index] = own.map(\.version).min()
            var claim = now.milliseconds
            if let last = over.max(by: { $0.version < $1.version }) {
                dropped.append(last.connection)
                taken.insert(last.connection)
                // A killed gateway notes no end, so an earlier claim may have been for this one.
                if last.hasLeft { claim = last.claim }
            }
            if !dropped.isEmpty { changes.append(["HDEL", key] + dropped.map { RedisArgument.text($0) }) }
            guard let version = versions[index] else { continue }
            let bookmark = Bookmark(client: client, version: version, lastHeard: nil)
            self.store(user, connection, bookmark, claim: claim, at: now, in: &changes)
        }
        try await self.live.connection.run(changes)
        return versions
    }

    private static func entries(_ reply: RedisReply) throws(RedisError) -> [Entry] {
        guard var cursor = try reply.cursor(), let count = try cursor.array() else { return [] }
        var entries: [Entry] = []
        for _ in 0..<count / 2 {
            let connection = try cursor.string() ?? ""
            let parts = (try cursor.string() ?? "").split(separator: " ")
            guard parts.count >= 6, parts[0] == "1", let version = Int64(parts[2]), let claim = Int64(parts[4]),
                let at = Int64(parts[5])
            else { continue }
            entries.append(
                Entry(
                    connection: connection, client: String(parts[1]), version: version, hasLeft: parts[3] == "1",
                    claim: claim, at: Timestamp(milliseconds: at)))
        }
        return entries
    }
}
