// Carillon · APIServices.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import HTTPTypes
import Operations
import Storage

/// The services behind the routes, by subject.
package struct APIServices: Sendable {
    let base: GatewayBase
    let identity: IdentityServices
    let inbox: InboxServices
    let users: UserServices
    let jobs: JobServices
    let metrics: PrometheusRegistry
    let webhookOptions: WebhookOptions

    package init(
        _ base: GatewayBase,
        identity: IdentityServices,
        inbox: InboxServices,
        users: UserServices,
        jobs: JobServices,
        metrics: PrometheusRegistry,
        webhookOptions: WebhookOptions = WebhookOptions()
    ) {
        self.base = base
        self.identity = identity
        self.inbox = inbox
        self.users = users
        self.jobs = jobs
        self.metrics = metrics
        self.webhookOptions = webhookOptions
    }
}

/// Authentication and limits of callers.
package struct IdentityServices: Sendable {
    package let credentials: CredentialResolver
    let tickets: SocketTickets
    package let revocations: RevocationRegister
    /// The rate limit of users; nil for none.
    package let callRate: UserRate?
    /// The memory budget for the request bodies of users.
    package let bodies = BodyBudget(limit: 16 * 1024 * 1024)

    package init(
        credentials: CredentialResolver,
        tickets: SocketTickets,
        revocations: RevocationRegister,
        callRate: UserRate? = nil
    ) {
        self.credentials = credentials
        self.tickets = tickets
        self.revocations = revocations
        self.callRate = callRate
    }

    /// Counts the calls that a caller's work amounts to beyond the one that the middleware has
    /// counted; they limit later calls only.
    func count(furtherCalls: Int, of caller: Caller) {
        guard furtherCalls > 0, !caller.isService else { return }
        _ = self.callRate?.delay(caller.user, count: furtherCalls)
    }
}

/// Reads, changes and caches inboxes.
package struct InboxServices: Sendable {
    let store: InboxStore
    let service: InboxService
    package let retries: FrameRetries
    package let pages: InboxPageCache
    let base: GatewayBase

    /// - Parameter cacheBytes: the most bytes of cached pages; 0 disables the cache.
    package init(_ base: GatewayBase, cacheBytes: Int = 0) {
        self.store = base.database.inboxes
        self.retries = FrameRetries(base)
        self.service = InboxService(base, self.store, retries: self.retries)
        self.pages = InboxPageCache(bytes: cacheBytes)
        self.base = base
    }
}

/// Users with their devices, preferences and topics.
package struct UserServices: Sendable {
    package let store: UserStore
    let devices: DeviceStore
    let preferences: PreferenceStore
    let topics: TopicStore
    let fields: UserFields
    let erasure: ErasureService
    /// The key that browsers subscribe with; nil if Web Push is not configured.
    let webPushKey: WebPushKeyFile?
    /// Reads the links in e-mail; nil without a secret.
    let unsubscribeLinks: UnsubscribeLinks?
    let base: GatewayBase

    package init(
        _ base: GatewayBase,
        rules: DeviceRules = DeviceRules(),
        revocations: RevocationRegister,
        webPushKey: WebPushKeyFile? = nil,
        unsubscribeLinks: UnsubscribeLinks? = nil
    ) {
        self.base = base
        self.store = base.database.users(limits: rules.limits)
        self.devices = base.database.devices(limits: rules.limits)
        self.preferences = base.database.preferences
        self.topics = base.database.topics
        self.fields = UserFields(
            catalogs: base.catalogs, now: base.now, webPushOrigins: rules.origins, appOrigins: rules.appOrigins)
        self.erasure = ErasureService(base, users: self.store, revocations: revocations)
        self.webPushKey = webPushKey
        self.unsubscribeLinks = unsubscribeLinks
    }

    /// Registers devices of one user, all or none.
    ///
    /// Reports to upstream apps the devices that this switches off.
    ///
    /// - Parameter silenced: whether the user has switched them off; nil keeps the previous choice.
    /// - Throws: ``Problem`` 429 if the user's tokens have changed too often.
    // Swift 6.3 crashes when it inlines this in an optimised build.
    @inline(never)
    func register(_ devices: [Device], silenced: Bool? = nil) async throws -> [Device] {
        let registrations: [DeviceStore.Registration]
        do throws(PostgresError) {
            registrations = try await self.devices.register(devices, silenced: silenced)
        } catch {
            throw Self.refusal(error)
        }
        await self.publish(registrations)
        return registrations.map(\.device)
    }

    /// Records that a device was seen, with its changes.
    ///
    /// - Returns: the device after the change; nil if the user has none with this id.
    /// - Throws: ``Problem`` 429 for a new token if the user's tokens have changed too often.
    func touch(_ id: DeviceID, of user: String, change: DeviceStore.Change) async throws -> Device? {
        do throws(PostgresError) {
            return try await self.devices.touch(user: user, id: id, change: change, at: self.base.now())
        } catch {
            throw Self.refusal(error)
        }
    }

    /// Returns the error that answers a failed change of devices.
    private static func refusal(_ error: PostgresError) -> any Error {
        guard error.sqlState == DeviceStore.tooManyChanges else { return error }
        let limit = DeviceStore.mostChangesPerHour
        return Problem(
            .tooManyRequests, "the tokens of a user may change \(limit) times an hour", retryAfter: 3_600)
    }

    /// Stores a user's own change of settings, except those in `kept`.
    ///
    /// - Returns: the stored settings.
    /// - Throws: ``Problem`` 429 if the user changes quiet hours or the zone too often.
    @discardableResult
    func change(_ settings: UserSettings, of user: String, keeping kept: KeptSettings) async throws -> UserSettings {
        let optsOut = settings.isOptedOut && !kept.contains(.optOut)
        if kept.changesQuietHours, !optsOut { try await self.base.countQuietChange(of: user) }
        return try await self.preferences.set(user: user, settings: settings, keeping: kept)
    }

    /// Stores a user's own change of preferences; others stay.
    ///
    /// - Parameter categories: the category of each type; see ``PreferenceStore``.
    /// - Throws: ``Problem`` 429 if the user changes quiet hours too often.
    func change(
        _ preferences: [String: TypePreference],
        of user: String,
        categories: [String: String] = [:]
    ) async throws {
        if preferences.changeQuietHours { try await self.base.countQuietChange(of: user) }
        try await self.preferences.set(user: user, preferences: preferences, categories: categories)
    }

    /// Switches a user's quiet hours on or off.
    ///
    /// - Throws: ``Problem`` 429 if the user changes quiet hours too often.
    func switchQuietHours(of user: String, isOn: Bool) async throws {
        try await self.base.countQuietChange(of: user)
        try await self.preferences.switchQuietHours(user: user, isOn: isOn)
    }

    /// Reports to upstream apps the devices that registrations have switched off.
    func publish(_ registrations: [DeviceStore.Registration]) async {
        let now = self.base.now()
        await self.base.events.publish(
            registrations.flatMap(\.switchedOff).map { device in
                LifecycleEvent(.deviceDeactivated, device, at: now, reason: device.deactivatedReason ?? "")
            })
    }
}

/// Jobs, scheduled jobs and broadcasts.
package struct JobServices: Sendable {
    let stream: JobStream
    let schedules: ScheduleStore
    let broadcasts: BroadcastStore
    let control: JobControl
    let base: GatewayBase

    package init(_ base: GatewayBase) {
        self.base = base
        self.stream = base.live.jobs
        self.schedules = base.database.schedules
        self.broadcasts = base.database.broadcasts
        self.control = JobControl(
            base.database, base.publisher, keys: base.live.keys, events: base.events, now: base.now,
            logger: base.logger)
    }

    /// Requires room for jobs in their lanes, and in the overflows of their organisations.
    ///
    /// - Throws: ``Problem`` 503 that names the lane or the organisation.
    func requireRoom(
        for jobs: [(lane: Lane, org: String, fields: [(name: String, value: [UInt8])])]
    ) async throws {
        switch try await self.stream.shortage(for: jobs) {
        case nil: break
        case .lane(let lane):
            throw Problem(.serviceUnavailable, "too many jobs wait in lane \(lane.rawValue)", retryAfter: 5)
        case .organisation(let org):
            throw Problem(.serviceUnavailable, "too many jobs of organisation \(org) wait", retryAfter: 5)
        }
    }
}
