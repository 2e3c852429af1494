// Carillon · ScheduleShape.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A schedule as JSON, as calls and commands show it.
package enum ScheduleShape {
    /// Fields of a job whose text is JSON.
    private static let json: Set<String> = ["users", "except", "data", "vars", "platform", "channels", "args"]

    /// Writes the members of an object, without the job.
    package static func write(_ schedule: Schedule, to writer: inout JSONWriter) {
        func text(_ name: StaticString, _ value: String?) {
            writer.key(name)
            writer.string(value)
        }
        text("id", schedule.id.description)
        text("org", schedule.org)
        text("job_id", schedule.jobID)
        text("type", schedule.fields.first { $0.name == "type" }.map { String(decoding: $0.value, as: UTF8.self) })
        text("lane", schedule.lane.rawValue)
        text("source", schedule.source)
        text("state", schedule.state.rawValue)
        text("state_reason", schedule.stateReason)
        text("cron", schedule.cron)
        text("zone", schedule.zone)
        // Where each recipient's own zone counts, there is no one moment.
        let isEachOnesOwn = schedule.isRecurring && schedule.zone == Schedule.recipientZone
        let isWaiting = schedule.state == .waiting
        text("next_at", isWaiting && !isEachOnesOwn ? schedule.dueAt.rfc3339 : nil)
        // In a zone it is beside the moment to tell an occurrence by when the zone's law changes.
        text("next_local", isWaiting && (isEachOnesOwn || !schedule.isRecurring) ? schedule.wall?.description : nil)
        text("last_fired_at", schedule.lastFiredAt?.rfc3339)
        text("starts_at", schedule.startsAt?.rfc3339)
        text("ends_at", schedule.endsAt?.rfc3339)
        text("created_at", schedule.createdAt.rfc3339)
    }

    /// Writes the member `job`, its fields.
    package static func writeJob(_ schedule: Schedule, to writer: inout JSONWriter) {
        writer.key("job")
        writer.beginObject()
        for field in schedule.fields {
            writer.key(escaping: field.name)
            if Self.json.contains(field.name), let value = try? JSONParser.parse(field.value) {
                writer.value(value)
            } else {
                writer.string(String(decoding: field.value, as: UTF8.self))
            }
        }
        writer.endObject()
    }
}
