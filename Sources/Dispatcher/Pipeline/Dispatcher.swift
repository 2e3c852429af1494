// Carillon · Dispatcher.swift
// SPDX-License-Identifier: Apache-2.0

import Backoff
package import Catalog
package import Logging
package import Model
package import Postgres
package import Redis
package import Stores
package import Streams

/// What every stage of a dispatcher shares.
package struct Dispatcher: Sendable {
    /// New at every start, so that a name never means two processes.
    package let name: String
    package let catalog: Catalog
    package let keys: Keyspace
    /// Non-blocking commands of all stages, pipelined on one connection.
    package private(set) var redis: RedisConnection
    package private(set) var notifications: NotificationStore
    package private(set) var recipients: RecipientStore
    package private(set) var deliveries: DeliveryStore
    package let deadLetters: DeadLetterStore
    package private(set) var broadcasts: BroadcastStore
    package private(set) var cancellations: CancellationStore
    package private(set) var presence: PresenceRegistry
    /// The providers that are configured; the others' work is recorded as `no_provider`.
    package let providers: Set<Provider>
    package let now: @Sendable () -> Timestamp
    package let logger: Logger
    /// What was taken and not yet acknowledged.
    let inHand = EntriesInHand()
    let leaseClock = LeaseClock()

    package init(
        name: String,
        catalog: Catalog,
        keys: Keyspace,
        redis: RedisConnection,
        notifications: NotificationStore,
        recipients: RecipientStore,
        deliveries: DeliveryStore,
        deadLetters: DeadLetterStore,
        broadcasts: BroadcastStore,
        cancellations: CancellationStore,
        presence: PresenceRegistry,
        providers: Set<Provider>,
        now: @escaping @Sendable () -> Timestamp,
        logger: Logger
    ) {
        self.name = name
        self.catalog = catalog
        self.keys = keys
        self.redis = redis
        self.notifications = notifications
        self.recipients = recipients
        self.deliveries = deliveries
        self.deadLetters = deadLetters
        self.broadcasts = broadcasts
        self.cancellations = cancellations
        self.presence = presence
        self.providers = providers
        self.now = now
        self.logger = logger
    }

    /// The same dispatcher on connections of its own, so that what a broadcast asks holds nobody up.
    package func onConnections(_ pool: PostgresPool, _ redis: RedisConnection) -> Dispatcher {
        var copy = self
        copy.redis = redis
        copy.presence = PresenceRegistry(connection: redis, keys: self.keys)
        copy.notifications = NotificationStore(pool: pool)
        copy.recipients = RecipientStore(pool: pool)
        copy.deliveries = DeliveryStore(pool: pool)
        copy.broadcasts = BroadcastStore(pool: pool)
        copy.cancellations = CancellationStore(pool: pool)
        return copy
    }

    func group(_ stream: String) -> ConsumerGroup {
        ConsumerGroup(stream: stream, consumer: self.name, connection: self.redis)
    }

    /// Acknowledges and deletes entries of one stream, until that is done.
    func acknowledge(_ ids: [String], _ group: ConsumerGroup) async throws {
        try await self.untilDone("acknowledge entries") { try await group.acknowledge(ids) }
        self.inHand.release(ids, of: group.stream)
    }

    /// Leaves every consumer group where nothing is pending for this dispatcher; the rest is taken over when the lease is void.
    package func leaveGroups() async {
        var streams = Lane.allCases.map { self.keys.jobs($0) }
        for provider in self.providers { streams += Lane.allCases.map { self.keys.deliveries(provider, $0) } }
        for stream in streams {
            let group = self.group(stream)
            guard let pending = try? await group.pending(of: self.name, count: 1), pending.isEmpty else { continue }
            try? await group.remove(self.name)
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
            // With jitter, so that dispatchers that failed together do not come back together.
            try await Task.sleep(for: backoff.delay(attempt: attempt))
            attempt += 1
        }
    }
}
