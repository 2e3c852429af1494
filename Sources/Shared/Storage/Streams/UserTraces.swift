// Carillon · UserTraces.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// What Redis holds of one user beside streams that are worked off: presence, what is used up, retries and what was held back,
/// dead letters.
///
/// Entries of the jobs and deliveries streams are not looked for: a delivery of a user who is gone finds no row, and goes.
/// Nor are those of the event log and of webhooks' queues, which are bounded and go by themselves.
package struct UserTraces: Sendable {
    private static let scanCount: Int64 = 1_000

    let live: Live

    /// Removes the user's presence and bookmarks.
    ///
    /// - Returns: how many connections it named.
    package func erasePresence(user: String) async throws(RedisError) -> Int {
        var batch = RedisBatch()
        batch.append("HLEN", .text(self.live.keys.presence(user)))
        batch.append("DEL", .text(self.live.keys.presence(user)))
        batch.append("DEL", .text(self.live.keys.bookmarks(user)))
        let replies = try await self.live.connection.send(batch)
        for reply in replies { _ = try reply.checked() }
        return Int(try replies.first?.integer() ?? 0)
    }

    /// Removes what the user has used up of caps and rates.
    ///
    /// - Parameters:
    ///   - caps: the names of all caps, such as `type:news`; what is left of others lapses with their spans.
    ///   - rates: the kinds of all rates.
    /// - Returns: how many of them the user had used.
    package func eraseUsage(user: String, caps: [String], rates: [String]) async throws(RedisError) -> Int {
        let names = caps.map { self.live.keys.usage($0, user) } + rates.map { self.live.keys.bucket($0, user) }
        var count = 0
        for start in stride(from: 0, to: names.count, by: 1_000) {
            let part = names[start..<min(start + 1_000, names.count)].map { RedisArgument.text($0) }
            count += Int(try await self.live.connection.send(["DEL"] + part).integer())
        }
        return count
    }

    /// Removes the user's deliveries from every retry set and from all that was held back; each set is walked once, in steps.
    ///
    /// - Returns: how many there were.
    package func eraseRetries(user: String) async throws(RedisError) -> Int {
        var count = 0
        let held = self.live.heldSets
        for provider in Provider.wellKnown {
            for lane in Lane.allCases {
                count += try await self.eraseRetries(user: user, in: self.live.keys.retries(provider, lane))
                for app in try await held.apps(provider: provider, lane: lane) {
                    count += try await self.eraseRetries(user: user, in: self.live.keys.held(provider, lane, app: app))
                }
            }
        }
        return count
    }

    private func eraseRetries(user: String, in key: String) async throws(RedisError) -> Int {
        var count = 0
        let pattern = "1 * " + Self.escaped(user)
        var cursor = "0"
        repeat {
            let reply = try await self.live.connection.send(
                "ZSCAN", .text(key), .text(cursor), "MATCH", .text(pattern), "COUNT", .integer(Self.scanCount)
            )
            guard var items = try reply.cursor(), try items.array() == 2 else { break }
            cursor = try items.string() ?? "0"
            var found: [RedisArgument] = []
            for _ in 0..<(try items.array() ?? 0) / 2 {
                let member = try items.bytes() ?? []
                try items.skip()
                // The pattern's star also spans names that end like this one.
                guard let work = try? DeliveryWork(member), work.user.utf8.elementsEqual(user.utf8) else {
                    continue
                }
                found.append(.slice(member))
            }
            guard !found.isEmpty else { continue }
            count += Int(try await self.live.connection.send(["ZREM", .text(key)] + found).integer())
        } while cursor != "0"
        return count
    }

    /// Removes the letters that name the user from the dead stream, which is walked once, in steps.
    ///
    /// PostgreSQL's mirror keeps those that were for others too.
    ///
    /// - Returns: how many there were.
    package func eraseDeadLetters(user: String) async throws(RedisError) -> Int {
        var count = 0
        var start = "-"
        while true {
            let reply = try await self.live.connection.send(
                "XRANGE", .text(self.live.keys.dead), .text(start), "+", "COUNT", 500)
            guard var cursor = try reply.cursor() else { return count }
            let entries = try StreamEntry.read(&cursor)
            guard let last = entries.last else { return count }
            start = "(" + last.id
            let found = entries.filter { Self.names(user, in: $0) }.map { RedisArgument.text($0.id) }
            guard !found.isEmpty else { continue }
            count += Int(try await self.live.connection.send(["XDEL", .text(self.live.keys.dead)] + found).integer())
        }
    }

    private static func names(_ user: String, in letter: StreamEntry) -> Bool {
        for field in letter.fields ?? [] {
            switch field.name {
            case "user": if field.value.elementsEqual(user.utf8) { return true }
            case "users", "except":
                // As it stands in a JSON array; letters are few, and one that is taken for the user's is still mirrored.
                if String(decoding: field.value, as: UTF8.self).contains("\"\(user)\"") { return true }
            case DeliveryWork.field:
                if let work = try? DeliveryWork(field.value), work.user.utf8.elementsEqual(user.utf8) { return true }
            default: break
            }
        }
        return false
    }

    /// A text as a pattern that matches only itself.
    static func escaped(_ text: String) -> String {
        var escaped = ""
        for scalar in text.unicodeScalars {
            if "\\*?[]".unicodeScalars.contains(scalar) { escaped.unicodeScalars.append("\\") }
            escaped.unicodeScalars.append(scalar)
        }
        return escaped
    }
}
