// Carillon · GatewayComposition.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import FoundationEssentials
import HTTP
import Hummingbird
import HummingbirdCore
import Logging
import Metrics
import NIOCore
import NIOPosix
import Operations
import ServiceLifecycle
import Sockets
import Storage

/// Composes the gateway: the only place that makes its clients and services.
enum GatewayComposition {
    /// Serves until a signal arrives.
    static func run(_ settings: GatewaySettings, reader: SettingsReader) async throws {
        let files = try await GatewayFiles(settings, reader: reader)
        LogOutput.bootstrap(format: settings.common.logFormat, level: settings.common.logLevel)
        // Raise the limit before `ProcessUsage` reads it.
        let openFiles = OpenFiles.raiseLimit()
        let usage = ProcessUsage()
        let metrics = PrometheusRegistry(GatewayMetrics.families) { usage.values() }
        MetricsSystem.bootstrap(metrics)
        let node = RandomName.make()
        let logger = LogOutput.logger(label: "carillon.gateway", key: "node.id", name: node)
        reader.logMisspellings(logger)
        let clients = try await GatewayClients(settings, node: node, logger: logger)
        // Before the port is bound, so that no job gets into the Redis of another database.
        let claimCheck = try await clients.checkClaim()
        let catalogs = CatalogRegister(files.catalog, path: settings.common.catalog, now: Timestamp.now)
        let base = self.base(settings, catalogs, clients)

        let keySet = try files.identity.keySet(logger: logger)
        let protection = files.protection
        let identities = files.identity.services(
            base, keySet: keySet, callRate: protection.calls(base.live.buckets))
        let inbox = InboxServices(base, cacheBytes: settings.inboxCacheBytes)
        let webPushKey = files.webPushKeyFile(settings, logger: logger)
        let users = UserServices(
            base,
            rules: files.deviceRules,
            revocations: identities.revocations,
            webPushKey: webPushKey,
            unsubscribeLinks: settings.authentication.secrets.first.map {
                UnsubscribeLinks(secret: $0, previousSecret: settings.authentication.secrets.dropFirst().first)
            }
        )
        let messageRate = protection.sockets(.messages, base.live.buckets)
        let openingRate = protection.sockets(.openings, base.live.buckets)
        let backend = SocketService(
            base, node: node, credentials: identities.credentials, inbox: inbox, users: users.store,
            messageRate: messageRate, openingRate: openingRate)
        let hub = self.hub(settings, protection, backend, clients)
        let api = APIServices(
            base,
            identity: identities,
            inbox: inbox,
            users: users,
            jobs: JobServices(base),
            metrics: metrics,
            webhookOptions: WebhookOptions(
                areEventsWritten: settings.common.eventsLength != nil,
                allowsPrivate: settings.common.allowsPrivateWebhooks
            )
        )
        var policy = protection.policy
        if let openFiles {
            policy.connections = Budget(limit: OpenFiles.connections(under: openFiles))
            policy.spare = Budget(limit: OpenFiles.spare(under: openFiles))
        }
        let listener = GatewayListener(settings: settings, hub: hub, policy: policy, certificate: files.certificate)
        let startup = Startup()
        let app = listener.application(api, startup, eventLoops: clients.eventLoops, logger: logger)
        let spans = try settings.common.traces.map {
            try SpanExport.start($0, program: "carillon-gateway", logger: logger)
        }
        // `ServiceGroup` stops services in the opposite order.
        let optional: [(any Service)?] = [
            spans,
            files.certificate.map { certificate in
                RefreshService(every: .seconds(10)) { certificate.refresh(logger: logger) }
            },
            webPushKey.map { key in RefreshService(every: .seconds(10)) { key.refresh() } },
            messageRate, openingRate, identities.callRate, keySet, claimCheck,
        ]
        let services: [any Service] = [
            self.zoneRefresh(base.zones, logger: logger),
            MemoryService(
                budgets: [policy.bodies, policy.answers, identities.bodies.all], interval: settings.common.lease / 3),
            await clients.reload(catalogs),
            inbox.pages,
            inbox.retries,
            RevocationService(register: identities.revocations, hub: hub, logger: logger),
            SurveyService(base, interval: settings.common.lease),
            clients.nodeService(settings, hub: hub, revocations: identities.revocations),
        ]
        let all = optional.compactMap(\.self) + services
        let work = Startup.Work(after: startup) { _ in
            logger.info("gateway started")
            try await ServiceGroup(services: all, logger: logger).run()
        }
        // Shut down together: the server waits for its connections, which may carry sockets of the
        // hub.
        let connections = ConcurrentServices([app, hub])
        try await ServiceGroup.run(
            [work, connections], stopsWithin: .seconds(30), host: ("GATEWAY_HOST", settings.host),
            port: ("GATEWAY_PORT", settings.port), logger: logger)
        await clients.close()
    }

    /// Keeps time-zone data current for simulations.
    private static func zoneRefresh(_ zones: ZoneDatabase, logger: Logger) -> RefreshService {
        _ = zones.refresh()
        return RefreshService(every: .seconds(60)) {
            guard zones.refresh() != nil else { return }
            logger.notice("time-zone data changed", metadata: ["zones.version": "\(zones.version)"])
        }
    }

    private static func base(
        _ settings: GatewaySettings,
        _ catalogs: CatalogRegister,
        _ clients: GatewayClients
    ) -> GatewayBase {
        GatewayBase(
            database: Database(
                clients.pool, standby: clients.standby.map { StandbyReads($0, note: StandbyMetrics.record) }),
            live: Live(clients.redis, keys: clients.keys, replicated: clients.replicated),
            catalogs: catalogs,
            defaultZone: settings.common.defaultZone,
            events: EventPublisher(
                log: EventLog(keys: clients.keys, length: settings.common.eventsLength), connection: clients.redis,
                logger: clients.logger
            ),
            now: Timestamp.now,
            logger: clients.logger
        )
    }

    private static func hub(
        _ settings: GatewaySettings,
        _ protection: GatewayProtection,
        _ backend: SocketService,
        _ clients: GatewayClients
    ) -> SocketHub {
        var sockets = protection.sockets
        sockets.recovery = settings.hasSocketIORecovery
        let logger = clients.logger
        let hub = SocketHub(
            eventLoopGroup: clients.eventLoops,
            configuration: sockets,
            backend: backend,
            logger: logger,
            now: Timestamp.now
        )
        clients.epoch.onChange {
            logger.warning("database was restored or replaced; clients start from a new sync")
            hub.catchUpAll()
        }
        return hub
    }
}

/// The contents of files and settings, checked before anything starts.
private struct GatewayFiles {
    let catalog: Catalog
    let identity: GatewayIdentity
    let protection: GatewayProtection
    let certificate: ServerCertificate?
    let deviceRules: DeviceRules
    private let webPushKey: VAPIDKey?

    /// - Throws: ``SettingsFaults`` with every fault.
    init(_ settings: GatewaySettings, reader: SettingsReader) async throws {
        let catalog = await reader.load("CATALOG", isSet: !settings.common.catalog.isEmpty) {
            try CatalogLoader.load(path: settings.common.catalog)
        }
        self.identity = await GatewayIdentity(settings, reader: reader)
        self.protection = GatewayProtection(settings, reader: reader)
        self.certificate = await reader.load("GATEWAY_TLS_CERT", isSet: settings.tlsCertificate != nil) {
            try ServerCertificate(certificateFile: settings.tlsCertificate ?? "", keyFile: settings.tlsKey ?? "")
        }
        self.webPushKey = await reader.load("VAPID_KEY", isSet: settings.devices.webPushKey != nil) {
            guard let file = FileManager.default.contents(atPath: settings.devices.webPushKey ?? "") else {
                throw FieldFault("the file cannot be read")
            }
            return try VAPIDKey(file: Array(file))
        }
        let deviceRules = await reader.load("APPS", isSet: true) { try settings.devices.rules() }
        self.catalog = try reader.finish(catalog)
        self.deviceRules = try reader.finish(deviceRules)
    }

    /// Returns the key for browsers, read again when its file changes; nil if none is set.
    func webPushKeyFile(_ settings: GatewaySettings, logger: Logger) -> WebPushKeyFile? {
        let path = settings.devices.webPushKey ?? ""
        return self.webPushKey.map {
            WebPushKeyFile($0, logger: logger) { FileManager.default.contents(atPath: path).map { Array($0) } }
        }
    }
}

/// The connections to Redis and PostgreSQL, and the services that need their own.
private struct GatewayClients {
    private static let applicationName = "carillon-gateway"

    let eventLoops = MultiThreadedEventLoopGroup(numberOfThreads: System.coreCount)
    let redis: RedisClient
    let replicated: ReplicatedWrites?
    let pool: PostgresPool
    /// PostgreSQL's standbys, for pages of inboxes; nil if there are none.
    let standby: PostgresPool?
    let keys: Keyspace
    let epoch = EpochWatch()
    let logger: Logger
    private let node: String
    private let redisConfiguration: RedisConfiguration

    /// Connects, and migrates the database once it can be reached.
    init(_ settings: GatewaySettings, node: String, logger: Logger) async throws {
        self.node = node
        self.logger = logger
        self.redisConfiguration = settings.common.redisConfiguration(clientName: "carillon-gateway-\(node)")
        self.redis = try RedisClient(self.redisConfiguration, on: self.eventLoops.next(), logger: logger)
        self.replicated = try settings.common.redis.replicatedWrites(
            on: RedisClient(self.redisConfiguration, on: self.eventLoops.next(), logger: logger))
        var postgres = settings.common.databaseConfiguration(applicationName: Self.applicationName)
        self.epoch.watch(&postgres)
        self.pool = try PostgresPool(postgres, logger: logger)
        self.standby = try Self.standby(settings).map { try PostgresPool($0, logger: logger) }
        try await Migrations.applyWhenReachable(to: self.pool, logger: logger)
        self.keys = try await settings.common.redis.keyspace(Database(self.pool).layout, logger: logger)
    }

    private static func standby(_ settings: GatewaySettings) -> PostgresConfiguration? {
        guard let url = settings.readDatabase else { return nil }
        var configuration = settings.common.databaseConfiguration(applicationName: Self.applicationName, url: url)
        // Short, because the primary answers if no standby does.
        configuration.timeout = .seconds(1)
        configuration.wantsStandby = true
        configuration.waitsForServer = false
        return configuration
    }

    /// Checks that no other database has claimed Redis.
    ///
    /// - Returns: a service that checks later, if Redis does not answer within a second.
    /// - Throws: ``RedisError`` with code `configuration` if another database has claimed it.
    func checkClaim() async throws -> ClaimCheck? {
        let live = Live(self.redis, keys: self.keys)
        guard let installation = try await Database(self.pool).layout.identity() else { return nil }
        let check = ClaimCheck(live: live, installation: installation)
        return try await check.hasPassed() ? nil : check
    }

    func nodeService(_ settings: GatewaySettings, hub: SocketHub, revocations: RevocationRegister) -> NodeService {
        NodeService(
            node: self.node,
            lease: Lease(
                key: self.keys.nodeLease(self.node), value: "gateway",
                register: Lease.Register(key: self.keys.nodes, name: self.node, now: Timestamp.now),
                lifetime: settings.common.lease, connection: self.redis
            ),
            configuration: self.redisConfiguration,
            live: Live(self.redis, keys: self.keys),
            hub: hub,
            revocations: revocations,
            eventLoop: self.eventLoops.next(),
            logger: self.logger
        )
    }

    func reload(_ catalogs: CatalogRegister) async -> CatalogReloadService {
        await CatalogReloadService(
            register: catalogs,
            configuration: self.redisConfiguration,
            keys: self.keys,
            eventLoop: self.eventLoops.next(),
            logger: self.logger
        )
    }

    func close() async {
        await self.replicated?.close()
        await self.redis.close()
        self.pool.close()
        self.standby?.close()
    }
}

/// The server behind the port: endpoints of sockets and streams, and the routes of the API.
private struct GatewayListener {
    let settings: GatewaySettings
    let hub: SocketHub
    let policy: ConnectionPolicy
    let certificate: ServerCertificate?

    func application(
        _ api: APIServices,
        _ startup: Startup,
        eventLoops: MultiThreadedEventLoopGroup,
        logger: Logger
    ) -> some ApplicationProtocol {
        let settings = self.settings
        let (policy, certificate) = (self.policy, self.certificate)
        let endpoints: [any TransportEndpoint] = [
            NativeEndpoint(hub: self.hub),
            EventStreamEndpoint(hub: self.hub),
            NotificationHub.endpoint(hub: self.hub),
            SocketIOEndpoint.endpoint(hub: self.hub),
        ]
        let server = HTTPServerBuilder { responder in
            let connections = ConnectionChannel(
                responder: responder,
                endpoints: endpoints,
                policy: policy,
                http: HTTP1Channel.Configuration(
                    idleTimeout: .seconds(75),
                    httpDecoderConfiguration: .init(
                        maxHeaderFieldSize: 16 * 1024,
                        maxHeaderListSize: 32 * 1024,
                        maxHeaderFieldCount: 100
                    )
                )
            )
            guard let certificate else { return connections }
            return CertificateChannel(connections: connections, certificate: certificate)
        }
        let scheme = certificate == nil ? "http" : "https"
        let configuration = ApplicationConfiguration(
            address: .hostname(settings.host, port: settings.port),
            serverName: nil,
            backlog: 4_096
        )
        return Application(
            router: self.router(api),
            server: server,
            configuration: configuration,
            onServerRunning: { channel in
                let port = channel.localAddress?.port ?? settings.port
                startup.bound(to: port)
                Terminal.ready(scheme, host: settings.host, port: port)
            },
            eventLoopGroupProvider: .shared(eventLoops),
            logger: logger
        )
    }

    private func router(_ api: APIServices) -> Router<APIContext> {
        APIRouter.make(api, errors: CompatibilityRouter.errors) { router, services in
            CompatibilityRouter.add(to: router, services: services, environment: self.settings.apnsEnvironment)
            WebRouter.add(to: router)
        }
    }
}

/// Ends the gateway if Redis, once it answers, has the work of another database.
private struct ClaimCheck: Service {
    let live: Live
    let installation: String

    /// Returns false if Redis does not answer.
    ///
    /// - Throws: ``RedisError`` with code `configuration` if another database has claimed it.
    func hasPassed() async throws(RedisError) -> Bool {
        do throws(RedisError) {
            try await self.live.checkClaim(for: self.installation, timeout: .seconds(1))
            return true
        } catch {
            guard error.code != .configuration else { throw error }
            return false
        }
    }

    func run() async throws {
        try await cancelWhenGracefulShutdown {
            // Redis does not signal that it is back, so ask every second.
            while try await !self.hasPassed(), (try? await Task.sleep(for: .seconds(1))) != nil {}
        }
        try? await gracefulShutdown()
    }
}

/// Returns freed memory to the system after a flood of requests.
///
/// The C library would keep free blocks between used ones for good.
struct MemoryService: Service {
    /// How long to trim after each flood: connections free their last buffers some time after the
    /// count falls, and a flood's last requests may not raise it again.
    private static let aftermath: Duration = .seconds(60)

    /// The counts of bytes in flight: unanswered requests before authentication, those of users,
    /// and unread answers.
    let budgets: [Budget]
    let interval: Duration

    func run() async throws {
        await cancelWhenGracefulShutdown {
            var left = 0
            // A count that falls wakes no waiter, because it changes on the hot path; so poll it.
            while (try? await Task.sleep(for: self.interval)) != nil {
                // Ask every budget, because each reports its flood once.
                for budget in self.budgets where budget.floodHasEnded() { left = Int(Self.aftermath / self.interval) }
                guard left > 0 else { continue }
                left -= 1
                Heap.trim()
            }
        }
    }
}
