// Carillon · RepeatedJob.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// The job that sends a notification again: at the end of a snooze, or when an operator resends it.
///
/// It is a job like any other: the rules of the moment decide how it reaches the user.
enum RepeatedJob {
    /// Returns the schedule of the job that ends a snooze.
    ///
    /// The same notification and moment give the same id, so a repeated call stores it once.
    static func schedule(of notification: Notification, until: Timestamp, now: Timestamp) -> Schedule {
        let jobID = ScheduleStore.snoozePrefix(of: notification.id) + "\(until.microseconds / 1_000_000)"
        let origin = EntryDigest(stream: "snooze", entry: jobID, fields: [])
        var schedule = Schedule(
            id: NotificationID(origin: origin, user: notification.user),
            fields: Self.fields(notification, id: jobID), dueAt: until, createdAt: now)
        // Not `api`, so that it does not count towards its organisation's limit of schedules.
        schedule.source = "snooze"
        schedule.org = notification.org
        schedule.jobID = jobID
        schedule.user = notification.user
        schedule.lane = notification.lane
        return schedule
    }

    /// Returns the id of the job that sends a notification again now.
    ///
    /// Two calls within a second give the same id, so a double click sends it once.
    static func id(of notification: Notification, now: Timestamp) -> String {
        "resend:\(notification.id):\(now.seconds)"
    }

    /// The job's fields: those of the notification, without its collapse key, as a newer one may
    /// have that by then.
    static func fields(_ notification: Notification, id: String) -> [(name: String, value: [UInt8])] {
        let channels = DeliveryChannel.allCases.filter { notification.channels.contains(Channels($0)) }
        let extras = notification.extras
        let texts: [(String, String?)] = [
            ("id", id), ("org", notification.org.isEmpty ? nil : notification.org), ("user", notification.user),
            ("type", notification.type), ("title", notification.title), ("body", notification.body),
            ("severity", notification.severity.rawValue), ("delivery", notification.delivery.rawValue),
            ("lane", notification.lane.rawValue), ("category", notification.category),
            ("channels", "[" + channels.map { "\"\($0.rawValue)\"" }.joined(separator: ",") + "]"),
            ("entity_type", notification.entityType), ("entity_id", notification.entityID), ("url", extras.url),
            ("image", extras.image), ("sound", extras.sound), ("state", extras.state),
            ("badge", extras.badge.map { "\($0)" }), ("push_priority", extras.pushPriority?.rawValue),
            ("keep_until", notification.keepUntil?.rfc3339),
        ]
        var fields = texts.compactMap { name, text in text.map { (name: name, value: Array($0.utf8)) } }
        if let data = notification.data { fields.append(("data", data)) }
        if let platform = extras.platform { fields.append(("platform", platform)) }
        return fields
    }
}
