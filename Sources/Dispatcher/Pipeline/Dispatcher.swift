// Carillon · Dispatcher.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Operations
import Providers
import Storage

/// What every stage of a dispatcher shares.
package struct Dispatcher: Sendable {
    /// New at every start, so that a name never means two processes.
    package let name: String
    package let catalogs: CatalogRegister
    package private(set) var database: Database
    /// Non-blocking commands of all stages, pipelined on one connection.
    package private(set) var live: Live
    package let zones: ZoneDatabase
    /// The zone of users who have set none, or one that is no more.
    package let defaultZone: String
    package private(set) var presence: PresenceRegistry
    /// What became of notifications, for upstream apps.
    package let events: EventLog
    /// The ways to providers; work for which there is none is recorded as `no_provider`.
    package let channels: ChannelDirectory
    package let now: @Sendable () -> Timestamp
    /// The time by which claims run out; it goes on while the machine sleeps.
    let instant: @Sendable () -> ContinuousClock.Instant
    package let logger: Logger
    /// What was taken and not yet acknowledged.
    let inHand = EntriesInHand()
    let badges = BadgeBoard()
    let leaseClock = LeaseClock()
    let summaryFaults = SummaryFaults()

    package init(
        name: String,
        catalogs: CatalogRegister,
        database: Database,
        live: Live,
        zones: ZoneDatabase,
        defaultZone: String,
        events: EventLog,
        channels: ChannelDirectory,
        now: @escaping @Sendable () -> Timestamp,
        instant: @escaping @Sendable () -> ContinuousClock.Instant = { .now },
        logger: Logger
    ) {
        self.name = name
        self.catalogs = catalogs
        self.database = database
        self.live = live
        self.presence = PresenceRegistry(live)
        self.zones = zones
        self.defaultZone = defaultZone
        self.events = events
        self.channels = channels
        self.now = now
        self.instant = instant
        self.logger = logger
    }

    package var redis: RedisConnection { self.live.connection }
    package var keys: Keyspace { self.live.keys }
    package var notifications: NotificationStore { self.database.notifications }
    package var recipients: RecipientStore { self.database.recipients }
    package var deliveries: DeliveryStore { self.database.deliveries }
    package var deadLetters: DeadLetterStore { self.database.deadLetters }
    package var broadcasts: BroadcastStore { self.database.broadcasts }
    package var cancellations: CancellationStore { self.database.cancellations }
    package var followUps: FollowUpStore { self.database.followUps }
    package var digests: DigestStore { self.database.digests }
    package var schedules: ScheduleStore { self.database.schedules }

    /// The catalog of this moment; what goes through a batch takes it once.
    package var catalog: Catalog { self.catalogs.current }

    /// Puts what a user wants into the facts of a decision.
    func apply(_ wishes: RecipientStore.Wishes, to facts: inout DecisionFacts) {
        facts.preference = wishes.preference
        facts.settings = wishes.settings
        // Most have no quiet hours, and need no zone.
        guard facts.hasQuietHours else { return }
        let own = wishes.settings.zone.flatMap { self.zones.rules($0) }
        facts.zone = own ?? self.zones.rules(self.defaultZone) ?? .utc
    }

    /// A notification that has just arrived, with the status and the channels that it is stored with.
    func decideStoring(
        _ notification: Notification,
        _ catalog: Catalog,
        wishes: RecipientStore.Wishes,
        now: Timestamp
    ) -> Notification {
        guard let type = catalog[notification.type] else { return notification }
        var facts = DecisionFacts(notification: notification, type: type, progress: .arrived, now: now)
        self.apply(wishes, to: &facts)
        var notification = notification
        for case .store(let status, let reason, let channels) in decide(facts) {
            notification.status = status
            notification.statusReason = reason?.rawValue
            notification.channels = channels
        }
        return notification
    }

    /// When the quiet hours that hold now for a notification let it go; nil if none do.
    func releaseMoment(of notification: Notification, wishes: RecipientStore.Wishes, now: Timestamp) -> Timestamp? {
        var facts = DecisionFacts(
            notification: notification,
            type: self.catalog[notification.type] ?? NotificationType(name: notification.type),
            progress: .stored,
            now: now
        )
        self.apply(wishes, to: &facts)
        return facts.releaseAt
    }

    /// A copy on other connections, so that a broadcast's queries delay nothing else.
    package func on(_ database: Database, _ live: Live) -> Dispatcher {
        var copy = self
        copy.database = database
        copy.live = live
        copy.presence = PresenceRegistry(live)
        return copy
    }

    func group(_ stream: String) -> ConsumerGroup {
        ConsumerGroup(stream: stream, consumer: self.name, connection: self.redis)
    }

    /// Acknowledges and deletes entries of one stream, until that is done; what became of them is told in the same write.
    func acknowledge(_ ids: [String], _ group: ConsumerGroup, telling events: [LifecycleEvent] = []) async throws {
        try await self.untilDone("acknowledge entries") {
            var batch = RedisBatch()
            for event in events { self.events.add(event, in: &batch) }
            let told = batch.count
            group.acknowledge(ids, in: &batch)
            let replies = try await self.redis.send(batch)
            // Work is not held up because an event could not be written.
            PipelineMetrics.events.note(replies.prefix(told))
            for reply in replies.dropFirst(told) { _ = try reply.checked() }
        }
        self.inHand.release(ids, of: group.stream)
    }

    /// Leaves every consumer group in which nothing is pending for this dispatcher; the rest is
    /// taken over when the lease is void.
    package func leaveGroups() async {
        var streams = Lane.allCases.map { self.keys.jobs($0) }
        for provider in self.channels.providers { streams += Lane.allCases.map { self.keys.deliveries(provider, $0) } }
        for stream in streams {
            _ = try? await self.group(stream).remove(self.name)
        }
    }

    /// Repeats `work` until it succeeds or the task is cancelled.
    ///
    /// For steps whose input stays pending in a stream: there is nothing better to do than to try again.
    func untilDone<Value>(
        _ what: StaticString,
        isFinal: (any Error) -> Bool = { _ in false },
        _ work: () async throws -> Value
    ) async throws -> Value {
        let backoff = Backoff(base: .milliseconds(50), limit: .seconds(2))
        var attempt = 0
        while true {
            do {
                return try await work()
            } catch {
                if isFinal(error) || Task.isCancelled { throw error }
                if attempt == 0 {
                    self.logger.warning(
                        "step failed, trying again",
                        metadata: ["step": "\(what)", "error": "\(error)"]
                    )
                }
            }
            // Backoff with jitter, so that dispatchers that failed together do not retry together.
            try await Task.sleep(for: backoff.delay(attempt: attempt))
            attempt += 1
        }
    }
}
