// Carillon · Clockwork.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Logging
import Pipeline
import Providers
import ServiceLifecycle
import Storage
import Support
import Synchronization
import Testing

/// A dispatcher inside the test whose clock the test sets.
///
/// It expands due work onto the streams; the dispatcher program sends.
final class Clockwork: Sendable {
    private let ahead: Mutex<Duration>

    private init(ahead: Duration) {
        self.ahead = Mutex(ahead)
    }

    /// Puts the clock forward, or back if `duration` is negative.
    func jump(_ duration: Duration) {
        self.ahead.withLock { $0 += duration }
    }

    private var now: Timestamp { Schedules.now() + self.ahead.withLock { $0 } }

    /// Runs `body` while such a dispatcher works.
    static func with(_ stack: Stack, ahead: Duration = .zero, _ body: (Clockwork) async throws -> Void) async throws {
        let url = try #require(stack.database?.url)
        var configuration = PostgresConfiguration(connectionString: url, applicationName: "clockwork")
        configuration.sessionSettings = StoreSession.settings
        configuration.connections = 4
        let pool = try PostgresPool(configuration, logger: TestLog.logger)
        let redis = try TestRedis.connect(stack.redis.configuration())
        let clockwork = Clockwork(ahead: ahead)
        let dispatcher = try clockwork.dispatcher(stack, pool, redis)
        let services: [any Service] = [
            ScheduleService(dispatcher: dispatcher), FollowUpService(dispatcher: dispatcher),
            DigestService(dispatcher: dispatcher), SweepService(dispatcher: dispatcher),
        ]
        let work = Task {
            await withTaskGroup(of: Void.self) { group in
                for service in services { group.addTask { try? await service.run() } }
            }
        }
        let result: Result<Void, any Error>
        do { result = .success(try await body(clockwork)) } catch { result = .failure(error) }
        work.cancel()
        await work.value
        await redis.close()
        pool.close()
        try result.get()
    }

    private func dispatcher(_ stack: Stack, _ pool: PostgresPool, _ redis: RedisConnection) throws -> Dispatcher {
        let keys = Keyspace()
        let catalog = try CatalogLoader.load(path: stack.directory.file("catalog.yaml"))
        return Dispatcher(
            name: "clockwork",
            catalogs: CatalogRegister(catalog, now: { self.now }),
            keys: keys,
            redis: redis,
            notifications: NotificationStore(pool: pool),
            recipients: RecipientStore(pool: pool),
            deliveries: DeliveryStore(pool: pool),
            deadLetters: DeadLetterStore(pool: pool),
            followUps: FollowUpStore(pool: pool),
            digests: DigestStore(pool: pool),
            schedules: ScheduleStore(pool: pool),
            zones: ZoneDatabase(),
            defaultZone: "UTC",
            broadcasts: BroadcastStore(pool: pool),
            cancellations: CancellationStore(pool: pool),
            presence: PresenceRegistry(connection: redis, keys: keys),
            events: EventLog(keys: keys, length: nil),
            channels: ChannelDirectory([ChannelDirectory.Way(Silence())]),
            now: { self.now },
            logger: TestLog.logger
        )
    }
}

/// A channel that makes FCM known but never sends; the dispatcher program sends instead.
private struct Silence: ProviderChannel {
    let provider = Provider.fcm
    let app = "default"

    func send(_ message: PushMessage, to device: Device) async -> ProviderReply {
        ProviderReply(.noCredential(reason: "the dispatcher program sends instead"))
    }
}
