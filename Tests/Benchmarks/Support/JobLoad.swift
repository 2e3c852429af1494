// Carillon · JobLoad.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Foundation

/// Appends jobs like an upstream app.
struct JobLoad: Sendable {
    let redis: RedisClient
    let stream: String
    let type: String
    /// The variables of the type's template; nil for a plain title and body.
    var variables: String?
    /// The organisation; nil for none.
    var org: String?

    /// Appends `count` jobs in batches, to each of `users` in turn.
    ///
    /// - Parameter rate: jobs a second; as fast as possible if nil.
    func append(_ count: Int, to users: [String], rate: Double? = nil, batch size: Int = 256) async throws {
        let start = ContinuousClock.now
        let text: [RedisArgument] =
            self.variables.map { ["vars", .text($0)] } ?? ["title", "Payment received", "body", "EUR 40 from Ada"]
        let fields = text + (self.org.map { ["org", .text($0)] } ?? [])
        var index = 0
        while index < count {
            if let rate {
                let due = start + .seconds(Double(index) / rate)
                // Paces each job to the requested rate.
                if due > .now { try await Task.sleep(until: due, tolerance: .zero) }
            }
            var batch = RedisBatch()
            for _ in 0..<min(size, count - index) {
                let now = Int64(Date.now.timeIntervalSince1970 * 1_000_000)
                let user = RedisArgument.text(users[index % users.count])
                let data = RedisArgument.text(#"{"sent_us":\#(now),"invoice":"i9"}"#)
                batch.append(
                    ["XADD", .text(self.stream), "*", "user", user, "type", .text(self.type), "data", data] + fields)
                index += 1
            }
            for reply in try await self.redis.send(batch, timeout: .seconds(30)) { _ = try reply.checked() }
        }
    }
}
