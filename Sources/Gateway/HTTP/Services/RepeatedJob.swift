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
    /// The same notification and moment give the same id, so a repeated call stores one schedule.
    /// The job has the notification's channels, so that a snooze adds none. It leaves out e-mail:
    /// the address may be someone else's, and no cap limits mail.
    ///
    /// - Throws: `JobFaults` if the catalog would refuse the job.
    static func schedule(
        of notification: Notification,
        until: Timestamp,
        now: Timestamp,
        catalog: Catalog
    ) throws(JobFaults) -> Schedule {
        let jobID = ScheduleStore.snoozePrefix(of: notification.id) + "\(until.microseconds / 1_000_000)"
        let origin = EntryDigest(stream: "snooze", entry: jobID, fields: [])
        let channels = DeliveryChannel.allCases.filter {
            $0 != .email && notification.channels.contains(Channels($0))
        }
        var fields = Self.fields(notification, id: jobID, now: now, catalog: catalog)
        let names = channels.map { "\"\($0.rawValue)\"" }.joined(separator: ",")
        fields.append(("channels", Array("[\(names)]".utf8)))
        _ = try catalog.checkedJob(fields)
        var schedule = Schedule(
            id: ScheduleID(origin: origin, user: notification.user), fields: fields, dueAt: until, createdAt: now)
        // Not `api`, so that it does not count towards its organisation's limit of schedules.
        schedule.source = ScheduleStore.snoozeSource(of: notification)
        schedule.org = notification.org
        schedule.jobID = jobID
        schedule.user = notification.user
        schedule.lane = notification.lane
        return schedule
    }

    /// Returns the fields of the job that sends a notification again now, on the channels of its
    /// type.
    ///
    /// - Parameter key: the caller's key; the same key sends the notification once.
    /// - Throws: `JobFaults` if the catalog would refuse the job.
    static func resend(
        _ notification: Notification,
        key: String,
        now: Timestamp,
        catalog: Catalog
    ) throws(JobFaults) -> [(name: String, value: [UInt8])] {
        let id = "resend:\(notification.id):\(key)"
        let fields = Self.fields(notification, id: id, now: now, catalog: catalog)
        _ = try catalog.checkedJob(fields)
        return fields
    }

    /// Returns the notification's fields as a job, without the collapse key: a newer notification
    /// may have that key by then.
    private static func fields(
        _ notification: Notification,
        id: String,
        now: Timestamp,
        catalog: Catalog
    ) -> [(name: String, value: [UInt8])] {
        let extras = notification.extras
        let texts: [(String, String?)] = [
            ("id", id), ("org", notification.org.isEmpty ? nil : notification.org), ("user", notification.user),
            ("type", notification.type), ("title", notification.title), ("body", notification.body),
            ("severity", notification.severity.rawValue), ("delivery", notification.delivery.rawValue),
            ("lane", notification.lane.rawValue), ("category", notification.category),
            ("entity_type", notification.entityType), ("entity_id", notification.entityID), ("url", extras.url),
            ("image", extras.image), ("sound", extras.sound), ("state", extras.state),
            ("badge", extras.badge.map { "\($0)" }), ("push_priority", extras.pushPriority?.rawValue),
            ("keep_until", notification.keepUntil.flatMap { $0 > now ? $0.rfc3339 : nil }),
        ]
        var fields = texts.compactMap { name, text in text.map { (name: name, value: Array($0.utf8)) } }
        // Leave out the catalog's buttons: it adds them again, in the language that the user then
        // has.
        let hasCatalogButtons = Self.hasButtons(of: catalog, notification)
        if let data = Self.compact(notification.data, without: hasCatalogButtons ? "actions" : nil) {
            fields.append(("data", data))
        }
        if var platform = Self.compact(extras.platform) {
            // A template's mail may exceed the limit of a job; the title and the body then replace
            // it.
            if platform.count > JobLimits.json { platform = Self.compact(platform, without: "email") ?? [] }
            if !platform.isEmpty { fields.append(("platform", platform)) }
        }
        return fields
    }

    /// Whether a notification has the buttons of the catalog, rather than its job's own.
    private static func hasButtons(of catalog: Catalog, _ notification: Notification) -> Bool {
        let rule = catalog.actions(of: notification.type)?.rule(for: notification.extras.state)
        let data = notification.data.flatMap { try? JSONParser.parse($0) }
        guard let rule, !rule.buttons.isEmpty, let actions = data?["actions"]?.array else { return false }
        return actions.compactMap { $0["id"]?.string } == rule.buttons.map(\.id)
    }

    /// Returns a JSON object without white space and without the member `name`; nil if no member is
    /// left, or if an older row holds JSON that exceeds a job's limits.
    private static func compact(_ json: [UInt8]?, without name: String? = nil) -> [UInt8]? {
        guard let members = json.flatMap({ try? JSONParser.parse($0) })?.object?.filter({ $0.key != name }),
            !members.isEmpty
        else { return nil }
        return JSONWriter.bytes(of: .object(members))
    }
}
