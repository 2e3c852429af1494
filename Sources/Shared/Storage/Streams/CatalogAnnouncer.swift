// Carillon · CatalogAnnouncer.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

/// Tells every gateway and dispatcher to read the catalog again.
package struct CatalogAnnouncer: Sendable {
    private let connection: RedisConnection
    private let channel: String

    package init(connection: RedisConnection, keys: Keyspace) {
        self.connection = connection
        self.channel = keys.catalogChannel
    }

    /// Announces the catalog with that digest.
    ///
    /// - Returns: how many heard it.
    package func announce(digest: String) async throws -> Int64 {
        try await self.connection.send("PUBLISH", .text(self.channel), .text(digest)).integer()
    }
}
