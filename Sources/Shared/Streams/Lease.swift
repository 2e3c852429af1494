// Carillon · Lease.swift
// SPDX-License-Identifier: Apache-2.0

package import Redis

/// A process's claim to be alive: renewed every 5 s, void after 15 s.
package struct Lease: Sendable {
    package static let renewal: Duration = .seconds(5)
    package static let lifetime: Duration = .seconds(15)

    private let key: String
    private let value: String
    private let connection: RedisConnection

    /// - Parameters:
    ///   - key: from ``Keyspace``.
    ///   - value: what operators see of the holder.
    package init(key: String, value: String, connection: RedisConnection) {
        self.key = key
        self.value = value
        self.connection = connection
    }

    /// Takes or renews it.
    ///
    /// - Parameter value: what operators see of the holder from now on; what was given at first, if nil.
    /// - Returns: whether it was held without a gap.
    package func renew(showing value: String? = nil) async throws(RedisError) -> Bool {
        let milliseconds = Self.lifetime.components.seconds * 1_000
        return try await self.connection.run(
            StreamScripts.renewLease,
            keys: [.text(self.key)],
            arguments: [.text(value ?? self.value), .integer(milliseconds)]
        ).integer() == 1
    }

    /// Gives it up.
    package func release() async throws(RedisError) {
        try await self.connection.send("DEL", .text(self.key))
    }

    /// Whether somebody holds the lease under `key`.
    package static func isHeld(_ key: String, connection: RedisConnection) async throws(RedisError) -> Bool {
        try await connection.send("EXISTS", .text(key)).integer() == 1
    }
}
