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
    package let jobs: JobStream
    package let catalog: Catalog
    package let redis: RedisConnection
    package let metrics: PrometheusRegistry
    /// Asks PostgreSQL for a sign of life.
    package let checkDatabase: @Sendable () async throws -> Void
    package let now: @Sendable () -> Timestamp

    package init(
        credentials: CredentialResolver,
        tickets: SocketTickets,
        revocations: RevocationRegister,
        inbox: InboxStore,
        inboxService: InboxService,
        notifications: NotificationStore,
        devices: DeviceStore,
        preferences: PreferenceStore,
        jobs: JobStream,
        catalog: Catalog,
        redis: RedisConnection,
        metrics: PrometheusRegistry,
        checkDatabase: @escaping @Sendable () async throws -> Void,
        now: @escaping @Sendable () -> Timestamp
    ) {
        self.credentials = credentials
        self.tickets = tickets
        self.revocations = revocations
        self.inbox = inbox
        self.inboxService = inboxService
        self.notifications = notifications
        self.devices = devices
        self.preferences = preferences
        self.jobs = jobs
        self.catalog = catalog
        self.redis = redis
        self.metrics = metrics
        self.checkDatabase = checkDatabase
        self.now = now
    }
}
