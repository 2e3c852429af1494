// Carillon · APIServices.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import HTTPTypes
import Operations
import Sockets
import Storage

/// What the routes stand on.
package struct APIServices: Sendable {
    package let credentials: CredentialResolver
    package let tickets: SocketTickets
    package let revocations: RevocationRegister
    package let inbox: InboxStore
    package let inboxService: InboxService
    package let notifications: NotificationStore
    package let devices: DeviceStore
    package let preferences: PreferenceStore
    package let users: UserStore
    package let exports: UserExportStore
    package let erasure: ErasureService
    package let topics: TopicStore
    package let schedules: ScheduleStore
    package let presence: PresenceRegistry
    package let recipients: RecipientStore
    package let usage: UsageCaps
    package let traces: TraceStore
    package let digests: DigestStore
    package let survey: StreamSurvey
    package let providerBoard: ProviderBoard
    package let testSends: TestSends
    package let jobs: JobStream
    package let broadcasts: BroadcastStore
    package let jobControl: JobControl
    package let zones: ZoneDatabase
    private let defaultZoneName: String
    package let catalogs: CatalogRegister
    package let catalogAnnouncer: CatalogAnnouncer
    package let redis: RedisConnection
    package let metrics: PrometheusRegistry
    /// Asks PostgreSQL for a sign of life.
    package let checkDatabase: @Sendable () async throws -> Void
    package let now: @Sendable () -> Timestamp
    /// The key that browsers subscribe with; nil where Web Push is not configured.
    package let webPushKey: WebPushKeyFile?
    /// Reads the links of e-mail; nil where there is no secret to sign them with.
    package let unsubscribeLinks: UnsubscribeLinks?
    /// Bounds the calls of each user; nil for no bound.
    package let callRate: UserRate?
    /// Bounds the memory that users' bodies take.
    package let bodies = Tally(limit: 16 * 1024 * 1024)
    package let webhooks: WebhookStore
    package let deadLetters: DeadLetterStore
    package let webhookOptions: WebhookOptions
    package let statisticsStore: StatisticsStore
    package let statistics: StatisticsService
    package let clientReports: ClientReportStore
    let inboxPages: InboxPageCache
    /// Those that devices and a job's `platform` may name.
    private let events: EventTeller
    let userFields: UserFields

    /// The catalog of this moment; what answers one call takes it once.
    package var catalog: Catalog { self.catalogs.current }

    package init(
        credentials: CredentialResolver,
        tickets: SocketTickets,
        revocations: RevocationRegister,
        inbox: InboxStore,
        inboxService: InboxService,
        notifications: NotificationStore,
        devices: DeviceStore,
        preferences: PreferenceStore,
        users: UserStore,
        exports: UserExportStore,
        erasure: ErasureService,
        topics: TopicStore,
        schedules: ScheduleStore,
        presence: PresenceRegistry,
        recipients: RecipientStore,
        usage: UsageCaps,
        traces: TraceStore,
        digests: DigestStore,
        survey: StreamSurvey,
        providerBoard: ProviderBoard,
        testSends: TestSends,
        jobs: JobStream,
        broadcasts: BroadcastStore,
        jobControl: JobControl,
        catalogs: CatalogRegister,
        catalogAnnouncer: CatalogAnnouncer,
        zones: ZoneDatabase,
        defaultZone: String = "UTC",
        redis: RedisConnection,
        metrics: PrometheusRegistry,
        checkDatabase: @escaping @Sendable () async throws -> Void,
        now: @escaping @Sendable () -> Timestamp,
        webPushKey: WebPushKeyFile? = nil,
        webPushOrigins: WebPushOrigins = .any,
        appOrigins: [String: WebPushOrigins] = [:],
        unsubscribeLinks: UnsubscribeLinks? = nil,
        callRate: UserRate? = nil,
        webhooks: WebhookStore,
        deadLetters: DeadLetterStore,
        webhookOptions: WebhookOptions = WebhookOptions(),
        statistics: StatisticsStore,
        clientReports: ClientReportStore,
        events: EventTeller = EventTeller(),
        inboxPages: InboxPageCache
    ) {
        self.credentials = credentials
        self.tickets = tickets
        self.revocations = revocations
        self.inbox = inbox
        self.inboxService = inboxService
        self.notifications = notifications
        self.devices = devices
        self.preferences = preferences
        self.users = users
        self.exports = exports
        self.erasure = erasure
        self.topics = topics
        self.schedules = schedules
        self.presence = presence
        self.recipients = recipients
        self.usage = usage
        self.traces = traces
        self.digests = digests
        self.survey = survey
        self.providerBoard = providerBoard
        self.testSends = testSends
        self.jobs = jobs
        self.broadcasts = broadcasts
        self.jobControl = jobControl
        self.zones = zones
        self.defaultZoneName = defaultZone
        self.catalogs = catalogs
        self.catalogAnnouncer = catalogAnnouncer
        self.redis = redis
        self.metrics = metrics
        self.checkDatabase = checkDatabase
        self.now = now
        self.webPushKey = webPushKey
        self.unsubscribeLinks = unsubscribeLinks
        self.callRate = callRate
        self.webhooks = webhooks
        self.deadLetters = deadLetters
        self.webhookOptions = webhookOptions
        self.statisticsStore = statistics
        self.statistics = StatisticsService(store: statistics, now: now)
        self.clientReports = clientReports
        self.inboxPages = inboxPages
        self.events = events
        self.userFields = UserFields(
            catalogs: catalogs, now: now, webPushOrigins: webPushOrigins, appOrigins: appOrigins)
    }

    /// The clocks of users who have said no zone, by the law of now.
    package var defaultZone: ZoneRules { self.zones.rules(self.defaultZoneName) ?? .utc }

    /// Asserts that the lanes take more jobs.
    ///
    /// - Throws: ``Problem`` 503 that names the lane.
    package func requireRoom(in lanes: Set<Lane>) async throws {
        for lane in lanes where try await self.jobs.length(lane) >= JobStream.highWaterMark {
            throw Problem(.serviceUnavailable, "too many jobs wait in lane \(lane.rawValue)", retryAfter: 5)
        }
    }
}

extension APIServices {
    /// Registers a device, and tells upstream apps which ones were switched off for it.
    ///
    /// - Parameters:
    ///   - replacing: whether what its `deviceID` had registered before goes.
    ///   - silenced: whether its user has switched it off; nil keeps what the user said before.
    package func register(_ device: Device, replacing: Bool = false, silenced: Bool? = nil) async throws -> Device {
        let registration =
            replacing
            ? try await self.devices.registerReplacing(device, silenced: silenced)
            : try await self.devices.register(device, silenced: silenced)
        await self.tell([registration])
        return registration.device
    }

    /// Tells upstream apps which devices were switched off.
    func tell(_ registrations: [DeviceStore.Registration]) async {
        let now = self.now()
        await self.events.tell(
            registrations.flatMap(\.switchedOff).map { device in
                LifecycleEvent(.deviceDeactivated, device, at: now, reason: device.deactivatedReason ?? "")
            })
    }
}
