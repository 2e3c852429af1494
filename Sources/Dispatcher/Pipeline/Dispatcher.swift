// Carillon · Dispatcher.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Operations
import Providers
import Storage

/// The clients, clocks and shared state of a dispatcher process.
package struct Dispatcher: Sendable {
    /// The longest turn in milliseconds: a sweep's with the longest `LEASE_SECONDS`.
    private static let longestTurn: Int64 = 80_000

    /// The clocks of a dispatcher.
    package struct Clock: Sendable {
        let now: @Sendable () -> Timestamp
        /// The clock by which claims expire; it continues while the machine sleeps.
        let instant: @Sendable () -> ContinuousClock.Instant
        /// The lifetime of dispatchers' leases.
        let lease: Duration

        package init(
            now: @escaping @Sendable () -> Timestamp,
            instant: @escaping @Sendable () -> ContinuousClock.Instant = { .now },
            lease: Duration = Lease.usualLifetime
        ) {
            self.now = now
            self.instant = instant
            self.lease = lease
        }
    }

    /// The time-zone data, and the zone of users who have set none or one that no longer exists.
    package struct Zones: Sendable {
        package let database: ZoneDatabase
        package let fallback: String

        package init(_ database: ZoneDatabase, fallback: String) {
            self.database = database
            self.fallback = fallback
        }

        /// Returns the rules of a user's zone, or else of the fallback.
        func rules(_ name: String?) -> ZoneRules {
            name.flatMap { self.database.rules($0) } ?? self.database.rules(self.fallback) ?? .utc
        }
    }

    /// Changes at every start, so that a name never means two processes.
    let name: String
    package private(set) var database: Database
    /// Redis, by a connection for non-blocking commands.
    package private(set) var live: Live
    private(set) var presence: PresenceRegistry
    /// Lifecycle events for upstream apps.
    package let events: EventLog
    private var publisher: EventPublisher
    package let catalogs: CatalogRegister
    let zones: Zones
    /// The channels of providers; a delivery without one is recorded as `no_provider`.
    package let channels: ChannelDirectory
    let clock: Clock
    package let logger: Logger
    let inFlight = InFlightEntries()
    let leaseClock: LeaseClock
    let alarms = Alarms()
    let share: PartShare
    let badges = BadgeBoard()
    let summaryFaults = SummaryFaults()

    /// - Parameters:
    ///   - live: Redis, by a connection that runs no blocking commands.
    ///   - eventsLength: the length of the events' stream; nil for no events.
    package init(
        name: String,
        database: Database,
        live: Live,
        eventsLength: Int?,
        catalogs: CatalogRegister,
        zones: Zones,
        channels: ChannelDirectory,
        clock: Clock,
        logger: Logger
    ) {
        self.name = name
        self.database = database
        self.live = live
        self.presence = PresenceRegistry(live)
        self.events = EventLog(keys: live.keys, length: eventsLength)
        self.publisher = EventPublisher(log: self.events, connection: live.connection, logger: logger)
        self.catalogs = catalogs
        self.zones = zones
        self.channels = channels
        self.clock = clock
        self.leaseClock = LeaseClock(lifetime: clock.lease)
        self.share = PartShare(live.keys, name: name, instant: clock.instant)
        self.logger = logger
    }

    var redis: RedisClient { self.live.connection }
    package var keys: Keyspace { self.live.keys }

    /// Returns the same dispatcher on other connections, for work that must not delay the rest.
    package func on(_ database: Database, _ live: Live) -> Dispatcher {
        var copy = self
        copy.database = database
        copy.live = live
        copy.presence = PresenceRegistry(live)
        copy.publisher = EventPublisher(log: self.events, connection: live.connection, logger: self.logger)
        return copy
    }

    func now() -> Timestamp { self.clock.now() }

    /// The current catalog; a batch takes it once and keeps it.
    var catalog: Catalog { self.catalogs.current }

    /// Returns the catalog for a job: a newer one if the current one lacks its type or template.
    func catalog(for job: [(name: String, value: ArraySlice<UInt8>)]) async -> Catalog {
        let catalog = self.catalog
        do throws(JobFaults) {
            _ = try catalog.job(job)
            return catalog
        } catch {
            guard error.areOfCatalog else { return catalog }
            return await self.catalogs.newer(than: catalog, for: [job], logger: self.logger) ?? catalog
        }
    }

    /// Returns the catalog for notifications of some types: a newer one if the current one lacks a
    /// type, as another dispatcher may have read the new files for the job.
    ///
    /// Summaries of quiet hours need no type.
    func catalog(forTypes types: some Sequence<String>) async -> Catalog {
        let catalog = self.catalog
        let unknown = types.filter { $0 != ReleaseSummary.type && catalog[$0] == nil }
        guard !unknown.isEmpty else { return catalog }
        return await self.catalogs.newer(than: catalog, forTypes: unknown, logger: self.logger) ?? catalog
    }

    /// Returns the facts of a notification and its user's preferences, for a decision.
    func facts(
        _ notification: Notification,
        _ type: NotificationType?,
        _ preferences: RecipientStore.Preferences,
        progress: DecisionFacts.Progress,
        now: Timestamp
    ) -> DecisionFacts {
        DecisionFacts(
            notification, type: type, preference: preferences.preference, settings: preferences.settings,
            progress: progress, now: now, zone: self.zones.rules)
    }

    /// Sets the status and the channels that a notification is stored with.
    ///
    /// Without a channel, it replaces nothing. Its collapse key is removed, so that later
    /// notifications with the key need not read it.
    func decideStoring(
        _ notification: inout Notification,
        _ type: NotificationType,
        preferences: RecipientStore.Preferences,
        now: Timestamp
    ) {
        let facts = self.facts(notification, type, preferences, progress: .arrived, now: now)
        let stored = storing(facts)
        notification.status = stored.status
        notification.statusReason = stored.reason?.rawValue
        notification.channels = stored.channels
        if stored.channels.isEmpty { notification.collapseKey = nil }
    }

    /// Returns when the quiet hours that hold now release a notification; nil if none do.
    func releaseMoment(of notification: Notification, preferences: RecipientStore.Preferences, now: Timestamp)
        -> Timestamp?
    {
        // Most users have no quiet hours, so skip the lookup of the type.
        guard preferences.settings.quietHours != nil || preferences.preference.quietHours != nil else { return nil }
        return self.facts(notification, self.catalog[notification.type], preferences, progress: .stored, now: now)
            .releaseAt
    }

    /// Returns the consumer group of a stream, with this dispatcher as the consumer.
    ///
    /// - Parameter keys: the keys of the stream's part; nil for this dispatcher's.
    func group(_ stream: String, in keys: Keyspace? = nil) -> ConsumerGroup {
        ConsumerGroup(stream: stream, consumer: self.name, connection: self.redis, keys: keys ?? self.keys)
    }

    /// Acknowledges and deletes entries of one stream, and appends their events in the same write.
    ///
    /// Retries until that succeeds.
    func acknowledge(_ ids: [String], _ group: ConsumerGroup, reporting events: [LifecycleEvent] = []) async throws {
        var unreported = events
        try await self.retrying("acknowledge entries") {
            try await self.acknowledgeOnce(ids, group, reporting: &unreported)
        }
    }

    /// Tries once to acknowledge entries and to append their events.
    ///
    /// - Parameters:
    ///   - events: emptied once the entries are acknowledged; if that fails, keeps the events that
    ///     Redis refused.
    ///   - addFirst: adds commands that come before the acknowledgement, in the same write.
    func acknowledgeOnce(
        _ ids: [String],
        _ group: ConsumerGroup,
        reporting events: inout [LifecycleEvent],
        after addFirst: (inout RedisBatch) -> Void = { _ in }
    ) async throws {
        var batch = RedisBatch()
        self.publisher.add(events, in: &batch)
        let eventCount = batch.count
        addFirst(&batch)
        group.acknowledge(ids, in: &batch)
        let replies = try await self.redis.send(batch)
        let (answers, rest) = (replies.prefix(eventCount), replies.dropFirst(eventCount))
        if rest.contains(where: \.isError) {
            self.publisher.count(answers.filter { !$0.isError }[...])
            events.keepFailed(by: answers)
            for reply in rest { _ = try reply.checked() }
        }
        // Events whose server is away must not delay the work; they are lost.
        self.publisher.count(answers)
        events = []
        self.inFlight.release(ids, of: group.stream)
    }

    /// Gives the parts of a cluster to other dispatchers, at the start of a shutdown.
    func leaveParts() {
        self.share.leave()
        guard self.keys.isSpread else { return }
        Task { _ = try? await self.redis.send("ZREM", .text(self.keys.dispatchers), .text(self.name)) }
    }

    /// Leaves the consumer groups in which this dispatcher has nothing pending.
    ///
    /// Other dispatchers take over the rest once the lease has lapsed.
    package func leaveGroups() async {
        var streams = self.keys.jobSources.flatMap { keys in Lane.allCases.map { keys.jobs($0) } }
        for keys in self.keys.parts {
            for provider in self.channels.providers { streams += Lane.allCases.map { keys.deliveries(provider, $0) } }
        }
        var batch = RedisBatch()
        for stream in streams { self.group(stream).remove(self.name, in: &batch) }
        _ = try? await self.redis.send(batch)
    }

    /// Takes a turn, which one dispatcher at a time has until it ends.
    ///
    /// Takes over a turn that outlasts the longest possible one: Redis's clock has stepped back.
    func takeTurn(_ key: String, lifetime: Duration) async throws(RedisError) -> Bool {
        let milliseconds = lifetime.inMilliseconds
        let command: [RedisArgument] = ["SET", .text(key), .text(self.name), "PX", .integer(milliseconds)]
        if try await self.redis.send(command + ["NX"]).string() != nil { return true }
        guard try await self.redis.send("PTTL", .text(key)).integer() > Self.longestTurn else { return false }
        try await self.redis.send(command)
        return true
    }
}

/// Lifecycle events for upstream apps.
extension Dispatcher {
    /// Returns the event of a notification.
    func event(_ kind: LifecycleEvent.Kind, of notification: Notification, reason: String? = nil) -> LifecycleEvent {
        LifecycleEvent(kind, notification.label, at: self.now(), reason: reason)
    }

    /// Returns the event of a notification that ended when it was stored, and counts it if its job
    /// was cancelled before.
    func events(of notification: Notification, stored outcome: NotificationStore.Outcome) -> [LifecycleEvent] {
        switch outcome {
        case .stored:
            guard let kind = LifecycleEvent.Kind(ending: notification.status) else { return [] }
            return [self.event(kind, of: notification, reason: notification.statusReason)]
        case .cancelled:
            PipelineMetrics.cancelled.increment()
            return [self.event(.cancelled, of: notification)]
        case .known, .duplicate, .conflict, .replaced:
            return []
        }
    }

    /// Returns the events of replaced notifications, each with the newer one's id as its reason.
    func events(of replacements: [NotificationStore.Replacement]) -> [LifecycleEvent] {
        let now = self.now()
        return replacements.map { LifecycleEvent(.replaced, $0.label, at: now, reason: $0.newest.description) }
    }

    /// Returns the events of notifications that ended because they were read or deleted.
    func events(of ended: [EndedNotification]) -> [LifecycleEvent] {
        let now = self.now()
        return ended.compactMap { $0.event(at: now) }
    }

    /// Appends events that belong to no stream entry; those that Redis does not take are lost.
    func report(_ events: [LifecycleEvent]) async {
        await self.publisher.publish(events)
    }
}
