// Carillon · CatalogAnnouncer.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

/// Tells every gateway and dispatcher to read the catalog again.
package struct CatalogAnnouncer: Sendable {
    let live: Live

    /// Announces the catalog with that digest.
    ///
    /// - Returns: how many heard it.
    package func announce(digest: String) async throws -> Int64 {
        try await self.live.connection.send("PUBLISH", .text(self.live.keys.catalogChannel), .text(digest)).integer()
    }
}
