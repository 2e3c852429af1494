// Carillon · ScratchStack+Redis.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients

/// What the services of a stack have in Redis.
extension ScratchStack {
    /// How many users whose names begin with `prefix` are registered as present.
    func presences(of prefix: String) async throws -> Int {
        try await self.keys("carillon:presence:{\(prefix)*").count
    }

    /// The gateways that hold a lease.
    func nodes() async throws -> Set<String> {
        let prefix = "carillon:node:"
        return Set(try await self.keys(prefix + "*").map { String($0.dropFirst(prefix.count)) })
    }

    /// The gateway that holds a lease beside those of `others`; waits for it.
    func node(besides others: Set<String> = []) async throws -> String {
        let deadline = ContinuousClock.now + .seconds(30)
        while ContinuousClock.now < deadline {
            if let node = try await self.nodes().subtracting(others).first { return node }
            // The lease is taken beside the start of the listener, and nothing tells when.
            try await Task.sleep(for: .milliseconds(5))
        }
        throw ValidationError("no gateway took a lease")
    }

    /// Waits until somebody hears `channel`.
    func awaitSubscriber(of channel: String) async throws {
        let deadline = ContinuousClock.now + .seconds(30)
        while ContinuousClock.now < deadline {
            let reply = try await self.redis.connection.send("PUBSUB", "NUMSUB", .text(channel))
            if var answer = try reply.cursor(), try answer.array() == 2 {
                _ = try answer.string()
                if try answer.integer() > 0 { return }
            }
            // Redis tells nobody of a subscription.
            try await Task.sleep(for: .milliseconds(5))
        }
        throw ValidationError("nobody subscribed to \(channel)")
    }

    private func keys(_ pattern: String) async throws -> Set<String> {
        var cursor = "0"
        var keys: Set<String> = []
        repeat {
            let reply = try await self.redis.connection.send(
                "SCAN", .text(cursor), "MATCH", .text(pattern), "COUNT", "1000"
            )
            guard var answer = try reply.cursor(), try answer.array() == 2 else { break }
            cursor = try answer.string() ?? "0"
            for _ in 0..<(try answer.array() ?? 0) {
                if let key = try answer.string() { keys.insert(key) }
            }
        } while cursor != "0"
        return keys
    }
}
