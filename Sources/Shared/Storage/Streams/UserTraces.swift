// Carillon · UserTraces.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// A user's data in Redis outside work streams: presence, usage, retries and held deliveries.
///
/// Streams of jobs and deliveries are not searched: a delivery of an erased user finds no row and
/// is dropped. Events and webhook queues are bounded and expire. Keys of former parts are not
/// searched either: nothing waits there when an installation grows, and operators remove them.
package struct UserTraces: Sendable {
    private static let scanCount: Int64 = 1_000

    let live: Live

    /// Removes the user's presence and bookmarks.
    ///
    /// - Returns: the number of registered connections.
    package func erasePresence(user: String) async throws(RedisError) -> Int {
        var batch = RedisBatch()
        batch.append("HLEN", .text(self.live.keys.presence(user)))
        batch.append("DEL", .text(self.live.keys.presence(user)))
        self.live.bookmarks.erase(user: user, in: &batch)
        let replies = try await self.live.connection.run(batch)
        return Int(try replies.first?.integer() ?? 0)
    }

    /// Removes the user's counts for caps and rates.
    ///
    /// - Parameter caps: the names of all caps, such as `type:news`; counts of other caps expire
    ///   with their windows.
    /// - Returns: the number of counts removed.
    package func eraseUsage(user: String, caps: [String]) async throws(RedisError) -> Int {
        let rates = TokenBuckets.Kind.allCases.map { self.live.keys.bucket($0.rawValue, user) }
        let names = caps.map { self.live.keys.usage($0, user) } + rates
        var count = 0
        for start in stride(from: 0, to: names.count, by: 1_000) {
            let part = names[start..<min(start + 1_000, names.count)].map { RedisArgument.text($0) }
            count += Int(try await self.live.connection.send(["DEL"] + part).integer())
        }
        return count
    }

    /// Removes the user's deliveries from every retry and held set; scans each set once, in pages.
    ///
    /// - Returns: the number of deliveries removed.
    package func eraseRetries(user: String) async throws(RedisError) -> Int {
        var count = 0
        let keys = self.live.keys.part(of: user)
        let sets = self.live.with(keys).retries
        for provider in Provider.all {
            for lane in Lane.allCases {
                count += try await self.eraseRetries(user: user, in: keys.retries(provider, lane))
                for scope in try await sets.heldScopes(provider: provider, lane: lane) {
                    count += try await self.eraseRetries(user: user, in: keys.held(provider, lane, scope))
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
                // The pattern also matches names that end in this one.
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

    /// Escapes a text so that the pattern matches only that text.
    static func escaped(_ text: String) -> String {
        var escaped = ""
        for scalar in text.unicodeScalars {
            if "\\*?[]".unicodeScalars.contains(scalar) { escaped.unicodeScalars.append("\\") }
            escaped.unicodeScalars.append(scalar)
        }
        return escaped
    }
}
