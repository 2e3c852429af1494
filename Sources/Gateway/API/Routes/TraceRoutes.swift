// Carillon · TraceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Hummingbird
import JSON
import Model
import Services
import Shapes
import Stores

/// Why a notification did, or did not, reach its user, for admins: `/v1/admin/notifications/{id}/trace`.
struct TraceRoutes {
    /// One line of a trace.
    private struct Entry {
        let at: Timestamp
        let event: String
        var detail: [(name: String, value: String?)] = []
    }

    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        group.get("admin/notifications/:id/trace", use: self.trace)
    }

    private func trace(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        var query = QueryFields(request, allowing: ["user"])
        let user = query.text("user", limit: JobLimits.user)
        try query.finish()
        guard let id = NotificationID(try context.parameters.require("id")),
            let record = try await self.services.traces.record(id, user: user)
        else { throw Problem.notFound }
        return Response.object { writer in
            writer.key("user_id")
            writer.string(record.notification.user)
            writer.key("status")
            writer.string(record.notification.status.rawValue)
            writer.key("reason")
            writer.string(record.notification.statusReason)
            writer.key("held_back")
            writer.string(record.notification.decision)
            writer.key("sent_via")
            writer.string(record.sentVia)
            writer.key("channels")
            writer.beginArray()
            for channel in Channel.allCases where record.notification.channels.contains(Channels(channel)) {
                writer.string(channel.rawValue)
            }
            writer.endArray()
            writer.key("job_entry")
            writer.string(record.notification.jobEntry)
            writer.key("job_id")
            writer.string(record.notification.jobID)
            writer.key("notification")
            CanonicalShape.write(record.notification, to: &writer)
            writer.key("steps")
            writer.beginArray()
            for entry in Self.entries(record) { Self.write(entry, to: &writer) }
            writer.endArray()
        }
    }

    private static func write(_ entry: Entry, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.key("at")
        writer.string(entry.at.rfc3339)
        writer.key("event")
        writer.string(entry.event)
        for (name, value) in entry.detail where value != nil {
            writer.key(escaping: name)
            writer.string(value)
        }
        writer.endObject()
    }

    /// All that is known, in the order of time.
    private static func entries(_ record: TraceStore.Record) -> [Entry] {
        let notification = record.notification
        var entries = [Entry(at: notification.createdAt, event: "enqueued", detail: [("entry", notification.jobEntry)])]
        let stored: [(name: String, value: String?)] =
            [.suppressed, .expired].contains(notification.status) && notification.version == 0
            ? [("status", notification.status.rawValue), ("reason", notification.statusReason)]
            : [("version", String(notification.version))]
        entries.append(Entry(at: record.storedAt, event: "stored", detail: stored))
        if let decision = notification.decision {
            entries.append(Entry(at: record.storedAt, event: "held_back", detail: [("reason", decision)]))
        }
        entries += record.attempts.map { attempt in
            Entry(
                at: attempt.at,
                event: attempt.kind,
                detail: [
                    ("provider", attempt.provider), ("device", attempt.device?.description),
                    ("attempt", String(attempt.attempt)), ("outcome", attempt.outcome), ("reason", attempt.reason),
                    ("provider_id", attempt.providerID), ("milliseconds", attempt.milliseconds.map { String($0) }),
                ]
            )
        }
        let moments = [
            ("delivered", notification.deliveredAt), ("opened", notification.openedAt), ("read", notification.readAt),
            ("deleted", notification.deletedAt),
        ]
        for case (let event, let at?) in moments {
            let via = event == "delivered" ? record.sentVia : nil
            let other = event == "deleted" ? record.replacedBy?.description : nil
            entries.append(Entry(at: at, event: event, detail: [("via", via), ("replaced_by", other)]))
        }
        entries += record.followUps.map { Entry(at: $0.due, event: "due", detail: [("what", $0.kind)]) }
        return entries.enumerated().sorted { ($0.element.at, $0.offset) < ($1.element.at, $1.offset) }.map(\.element)
    }
}
