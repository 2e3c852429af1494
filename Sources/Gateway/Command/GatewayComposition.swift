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
import UnixSignals

/// Composes the gateway: the only place that makes its clients and services.
enum GatewayComposition {
    /// Serves until a signal arrives.
    static func run(_ settings: GatewaySettings, reader: SettingsReader) async throws {
        let now: @Sendable () -> Timestamp = Timestamp.now
        let catalog = await reader.load("CATALOG", isSet: !settings.common.catalog.isEmpty) {
            try CatalogLoader.load(path: settings.common.catalog)
        }
        let identity = await GatewayIdentity(settings, reader: reader)
        let protection = GatewayProtection(settings, reader: reader)
        let certificate = await reader.load("GATEWAY_TLS_CERT", isSet: settings.tlsCertificate != nil) {
            try ServerCertificate(
                certificateFile: settings.tlsCertificate ?? "",
                keyFile: settings.tlsKey ?? ""
            )
        }
        let webPushKey = await reader.load("VAPID_KEY", isSet: settings.devices.webPushKey != nil) {
            guard let file = FileManager.default.contents(atPath: settings.devices.webPushKey ?? "") else {
                throw VAPIDKey.Fault("the file cannot be read")
            }
            return try VAPIDKey(file: Array(file))
        }
        let deviceRules = await reader.load("APPS", isSet: true) { try settings.devices.rules() }
        try reader.finish()
        guard let catalog, let deviceRules else { return }

        LogOutput.bootstrap(format: settings.common.logFormat, level: settings.common.logLevel)
        let usage = ProcessUsage()
        let metrics = PrometheusRegistry(GatewayMetrics.families) { usage.values() }
        MetricsSystem.bootstrap(metrics)
        let node = RandomName.make()
        let logger = LogOutput.logger(label: "carillon.gateway", key: "node.id", name: node)
        let catalogs = CatalogRegister(catalog, path: settings.common.catalog, now: now)
        let eventLoops = MultiThreadedEventLoopGroup(numberOfThreads: System.coreCount)

        let redisConfiguration = try self.redis(settings, node: node)
        let redis = try RedisConnection(redisConfiguration, on: eventLoops.next(), logger: logger)
        var postgres = self.postgres(settings)
        let epoch = EpochWatch()
        epoch.watch(&postgres)
        let pool = try PostgresPool(postgres, logger: logger)
        try await Migrations.applyWhenReachable(to: pool, logger: logger)
        let base = GatewayBase(
            database: Database(pool),
            live: Live(redis),
            catalogs: catalogs,
            defaultZone: settings.common.defaultZone,
            events: EventPublisher(
                log: EventLog(keys: Keyspace(), length: settings.common.eventsLength), connection: redis, logger: logger
            ),
            now: now,
            logger: logger
        )
        let keySet = try identity.keySet(logger: logger)
        let identities = identity.services(base, keySet: keySet, callRate: protection.calls(base.live.buckets))
        let inbox = InboxServices(base, cacheBytes: settings.inboxCacheBytes)
        let keyFile = settings.devices.webPushKey ?? ""
        let webPushKeyFile = webPushKey.map {
            WebPushKeyFile($0, logger: logger) { FileManager.default.contents(atPath: keyFile).map { Array($0) } }
        }
        let users = UserServices(
            base,
            rules: deviceRules,
            revocations: identities.revocations,
            webPushKey: webPushKeyFile,
            unsubscribeLinks: settings.authentication.secrets.first.map {
                UnsubscribeLinks(secret: $0, previousSecret: settings.authentication.secrets.dropFirst().first)
            }
        )
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
        let messageRate = protection.messages(base.live.buckets)
        let backend = SocketService(
            base, node: node, credentials: identities.credentials, inbox: inbox, users: users.store,
            messageRate: messageRate)
        var sockets = protection.sockets
        sockets.recovery = settings.socketIORecovery == .on
        let hub = SocketHub(
            eventLoopGroup: eventLoops,
            configuration: sockets,
            backend: backend,
            logger: logger,
            now: now
        )
        epoch.onChange {
            logger.warning("database was restored or replaced; clients start from a new sync")
            hub.repair()
        }
        let nodeService = NodeService(
            node: node,
            configuration: redisConfiguration,
            connection: redis,
            keys: base.live.keys,
            hub: hub,
            revocations: identities.revocations,
            eventLoop: eventLoops.next(),
            logger: logger
        )
        let router = APIRouter.make(api, errors: CompatibilityRouter.errors) { router, services in
            let environment: ProviderEnvironment = settings.apnsEnvironment == .sandbox ? .sandbox : .production
            CompatibilityRouter.add(to: router, services: services, defaults: .init(environment: environment))
            WebRouter.add(to: router)
        }
        var policy = protection.policy
        policy.connections = OpenFiles.raiseLimit().map { Budget(limit: OpenFiles.connections(under: $0)) }
        let app = try self.application(settings, router, hub, backend, policy, certificate, eventLoops, logger)
        logger.info("gateway started")
        let revocationService = RevocationService(register: identities.revocations, hub: hub, logger: logger)
        let reload = await CatalogReloadService(
            register: catalogs,
            configuration: redisConfiguration,
            keys: base.live.keys,
            eventLoop: eventLoops.next(),
            logger: logger
        )
        let surveyService = SurveyService(base)
        let spans = try settings.common.traces.map {
            try SpanExport.start(
                endpoint: $0.endpoint, headers: $0.headers, service: $0.service ?? "carillon-gateway", logger: logger)
        }
        let zoneRefresh = ZoneRefreshService(zones: base.zones, logger: logger)
        let memory = MemoryService(bodies: [policy.bodies, identities.bodies])
        var services: [any Service] = [
            zoneRefresh, memory, reload, inbox.pages, revocationService, surveyService, nodeService, hub, app,
        ]
        if let keySet { services.insert(keySet, at: 0) }
        for rate in [identities.callRate, messageRate] { if let rate { services.insert(rate, at: 0) } }
        if let webPushKeyFile { services.insert(webPushKeyFile, at: 0) }
        if let certificate { services.insert(certificate, at: 0) }
        if let spans { services.insert(spans, at: 0) }
        try await self.run(services, settings, logger: logger)
        await redis.close()
        pool.close()
    }

    private static func redis(_ settings: GatewaySettings, node: String) throws -> RedisConfiguration {
        var configuration = RedisConfiguration(
            address: try settings.common.redisAddress(),
            clientName: "carillon-gateway-\(node)"
        )
        configuration.certificateAuthorityFile = settings.common.redisCertificateAuthority
        return configuration
    }

    private static func postgres(_ settings: GatewaySettings) -> PostgresConfiguration {
        var configuration = PostgresConfiguration(
            connectionString: settings.common.database,
            applicationName: "carillon-gateway"
        )
        configuration.sessionSettings = StoreSession.settings
        configuration.connections = settings.common.databaseConnections
        return configuration
    }

    /// Runs the services until a signal arrives.
    private static func run(_ services: [any Service], _ settings: GatewaySettings, logger: Logger) async throws {
        var configuration = ServiceGroupConfiguration(
            services: services.map { .init(service: $0) },
            gracefulShutdownSignals: [.sigterm, .sigint],
            logger: logger
        )
        configuration.maximumGracefulShutdownDuration = .seconds(30)
        do {
            try await ServiceGroup(configuration: configuration).run()
        } catch let error as IOError {
            throw ListenFault(
                setting: "GATEWAY_PORT", host: settings.host, port: settings.port, reason: NetworkFault.words(error))
        }
    }

    private static func application(
        _ settings: GatewaySettings,
        _ router: Router<APIContext>,
        _ hub: SocketHub,
        _ backend: SocketService,
        _ policy: DoorPolicy,
        _ certificate: ServerCertificate?,
        _ eventLoops: MultiThreadedEventLoopGroup,
        _ logger: Logger
    ) throws -> some ApplicationProtocol {
        let origins = settings.protection.originNames
        let endpoints: [any TransportEndpoint] = [
            NativeEndpoint(hub: hub, backend: backend), EventStreamEndpoint(hub: hub, backend: backend),
            NotificationHub.endpoint(hub: hub, backend: backend, allowedOrigins: origins),
            SocketIOEndpoint(hub: hub, origins: EngineIOOrigins(origins)),
        ]
        let server = HTTPServerBuilder { responder in
            let door = DoorChannel(
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
            guard let certificate else { return door }
            return CertificateChannel(door: door, certificate: certificate)
        }
        let scheme = certificate == nil ? "http" : "https"
        let configuration = ApplicationConfiguration(
            address: .hostname(settings.host, port: settings.port),
            serverName: nil,
            backlog: 4_096
        )
        return Application(
            router: router,
            server: server,
            configuration: configuration,
            onServerRunning: { channel in
                let port = channel.localAddress?.port ?? settings.port
                Terminal.line("ready \(scheme)://\(settings.host):\(port)")
            },
            eventLoopGroupProvider: .shared(eventLoops),
            logger: logger
        )
    }
}

/// Returns freed memory to the system after a flood of requests.
///
/// The C library would keep free blocks between used ones for good.
struct MemoryService: Service {
    private static let interval: Duration = .seconds(5)
    /// Trims after each flood: connections free their last buffers some time after the count falls.
    private static let trims = 4

    /// Count the bytes of unanswered requests: before authentication, and of users.
    let bodies: [Budget]

    func run() async throws {
        await cancelWhenGracefulShutdown {
            var left = 0
            // A count that falls wakes no waiter, because it changes on the hot path; so poll it.
            while (try? await Task.sleep(for: Self.interval)) != nil {
                // Ask every budget, because each reports its flood once.
                for budget in self.bodies where budget.floodHasEnded() { left = Self.trims }
                guard left > 0 else { continue }
                left -= 1
                Heap.trim()
            }
        }
    }
}

/// Reloads the machine's time-zone data when it changes, so that simulations use current rules.
struct ZoneRefreshService: Service {
    private static let interval: Duration = .seconds(60)

    let zones: ZoneDatabase
    let logger: Logger

    func run() async throws {
        _ = self.zones.refresh()
        await cancelWhenGracefulShutdown {
            // A package update sends no signal, so poll the files, as dispatchers do.
            while (try? await Task.sleep(for: Self.interval)) != nil {
                guard self.zones.refresh() else { continue }
                self.logger.notice(
                    "time-zone data changed", metadata: ["zones.version": "\(self.zones.version)"])
            }
        }
    }
}
