// Carillon · APIServices.swift
// SPDX-License-Identifier: Apache-2.0

package import Catalog
package import Model
package import Redis
package import Services
package import Stores
package import Streams
package import Telemetry

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
    package let presence: PresenceRegistry
    package let jobs: JobStream
    package let broadcasts: BroadcastStore
    package let jobControl: JobControl
    package let catalog: Catalog
    package let redis: RedisConnection
    package let metrics: PrometheusRegistry
    /// Asks PostgreSQL for a sign of life.
    package let checkDatabase: @Sendable () async throws -> Void
    package let now: @Sendable () -> Timestamp
    /// The public key of Web Push in base64url; nil where it is not configured.
    package let webPushKey: String?
    /// Reads the links of e-mail; nil where there is no secret to sign them with.
    package let unsubscribeLinks: UnsubscribeLinks?
    /// Bounds the calls of each user; nil for no bound.
    package let callRate: UserRate?
    let userFields: UserFields

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
        presence: PresenceRegistry,
        jobs: JobStream,
        broadcasts: BroadcastStore,
        jobControl: JobControl,
        catalog: Catalog,
        redis: RedisConnection,
        metrics: PrometheusRegistry,
        checkDatabase: @escaping @Sendable () async throws -> Void,
        now: @escaping @Sendable () -> Timestamp,
        webPushKey: String? = nil,
        unsubscribeLinks: UnsubscribeLinks? = nil,
        callRate: UserRate? = nil
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
        self.presence = presence
        self.jobs = jobs
        self.broadcasts = broadcasts
        self.jobControl = jobControl
        self.catalog = catalog
        self.redis = redis
        self.metrics = metrics
        self.checkDatabase = checkDatabase
        self.now = now
        self.webPushKey = webPushKey
        self.unsubscribeLinks = unsubscribeLinks
        self.callRate = callRate
        self.userFields = UserFields(catalog: catalog, now: now)
    }
}
