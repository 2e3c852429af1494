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

/// Limits of a user's calls with lasting effects, over all nodes.
extension GatewayBase {
    /// Counts a notification that a user sends themselves, by a snooze or a test send.
    ///
    /// Each adds a row, which slows reads of the user's inbox down until retention deletes it.
    ///
    /// - Throws: ``Problem`` 429 beyond the rate.
    func countOwnSend(of user: String) async throws {
        try await self.count(
            .ownSends, of: user, perSecond: 1.0 / 60, burst: 60, fault: "too many snoozes or test sends")
    }

    /// Counts a call that repeats events of a notification: `acted` for each press of a button, or
    /// `read` and `opened` after the notification was made unread.
    ///
    /// Without a limit, a user's events could push those of others out of a webhook's queue.
    ///
    /// - Throws: ``Problem`` 429 beyond the rate.
    func countRepeatedEvent(of user: String) async throws {
        try await self.count(
            .repeatedEvents, of: user, perSecond: 1, burst: 60,
            fault: "too many pressed buttons or notifications made unread")
    }

    /// Counts a change of quiet hours or of the zone.
    ///
    /// Each change decides again about all that waits for the end of the user's quiet hours. Each
    /// notification that is deferred to another moment gets an audit row and an event.
    ///
    /// - Throws: ``Problem`` 429 beyond the rate.
    func countQuietChange(of user: String) async throws {
        try await self.count(
            .quietHours, of: user, perSecond: 1.0 / 60, burst: 20,
            fault: "too many changes of quiet hours or the time zone")
    }

    private func count(
        _ kind: TokenBuckets.Kind,
        of user: String,
        perSecond: Double,
        burst: Int,
        fault: String
    ) async throws {
        // As for calls, there is no limit while the user's Redis server is out of reach.
        let reply = try? await self.live.buckets.takeAvailable(
            1, kind: kind, user: user, perSecond: perSecond, burst: burst)
        guard let reply, reply.taken == 0 else { return }
        throw Problem(
            .tooManyRequests, "\(fault); wait as long as Retry-After says",
            retryAfter: max(1, Int((reply.wait + 999) / 1_000)))
    }
}
