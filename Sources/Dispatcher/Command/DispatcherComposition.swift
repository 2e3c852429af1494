// Carillon · DispatcherComposition.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import FoundationEssentials
import Hummingbird
import Logging
import Metrics
import NIOCore
import NIOPosix
import Operations
import Pipeline
import Providers
import ServiceLifecycle
import Storage
import UnixSignals

/// Puts the dispatcher together: the one place that makes clients and services.
enum DispatcherComposition {
    /// Works until a signal ends it.
    static func run(_ settings: DispatcherSettings, reader: SettingsReader) async throws {
        let machineTime: @Sendable () -> Timestamp = {
            Timestamp(microseconds: Int64(Date.now.timeIntervalSince1970 * 1_000_000))
        }
        let clock = SteadyClock(machineTime())
        let now: @Sendable () -> Timestamp = { clock.now }
        let catalog = await reader.load("CATALOG", isSet: !settings.common.catalog.isEmpty) {
            try CatalogLoader.load(path: settings.common.catalog)
        }
        let zones = ZoneDatabase()
        if zones.rules(settings.common.defaultZone) == nil {
            reader.fault("DEFAULT_ZONE", "is no IANA time zone that this machine's tzdata has, such as Europe/Berlin")
        }
        LogOutput.bootstrap(format: settings.common.logFormat, level: settings.common.logLevel)
        let name = RandomName.make()
        let logger = LogOutput.logger(label: "carillon.dispatcher", key: "dispatcher.name", name: name)
        let transfers = self.transfers(settings, logger: logger)
        let webhooks = try self.webhookTransfer(settings, logger: logger)
        let apps = self.apps(settings, transfers: transfers, now: now, logger: logger)
        let ways = await apps.make { reader.fault($0, "cannot be used: \($1)") }
        try reader.finish()
        guard let catalog else { return }

        let usage = ProcessUsage()
        let metrics = PrometheusRegistry(DispatcherMetrics.families) { usage.values() }
        MetricsSystem.bootstrap(metrics)
        let eventLoops = MultiThreadedEventLoopGroup(numberOfThreads: System.coreCount)

        var redisConfiguration = RedisConfiguration(
            address: try settings.common.redisAddress(),
            clientName: "carillon-dispatcher-\(name)"
        )
        redisConfiguration.certificateAuthorityFile = settings.common.redisCertificateAuthority
        // The jobs' stages, their readers and the connection that they use share one loop and its thread.
        let jobsLoop = eventLoops.next()
        let connect: (any EventLoop) throws -> RedisConnection = { eventLoop in
            try RedisConnection(redisConfiguration, on: eventLoop, logger: logger)
        }
        let redis = try connect(jobsLoop)
        let pool = try PostgresPool(self.database(settings), logger: logger)
        try await Migrations.applyWhenReachable(to: pool, logger: logger)
        let database = Database(pool)
        let time = ClockService(
            clock: clock, notifications: database.notifications, machine: machineTime, logger: logger)
        // Before anything is looked at that may be due.
        try? await time.set()
        let keys = Keyspace()
        let live = Live(redis, keys: keys)
        let catalogs = CatalogRegister(catalog, path: settings.common.catalog, now: now)
        let directory = ChannelDirectory(ways)
        apps.tellRates(directory)
        let dispatcher = Dispatcher(
            name: name,
            catalogs: catalogs,
            database: database,
            live: live,
            zones: zones,
            defaultZone: settings.common.defaultZone,
            events: EventLog(keys: keys, length: settings.common.eventsLength),
            channels: directory,
            now: now,
            logger: logger
        )
        let providers = ProviderKinds.providers
        for provider in providers where !directory.providers.contains(provider) {
            logger.notice("provider is off", metadata: ["provider": "\(provider.rawValue)"])
        }

        let lease = LeaseService(dispatcher: dispatcher)
        let deliveries = try providers.filter { directory.providers.contains($0) }.map { provider in
            DeliveriesService(
                dispatcher: dispatcher,
                provider: provider,
                calls: settings.providerCalls,
                readers: try self.readers { try connect(eventLoops.next()) }
            )
        }
        let jobs = JobsService(
            dispatcher: dispatcher,
            readers: try self.readers { try connect(jobsLoop) },
            executor: EventLoopTaskExecutor(jobsLoop),
            overflow: settings.overflowBacklog.map { .init(backlog: $0, leastShare: settings.overflowShare) }
        )
        // Their own connections, so that pages of a thousand hold up nothing urgent.
        var broadcastDatabase = self.database(settings)
        broadcastDatabase.connections = BroadcastService.chains + 1
        broadcastDatabase.sessionSettings = StoreSession.pageSettings
        let broadcastPool = try PostgresPool(broadcastDatabase, logger: logger)
        let broadcastRedis = try connect(eventLoops.next())
        let broadcasts = BroadcastService(
            dispatcher: dispatcher.on(Database(broadcastPool), Live(broadcastRedis, keys: keys)),
            configuration: BroadcastService.Configuration(
                confirmAbove: Int64(settings.broadcastConfirmAbove),
                highWaterMark: Int64(settings.broadcastHighWater)
            )
        )
        try await lease.acquire()
        let pauses = AccountPauseService(dispatcher: dispatcher, deliveries: deliveries)
        // Before anything is sent that others were asked to hold back.
        await pauses.look()
        logger.info("dispatcher starts")
        let operations = OperationsServer.make(
            host: settings.metricsHost,
            port: settings.metricsPort,
            metrics: metrics,
            redis: redis,
            pool: pool,
            eventLoops: eventLoops,
            logger: logger
        )
        // Shut down from the last to the first: nothing new is taken, what was taken is finished, the lease goes last.
        let reload = await CatalogReloadService(
            register: catalogs,
            configuration: redisConfiguration,
            keys: keys,
            eventLoop: eventLoops.next(),
            logger: logger
        )
        let spans = try settings.common.traces.map {
            try SpanExport.start(
                endpoint: $0.endpoint, headers: $0.headers, service: $0.service ?? "carillon-dispatcher", logger: logger
            )
        }
        var services: [any Service] = [spans].compactMap(\.self)
        services += [
            lease, time, operations, reload, CredentialService(channels: apps, directory: directory),
        ]
        services += [pauses, RetryService(dispatcher: dispatcher, deliveries: deliveries)]
        services += [SweepService(dispatcher: dispatcher), ProofService(dispatcher: dispatcher), broadcasts]
        services += [FollowUpService(dispatcher: dispatcher), DigestService(dispatcher: dispatcher)]
        services.append(ScheduleService(dispatcher: dispatcher))
        services.append(contentsOf: deliveries)
        services.append(ProviderStateService(dispatcher: dispatcher, deliveries: deliveries))
        services.append(
            TestSendService(
                dispatcher: dispatcher,
                devices: database.devices,
                preferences: database.preferences,
                reader: try connect(eventLoops.next())
            )
        )
        services += [ClaimService(dispatcher: dispatcher, deliveries: deliveries), jobs]
        let days = settings.retention
        services.append(ReplayService(dispatcher: dispatcher))
        services.append(
            RetentionService(
                dispatcher: dispatcher,
                store: database.retention,
                periods: .init(
                    audit: days.audit,
                    inbox: days.inbox,
                    tombstones: days.tombstones,
                    devices: days.devices,
                    deadLetters: days.deadLetters
                )
            )
        )
        if dispatcher.events.isOn {
            services.append(
                WebhookService(dispatcher: dispatcher, store: database.webhooks, transfer: webhooks))
        }
        services += self.outboxes(settings).map { name, database in
            OutboxRelay(dispatcher: dispatcher, name: name, configuration: database)
        }
        var configuration = ServiceGroupConfiguration(
            services: services.map { .init(service: $0) },
            gracefulShutdownSignals: [.sigterm, .sigint],
            logger: logger
        )
        configuration.maximumGracefulShutdownDuration = .seconds(60)
        do {
            try await ServiceGroup(configuration: configuration).run()
        } catch let error as IOError {
            throw ListenFault(
                setting: "METRICS_PORT", host: settings.metricsHost, port: settings.metricsPort,
                reason: NetworkFault.words(error))
        }
        await dispatcher.leaveGroups()
        await lease.release()
        await transfers.shutdown()
        await webhooks.shutdown()
        await redis.close()
        await broadcastRedis.close()
        broadcastPool.close()
        pool.close()
    }

    private static func database(_ settings: DispatcherSettings) -> PostgresConfiguration {
        var configuration = PostgresConfiguration(
            connectionString: settings.common.database,
            applicationName: "carillon-dispatcher"
        )
        configuration.sessionSettings = StoreSession.settings
        configuration.connections = settings.common.databaseConnections
        EpochWatch().watch(&configuration)
        return configuration
    }

    /// What makes the ways to providers.
    static func apps(
        _ settings: DispatcherSettings,
        transfers: TransferPool,
        now: @escaping @Sendable () -> Timestamp,
        logger: Logger
    ) -> AppChannels {
        AppChannels(
            settings,
            context: ChannelContext(
                transfers: transfers,
                now: now,
                logger: logger,
                read: self.contents,
                caFile: settings.providerCertificateAuthority,
                unsubscribe: self.unsubscribeLinks(settings)
            )
        )
    }

    /// The clients for providers' hosts and for what browsers subscribed with.
    static func transfers(_ settings: DispatcherSettings, logger: Logger) -> TransferPool {
        var configuration = TransferConfiguration()
        configuration.caFile = settings.providerCertificateAuthority
        return TransferPool(
            configuration: configuration, allowsPrivateAddresses: settings.allowsPrivateWebPush, logger: logger)
    }

    /// The client for the URLs that are told of events.
    private static func webhookTransfer(_ settings: DispatcherSettings, logger: Logger) throws -> TransferClient {
        var configuration = TransferConfiguration()
        configuration.caFile = settings.providerCertificateAuthority
        configuration.allowPlainHTTP = settings.common.allowsPrivateWebhooks
        configuration.refusesPrivateAddresses = !settings.common.allowsPrivateWebhooks
        return try TransferClient(configuration: configuration, logger: logger)
    }

    /// Links by which one click stops a type's e-mail; none without an address and a secret.
    private static func unsubscribeLinks(_ settings: DispatcherSettings) -> @Sendable (Notification) -> String? {
        guard let url = settings.publicURL, let secret = settings.linkSecret else { return { _ in nil } }
        let links = UnsubscribeLinks(secret: secret)
        return { notification in
            "\(url)/v1/unsubscribe?token=" + links.token(for: .init(user: notification.user, type: notification.type))
        }
    }

    /// How the databases are reached whose outbox is relayed, by name.
    private static func outboxes(_ settings: DispatcherSettings) -> [(String, PostgresConfiguration)] {
        let others = settings.outboxDatabases.enumerated().map { number, url in
            ("\(number + 1)", PostgresConfiguration(connectionString: url, applicationName: "carillon-outbox"))
        }
        return [("own", self.database(settings))] + others
    }

    private static func readers(_ connect: () throws -> RedisConnection) throws -> [Lane: RedisConnection] {
        var readers: [Lane: RedisConnection] = [:]
        for lane in Lane.allCases { readers[lane] = try connect() }
        return readers
    }

    @Sendable
    private static func contents(_ path: String) throws(CredentialFault) -> [UInt8] {
        guard let bytes = FileManager.default.contents(atPath: path) else {
            throw CredentialFault("the file cannot be read")
        }
        return Array(bytes)
    }
}
