// Carillon · GatewayBase.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import Operations
import Storage

/// The servers, the catalog and the clock: the base of all services of a gateway.
package struct GatewayBase: Sendable {
    package let database: Database
    package let live: Live
    let presence: PresenceRegistry
    let catalogs: CatalogRegister
    package let zones = ZoneDatabase()
    private let defaultZoneName: String
    let events: EventPublisher
    package let now: @Sendable () -> Timestamp
    package let logger: Logger

    package init(
        database: Database,
        live: Live,
        catalogs: CatalogRegister,
        defaultZone: String = "UTC",
        events: EventPublisher = EventPublisher(),
        now: @escaping @Sendable () -> Timestamp,
        logger: Logger
    ) {
        self.database = database
        self.live = live
        self.presence = PresenceRegistry(live)
        self.catalogs = catalogs
        self.defaultZoneName = defaultZone
        self.events = events
        self.now = now
        self.logger = logger
    }

    /// The zone of users who have set none.
    var defaultZone: ZoneRules { self.zones.rules(self.defaultZoneName) ?? .utc }
    /// The current catalog; take it once per request.
    var catalog: Catalog { self.catalogs.current }
    var publisher: FramePublisher { FramePublisher(self.live, presence: self.presence) }
}
