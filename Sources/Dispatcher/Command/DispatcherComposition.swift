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

/// Composes the dispatcher: nothing else makes its clients and services.
enum DispatcherComposition {
    /// Runs the dispatcher until a signal ends it.
    static func run(_ settings: DispatcherSettings, reader: SettingsReader) async throws {
        let clock = SteadyClock(.now())
        let loaded = await reader.load("CATALOG", isSet: !settings.common.catalog.isEmpty) {
            try CatalogLoader.load(path: settings.common.catalog)
        }
        let zones = Dispatcher.Zones(ZoneDatabase(), fallback: settings.common.defaultZone)
        if zones.database.rules(zones.fallback) == nil {
            reader.fault("DEFAULT_ZONE", "is not an IANA time zone in this machine's tzdata, such as Europe/Berlin")
        }
        if let path = settings.providerCertificateAuthority, !FileManager.default.isReadableFile(atPath: path) {
            reader.fault("PROVIDER_CA", "cannot be read")
        }
        LogOutput.bootstrap(format: settings.common.logFormat, level: settings.common.logLevel)
        let name = RandomName.make()
        let logger = LogOutput.logger(label: "carillon.dispatcher", key: "dispatcher.name", name: name)
        let transfers = self.transfers(settings, logger: logger)
        let apps = self.apps(settings, transfers: transfers, now: { clock.now }, logger: logger)
        let entries = await apps.make { reader.unusable($0, $1) }
        let catalog = try reader.finish(loaded)
        reader.logMisspellings(logger)

        let webhooks = try self.webhookTransfer(settings, logger: logger)
        // Each part of a cluster has its own connections. The metrics read the raised limit.
        OpenFiles.raiseLimit()
        let metrics = self.metrics()
        let clients = try await Clients(settings, name: name, logger: logger)
        let directory = ChannelDirectory(entries)
        apps.warnOfRates(directory)
        let dispatcher = Dispatcher(
            name: name,
            database: clients.database,
            live: clients.live,
            eventsLength: settings.common.eventsLength,
            catalogs: CatalogRegister(catalog, path: settings.common.catalog, now: { clock.now }),
            zones: zones,
            channels: directory,
            clock: Dispatcher.Clock(now: { clock.now }, lease: settings.common.lease),
            logger: logger
        )
        let time = ClockService(
            clock: clock, database: dispatcher.database, machine: Timestamp.now, logger: logger)
        let startup = Startup()
        let work = Startup.Work(after: startup) { port in
            // Start the clock before anything looks for due work.
            await time.start()
            let lease = LeaseService(dispatcher: dispatcher)
            // A shutdown may have begun after the lease was taken.
            guard try await self.acquire(lease) else { return await lease.release() }
            let deliveries = try self.deliveries(dispatcher, settings, clients)
            let pauses = AccountPauseService(dispatcher: dispatcher, deliveries: deliveries)
            // Read the shared pauses before anything is sent to a paused account.
            await pauses.refresh()
            logger.info("dispatcher started")

            // Shutdown runs from the last to the first: intake stops, taken work is finished, and
            // the lease goes last.
            var services: [any Service] = []
            if let traces = settings.common.traces {
                services.append(try SpanExport.start(traces, program: "carillon-dispatcher", logger: logger))
            }
            services += [lease, time]
            services.append(
                await CatalogReloadService(
                    register: dispatcher.catalogs, configuration: clients.redisConfiguration, keys: dispatcher.keys,
                    eventLoop: clients.eventLoops.next(), logger: logger))
            services += [RefreshService(every: .seconds(10)) { await apps.renew(directory) }, pauses]
            let events: [any Service] =
                dispatcher.events.isOn
                ? [WebhookService(dispatcher: dispatcher, transfer: webhooks)] : []
            services += try self.stages(dispatcher, deliveries, events, settings, clients)
            services += self.outboxes(settings).map { name, database in
                OutboxRelay(dispatcher: dispatcher, name: name, configuration: database)
            }
            startup.finish()
            Terminal.ready("http", host: settings.metricsHost, port: port)
            try await ServiceGroup(services: services, logger: logger).run()
            await dispatcher.leaveGroups()
            await lease.release()
        }
        let server = OperationsServer.make(settings, metrics, clients, startup, logger: logger)
        try await ServiceGroup.run(
            [server, work], stopsWithin: .seconds(60), host: ("METRICS_HOST", settings.metricsHost),
            port: ("METRICS_PORT", settings.metricsPort), logger: logger)
        await transfers.shutdown()
        await webhooks.shutdown()
        await clients.close()
    }

    /// Acquires the lease; false if a shutdown comes first, such as while Redis is unreachable.
    private static func acquire(_ lease: LeaseService) async throws -> Bool {
        do {
            try await cancelWhenGracefulShutdown {
                try await lease.claimRedis()
                try await lease.acquire()
            }
            return true
        } catch {
            guard Task.isShuttingDownGracefully else { throw error }
            return false
        }
    }

    // MARK: Stages

    /// Makes a service per provider in use.
    private static func deliveries(
        _ dispatcher: Dispatcher,
        _ settings: DispatcherSettings,
        _ clients: Clients
    ) throws -> [DeliveriesService] {
        var services: [DeliveriesService] = []
        for provider in Provider.all {
            guard dispatcher.channels.providers.contains(provider) else {
                dispatcher.logger.notice(
                    "provider is off; no app has settings for it", metadata: ["provider": "\(provider.rawValue)"])
                continue
            }
            services.append(
                DeliveriesService(
                    dispatcher: dispatcher, provider: provider, calls: settings.providerCalls,
                    readers: try clients.readers(of: dispatcher.keys.parts) { clients.eventLoops.next() }))
        }
        return services
    }

    /// Makes the services that do the work, in the order of their start.
    ///
    /// - Parameter events: the services that send events.
    private static func stages(
        _ dispatcher: Dispatcher,
        _ deliveries: [DeliveriesService],
        _ events: [any Service],
        _ settings: DispatcherSettings,
        _ clients: Clients
    ) throws -> [any Service] {
        let broadcasts = BroadcastService(
            dispatcher: dispatcher.on(clients.broadcastDatabase, clients.broadcastLive),
            configuration: BroadcastService.Configuration(
                confirmAbove: Int64(settings.broadcastConfirmAbove),
                highWaterMark: Int64(settings.broadcastHighWater)
            )
        )
        let testSends = TestSendService(
            dispatcher: dispatcher, reader: try clients.connect(on: clients.eventLoops.next()))
        let jobs = JobsService(
            dispatcher: dispatcher,
            readers: try clients.readers(of: dispatcher.keys.jobSources) { clients.jobsLoop },
            executor: EventLoopTaskExecutor(clients.jobsLoop),
            overflow: settings.overflowBacklog.map { .init(backlog: $0, leastShare: settings.overflowShare) }
        )
        let retention = RetentionService(
            dispatcher: dispatcher, periods: settings.retention, machine: Timestamp.now)
        var services: [any Service] = [
            // First in the list, so it stops after all the services that it wakes.
            DueService(dispatcher: dispatcher),
            RetryService(dispatcher: dispatcher, deliveries: deliveries), SweepService(dispatcher: dispatcher),
            SessionService(dispatcher: dispatcher), ProofService(dispatcher: dispatcher), broadcasts,
            FollowUpService(dispatcher: dispatcher), DigestService(dispatcher: dispatcher),
            ScheduleService(dispatcher: dispatcher, highWaterMark: Int64(settings.broadcastHighWater)),
        ]
        // Shut down together, because each may take long: a provider's answer takes up to half a
        // minute, and jobs wait for PostgreSQL.
        var slow: [any Service] = deliveries
        slow += [jobs, testSends, ClaimService(dispatcher: dispatcher, deliveries: deliveries)]
        services.append(ConcurrentServices(slow + events))
        services.append(ProviderStateService(dispatcher: dispatcher, deliveries: deliveries))
        services += [ReplayService(dispatcher: dispatcher), retention]
        return services
    }

    // MARK: Clients

    /// The connections to Redis and PostgreSQL.
    struct Clients {
        let eventLoops: MultiThreadedEventLoopGroup
        /// The loop of the jobs' stages, their readers and their connection, which share its
        /// thread.
        let jobsLoop: any EventLoop
        let redisConfiguration: RedisConfiguration
        let database: Database
        let live: Live
        private let replicated: ReplicatedWrites?
        /// Separate connections for broadcasts: their pages of a thousand would delay urgent work.
        let broadcastDatabase: Database
        let broadcastLive: Live
        private let logger: Logger

        /// Connects, and migrates the database once it can be reached.
        init(_ settings: DispatcherSettings, name: String, logger: Logger) async throws {
            self.logger = logger
            self.eventLoops = MultiThreadedEventLoopGroup(numberOfThreads: System.coreCount)
            let configuration = settings.common.redisConfiguration(clientName: "carillon-dispatcher-\(name)")
            self.redisConfiguration = configuration
            self.jobsLoop = self.eventLoops.next()
            self.replicated = try settings.common.redis.replicatedWrites(
                on: RedisClient(configuration, on: self.eventLoops.next(), logger: logger))
            self.database = Database(try PostgresPool(DispatcherComposition.database(settings), logger: logger))
            try await Migrations.applyWhenReachable(to: self.database.pool, logger: logger)
            let keys = try await settings.common.redis.keyspace(self.database.layout, logger: logger)
            self.live = Live(
                try RedisClient(configuration, on: self.jobsLoop, logger: logger), keys: keys,
                replicated: self.replicated)
            var database = DispatcherComposition.database(settings)
            database.connections = BroadcastService.chains + 1
            database.sessionSettings = StoreSession.pageSettings
            self.broadcastDatabase = Database(try PostgresPool(database, logger: logger))
            self.broadcastLive = Live(
                try RedisClient(configuration, on: self.eventLoops.next(), logger: logger), keys: keys)
        }

        func connect(on eventLoop: any EventLoop) throws -> RedisClient {
            try RedisClient(self.redisConfiguration, on: eventLoop, logger: self.logger)
        }

        /// Makes a connection for the blocking reads of each lane of the given parts.
        func readers(of parts: [Keyspace], on eventLoop: () -> any EventLoop) throws -> [PartLane] {
            var readers: [PartLane] = []
            for keys in parts {
                for lane in Lane.allCases { readers.append(PartLane(keys, lane, try self.connect(on: eventLoop()))) }
            }
            return readers
        }

        func close() async {
            await self.replicated?.close()
            await self.live.connection.close()
            await self.broadcastLive.connection.close()
            self.broadcastDatabase.pool.close()
            self.database.pool.close()
        }
    }

    private static func metrics() -> PrometheusRegistry {
        let usage = ProcessUsage()
        let metrics = PrometheusRegistry(DispatcherMetrics.families) { usage.values() }
        MetricsSystem.bootstrap(metrics)
        return metrics
    }

    private static func database(_ settings: DispatcherSettings) -> PostgresConfiguration {
        var configuration = settings.common.databaseConfiguration(applicationName: "carillon-dispatcher")
        EpochWatch().watch(&configuration)
        return configuration
    }

    /// Makes the channels of providers from the apps' settings.
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

    /// Makes the clients for providers' hosts and for the push services of browsers.
    static func transfers(_ settings: DispatcherSettings, logger: Logger) -> TransferPool {
        var configuration = TransferConfiguration()
        configuration.caFile = settings.providerCertificateAuthority
        return TransferPool(
            configuration: configuration, allowsPrivateAddresses: settings.allowsPrivateWebPush, logger: logger)
    }

    /// Makes the client for webhooks.
    private static func webhookTransfer(_ settings: DispatcherSettings, logger: Logger) throws -> TransferClient {
        var configuration = TransferConfiguration()
        configuration.caFile = settings.providerCertificateAuthority
        configuration.allowPlainHTTP = settings.common.allowsPrivateWebhooks
        configuration.strangersChooseURLs = true
        configuration.refusesPrivateAddresses = !settings.common.allowsPrivateWebhooks
        return try TransferClient(configuration: configuration, logger: logger)
    }

    /// Returns a function that makes the link to stop a type's e-mail with one click; its result is
    /// nil without a public URL and a secret.
    private static func unsubscribeLinks(_ settings: DispatcherSettings) -> @Sendable (Notification) -> String? {
        guard let url = settings.publicURL, let secret = settings.linkSecret else { return { _ in nil } }
        let links = UnsubscribeLinks(secret: secret)
        return { notification in
            "\(url)/v1/unsubscribe?token=" + links.token(for: .init(user: notification.user, type: notification.type))
        }
    }

    /// Returns the databases whose outbox is relayed, by name.
    private static func outboxes(_ settings: DispatcherSettings) -> [(String, PostgresConfiguration)] {
        let others = settings.outboxDatabases.enumerated().map { number, url in
            ("\(number + 1)", PostgresConfiguration(connectionString: url, applicationName: "carillon-outbox"))
        }
        return [("own", self.database(settings))] + others
    }

    @Sendable
    private static func contents(_ path: String) throws(CredentialFault) -> [UInt8] {
        guard let bytes = FileManager.default.contents(atPath: path) else {
            throw CredentialFault("the file cannot be read")
        }
        return Array(bytes)
    }
}

/// Runs tasks on an event loop's thread.
///
/// The job stages mostly wait for Redis on that loop. On its thread, a reply resumes them without
/// waking another thread; such a wake-up is most of the latency at low load.
final class EventLoopTaskExecutor: TaskExecutor {
    private let eventLoop: any EventLoop

    init(_ eventLoop: any EventLoop) {
        self.eventLoop = eventLoop
    }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        self.eventLoop.execute { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}
