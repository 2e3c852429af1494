// Carillon · PersonShapes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// A user's settings, preferences and devices.
package struct PersonReport: Sendable {
    package let person: PeopleStore.Person
    package let settings: UserSettings
    package let state: InboxStore.State
    package let presence: Presence
    package let devices: [Device]
    package let topics: [String]
    package let waiting: [PeopleStore.Waiting]

    package init(_ person: PeopleStore.Person, _ database: Database, _ presence: PresenceRegistry) async throws {
        self.person = person
        self.settings = try await database.preferences.settings(user: person.user)
        self.state = try await database.inboxes.state(of: person.user)
        self.presence = try await presence.lookUp([person.user]).first ?? .offline
        self.devices = try await database.devices.list(user: person.user)
        self.topics = try await database.people.topics(of: person.user)
        self.waiting = try await database.people.waiting(for: person.user)
    }

    // MARK: JSON

    /// The user, as commands show it.
    package static let shape: Shape<PersonReport> =
        head + ["settings": .object(UserSettings.shape) { $0.settings }] + inbox + rest

    /// The identity, before the settings.
    package static let head: Shape<PersonReport> = [
        "user_id": .value(.text(JobLimits.user)) { $0.person.user },
        "created_at": .value(.time) { $0.person.createdAt },
        "last_seen": .value(.time) { $0.person.lastSeen },
        "email_fault": .value(.string, "Why mail to the address comes back; null if it does not.") {
            $0.person.emailFault
        },
    ]

    /// Where notifications go, after the settings.
    package static let inbox: Shape<PersonReport> = [
        "inbox": .object(InboxStore.State.shape) { ($0.state, nil) },
        "presence": .object(Shape("PresenceState", Presence.shape)) { ($0.presence, $0.person.lastSeen) },
        "devices": .list(of: Device.shape, max: 1_000) { $0.devices },
    ]

    /// The members at the end.
    package static let rest: Shape<PersonReport> = [
        "topics": .value(.list(of: .string, max: 1_000), "The first 1,000.") { $0.topics },
        "waiting": .list(
            of: [
                "notification_id": .value(.uuid, "Null for a scheduled job.") { $0.notification },
                "kind": .value(.choice("release", "attention", "email", "summary", "snooze", "schedule")) { $0.kind },
                "due_at": .value(.time) { $0.dueAt },
                "reason": .value(.string) { $0.reason },
                "job_id": .value(.string, "Of a scheduled job.") { $0.job },
            ], max: 100, "Postponed steps, digests, and jobs scheduled for this user alone, the first ones due."
        ) { $0.waiting },
    ]
}

extension InboxStore.State {
    /// The counts of an inbox; nil leaves out those by category.
    package static let shape = Shape<(state: InboxStore.State, categories: [(category: String, count: Int32)]?)>(
        "InboxState",
        [
            "unread": .value(.count) { $0.state.unread },
            "total": .value(.count) { $0.state.total },
            "version": .value(.count) { $0.state.version },
            "categories": .optional(
                .map(of: .count), "Unread by category; the empty name has those without one."
            ) { value in
                value.categories.map { CountsByName($0.map { (name: $0.category, count: $0.count) }) }
            },
        ])
}

extension UserSettings {
    /// The settings, as commands show them.
    package static let shape: Shape<UserSettings> = [
        "zone": .value(.string) { $0.zone },
        "locale": .value(.string) { $0.locale },
        "email": .value(.string) { $0.email },
        "opted_out": .value(.bool) { $0.isOptedOut },
        "email_opted_out": .value(.bool) { $0.isEmailOptedOut },
        "quiet_hours": .value(.quietHours) { $0.quietHours },
    ]
}

extension QuietHours: JSONWritable {
    package func write(to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("start", Self.clock(self.start))
        writer.member("end", Self.clock(self.end))
        writer.array("weekdays", (1...7).filter { self.weekdays & 1 << UInt8($0 - 1) != 0 }) { $0.integer($1) }
        writer.endObject()
    }

    private static func clock(_ minutes: Int) -> String { (LocalTime(minutes: minutes) ?? .midnight).description }
}

extension Schema {
    /// Quiet hours in answers and requests.
    package static let quietHours = Schema(
        "QuietHours", "Wall-clock times in the user's zone; start = end means none.",
        [
            "start": .timeOfDay,
            "end": .timeOfDay,
            "weekdays?": .list(of: .integer(1...7), min: 1, max: 7).orNull("1 is Monday; all if absent."),
        ], isClosed: true)
}

extension Presence {
    /// The presence, and when the user's last socket closed.
    package static let shape: Shape<(presence: Presence, lastSeen: Timestamp?)> =
        onlineShape.of { $0.presence } + ["last_seen": .value(.time) { $0.lastSeen }]
        + connectionsShape.of { $0.presence }

    package static let onlineShape: Shape<Presence> = ["online": .value(.bool) { !$0.connections.isEmpty }]

    package static let connectionsShape: Shape<Presence> = [
        "connections": .list(
            of: [
                "connection": .value(.string) { $0.connection },
                "dialect": .value(.cases(of: Dialect.self)) { $0.dialect.rawValue },
                "node": .value(.string) { $0.node },
                "state": .value(.choice("active", "idle")) { $0.state.rawValue },
                "since": .value(.time) { $0.since },
            ], max: 100_000
        ) { $0.connections }
    ]
}

extension Device {
    /// A device without the token.
    package static let shape = Shape<Device>(
        "Device",
        [
            "id": .value(.uuid) { $0.id },
            "platform": .value(.platform) { $0.platform.rawValue },
            "provider": .value(.string(pattern: "^[a-z][a-z0-9]{0,14}$")) { $0.provider.rawValue },
            "app": .value(.string) { $0.app },
            "environment": .value(.environment) { $0.environment.rawValue },
            "name": .value(.string) { $0.name },
            "device_id": .value(.string) { $0.deviceID },
            "app_version": .value(.string) { $0.appVersion },
            "locale": .value(.string) { $0.locale },
            "active": .value(.bool) { $0.isActive },
            "deactivated_reason": .value(.string) { $0.deactivatedReason },
            "registered_at": .value(.time) { $0.registeredAt },
            "last_used_at": .value(.time) { $0.lastUsedAt },
            "enabled": .value(.bool, "Whether the user allows pushes to it.") { !$0.isSilenced },
        ])
}

extension PeopleStore.Item {
    /// A notification for operators.
    package static let shape = Shape<PeopleStore.Item>(
        "PersonNotification",
        [
            "id": .value(.uuid) { $0.notification.id },
            "type": .value(.text(JobLimits.name)) { $0.notification.type },
            "title": .value(.string) { $0.notification.title },
            "status": .value(.cases(of: NotificationStatus.self)) { $0.notification.status.rawValue },
            "status_reason": .value(.string) { $0.notification.statusReason },
            "decision": .value(.string, "Why less was done than requested.") { $0.notification.decision },
            "sent_via": .value(.string) { $0.sentVia },
            "created_at": .value(.time) { $0.notification.createdAt },
            "delivered_at": .value(.time) { $0.notification.deliveredAt },
            "opened_at": .value(.time) { $0.notification.openedAt },
            "read_at": .value(.time) { $0.notification.readAt },
            "archived_at": .value(.time) { $0.archivedAt },
            // For an archived row, `deleted_at` is the end of its time in the archive.
            "deleted_at": .value(.time) { $0.archivedAt == nil ? $0.notification.deletedAt : nil },
            "job_id": .value(.string) { $0.notification.jobID },
            "org_id": .value(.string) { $0.notification.org },
        ])
}
