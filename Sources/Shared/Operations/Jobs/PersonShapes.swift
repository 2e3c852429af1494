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

    /// Writes the members of the object.
    ///
    /// - Parameter isEmailMissing: a member of the settings, see ``SettingsShape``.
    package func write(isEmailMissing: Bool? = nil, to writer: inout JSONWriter) {
        writer.member("user_id", self.person.user)
        writer.member("created_at", self.person.createdAt.rfc3339)
        writer.member("last_seen", self.person.lastSeen?.rfc3339)
        writer.member("email_fault", self.person.emailFault)
        writer.key("settings")
        SettingsShape.write(self.settings, isEmailMissing: isEmailMissing, to: &writer)
        writer.key("inbox")
        writer.beginObject()
        writer.member("unread", self.state.unread)
        writer.member("total", self.state.total)
        writer.member("version", self.state.version)
        writer.endObject()
        writer.key("presence")
        writer.beginObject()
        writer.member("last_seen", self.person.lastSeen?.rfc3339)
        PresenceShape.writeMembers(self.presence, to: &writer)
        writer.endObject()
        writer.array("devices", self.devices) { DeviceShape.write($1, to: &$0) }
        writer.array("topics", self.topics) { $0.string($1) }
        writer.array("waiting", self.waiting) { writer, step in
            writer.beginObject()
            writer.member("notification_id", step.notification?.description)
            writer.member("kind", step.kind)
            writer.member("due_at", step.dueAt.rfc3339)
            writer.member("reason", step.reason)
            writer.member("job_id", step.job)
            writer.endObject()
        }
    }
}

/// A user's settings as JSON.
package enum SettingsShape {
    /// - Parameter isEmailMissing: whether e-mail is on for some type although the user has no
    ///   valid address; nil leaves the member out.
    package static func write(
        _ settings: UserSettings,
        isEmailMissing: Bool? = nil,
        to writer: inout JSONWriter
    ) {
        writer.beginObject()
        writer.member("zone", settings.zone)
        writer.member("locale", settings.locale)
        writer.member("email", settings.email)
        writer.member("opted_out", settings.isOptedOut)
        writer.member("email_opted_out", settings.isEmailOptedOut)
        writer.key("quiet_hours")
        self.write(settings.quietHours, to: &writer)
        if let isEmailMissing { writer.member("email_missing", isEmailMissing) }
        writer.endObject()
    }

    /// Writes quiet hours as an object, or null for none.
    package static func write(_ quietHours: QuietHours?, to writer: inout JSONWriter) {
        guard let quietHours else {
            writer.null()
            return
        }
        writer.beginObject()
        writer.member("start", Self.clock(quietHours.start))
        writer.member("end", Self.clock(quietHours.end))
        let weekdays = (1...7).filter { quietHours.weekdays & 1 << UInt8($0 - 1) != 0 }
        writer.array("weekdays", weekdays) { $0.integer($1) }
        writer.endObject()
    }

    private static func clock(_ minutes: Int) -> String { (LocalTime(minutes: minutes) ?? .midnight).description }
}

/// A user's presence as JSON.
package enum PresenceShape {
    package static func writeMembers(_ presence: Presence, to writer: inout JSONWriter) {
        writer.member("online", !presence.connections.isEmpty)
        writer.array("connections", presence.connections) { writer, connection in
            writer.beginObject()
            writer.member("connection", connection.connection)
            writer.member("dialect", connection.dialect.rawValue)
            writer.member("node", connection.node)
            writer.member("state", connection.state.rawValue)
            writer.member("since", connection.since.rfc3339)
            writer.endObject()
        }
    }
}

/// A device as JSON, without the token.
package enum DeviceShape {
    package static func write(_ device: Device, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("id", device.id.description)
        writer.member("platform", device.platform.rawValue)
        writer.member("provider", device.provider.rawValue)
        writer.member("app", device.app)
        writer.member("environment", device.environment.rawValue)
        writer.member("name", device.name)
        writer.member("device_id", device.deviceID)
        writer.member("app_version", device.appVersion)
        writer.member("locale", device.locale)
        writer.member("active", device.isActive)
        writer.member("enabled", !device.isSilenced)
        writer.member("deactivated_reason", device.deactivatedReason)
        writer.member("registered_at", device.registeredAt.rfc3339)
        writer.member("last_used_at", device.lastUsedAt.rfc3339)
        writer.endObject()
    }
}

/// A notification as JSON for operators.
package enum OperatorNotification {
    /// - Parameter hasUser: whether it names its user.
    package static func write(_ item: PeopleStore.Item, hasUser: Bool = false, to writer: inout JSONWriter) {
        let notification = item.notification
        writer.beginObject()
        if hasUser { writer.member("user_id", notification.user) }
        writer.member("id", notification.id.description)
        writer.member("type", notification.type)
        writer.member("title", notification.title)
        writer.member("status", notification.status.rawValue)
        writer.member("status_reason", notification.statusReason)
        writer.member("decision", notification.decision)
        writer.member("sent_via", item.sentVia)
        writer.member("created_at", notification.createdAt.rfc3339)
        for (name, moment): (StaticString, Timestamp?) in [
            ("delivered_at", notification.deliveredAt), ("opened_at", notification.openedAt),
            // For an archived row, `deleted_at` is the end of its time in the archive.
            ("read_at", notification.readAt), ("archived_at", item.archivedAt),
            ("deleted_at", item.archivedAt == nil ? notification.deletedAt : nil),
        ] {
            writer.member(name, moment?.rfc3339)
        }
        writer.member("job_id", notification.jobID)
        writer.member("org_id", notification.org)
        writer.endObject()
    }
}
