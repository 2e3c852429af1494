// Carillon · Lease.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Synchronization

/// A process's claim to be alive: renewed every 5 s, void after 15 s.
package final class Lease: Sendable {
    package static let renewal: Duration = .seconds(5)
    package static let lifetime: Duration = .seconds(15)

    private let key: String
    private let value: String
    private let connection: RedisConnection
    private let now: @Sendable () -> ContinuousClock.Instant
    // When the last renewal that was answered began.
    private let renewedAt = Mutex<ContinuousClock.Instant?>(nil)

    /// - Parameters:
    ///   - key: from ``Keyspace``.
    ///   - value: what operators see of the holder.
    ///   - now: the time by a clock that no one sets.
    package init(
        key: String,
        value: String,
        connection: RedisConnection,
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.key = key
        self.value = value
        self.connection = connection
        self.now = now
    }

    /// Takes or renews it.
    ///
    /// - Parameter value: what operators see of the holder from now on; what was given at first, if nil.
    /// - Returns: whether it was held without a gap since it was renewed the last time.
    package func renew(showing value: String? = nil) async throws(RedisError) -> Bool {
        let start = self.now()
        let milliseconds = Self.lifetime.components.seconds * 1_000
        let wasThere =
            try await self.connection.run(
                StreamScripts.renewLease,
                keys: [.text(self.key)],
                arguments: [.text(value ?? self.value), .integer(milliseconds)]
            ).integer() == 1
        // An earlier renewal whose reply got lost may have been the one that found it lapsed.
        return self.renewedAt.withLock { renewedAt in
            defer { renewedAt = start }
            guard wasThere, let renewedAt else { return wasThere }
            return self.now() - renewedAt < Self.lifetime
        }
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
