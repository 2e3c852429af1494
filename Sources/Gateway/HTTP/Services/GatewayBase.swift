// Carillon · GatewayBase.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
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

/// The rate of notifications that users send themselves, by snoozes and test sends.
extension GatewayBase {
    private static let ownSendsPerSecond = 1
    private static let ownSendsAtOnce = 60

    /// Counts such a send towards the user's rate.
    ///
    /// - Throws: ``Problem`` 429 beyond the rate.
    func countOwnSend(of user: String) async throws {
        // As for calls, there is no limit while the user's Redis server is out of reach.
        let taken = try? await self.live.buckets.takeAvailable(
            1, kind: "own_sends", user: user, perSecond: Self.ownSendsPerSecond, burst: Self.ownSendsAtOnce
        ).taken
        guard taken == 0 else { return }
        throw Problem(
            .tooManyRequests, "too many snoozes or test sends; wait as long as Retry-After says", retryAfter: 1)
    }
}
