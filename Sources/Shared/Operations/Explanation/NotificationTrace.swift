// Carillon · NotificationTrace.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// Every recorded step and attempt of a notification, which explains why it did or did not arrive.
package struct NotificationTrace: Sendable {
    /// One line of a trace.
    package struct Step: Sendable {
        package let at: Timestamp
        package let event: String
        /// Details by name.
        package let detail: [(name: String, value: String)]

        init(_ at: Timestamp, _ event: String, _ detail: [(name: String, value: String?)] = []) {
            self.at = at
            self.event = event
            self.detail = detail.compactMap { name, value in value.map { (name, $0) } }
        }
    }

    package let record: TraceStore.Record
    /// Sorted by time.
    package let steps: [Step]

    package init(_ record: TraceStore.Record) {
        self.record = record
        self.steps = Self.steps(record)
    }

    /// The channels that it was meant for.
    package var channels: [DeliveryChannel] {
        DeliveryChannel.allCases.filter { self.record.notification.channels.contains(Channels($0)) }
    }

    package static let shape = Shape<NotificationTrace>(
        "Trace",
        [
            "user_id": .value(.string) { $0.record.notification.user },
            "status": .value(.string) { $0.record.notification.status.rawValue },
            "reason": .value(.string) { $0.record.notification.statusReason },
            "held_back": .value(.string) { $0.record.notification.decision },
            "sent_via": .value(.string) { $0.record.sentVia },
            "channels": .value(.list(of: .channel, max: 3)) { $0.channels.map(\.rawValue) },
            "job_entry": .value(.string) { $0.record.notification.jobEntry },
            "job_id": .value(.string) { $0.record.notification.jobID },
            "org_id": .value(.string) { $0.record.notification.org },
            "notification": .written(CanonicalShape.schema) {
                CanonicalShape.write($0.record.notification, to: &$1)
            },
            "steps": .written(
                .list(
                    of: .object(["at": .time, "event": .string]).with("additionalProperties", Schema.string.json),
                    max: 1100)
            ) { Self.write($0.steps, to: &$1) },
        ])

    private static func write(_ steps: [Step], to writer: inout JSONWriter) {
        writer.beginArray()
        for step in steps {
            writer.beginObject()
            writer.member("at", step.at.rfc3339)
            writer.member("event", step.event)
            for (name, value) in step.detail {
                writer.key(escaping: name)
                writer.string(value)
            }
            writer.endObject()
        }
        writer.endArray()
    }

    private static func steps(_ record: TraceStore.Record) -> [Step] {
        let notification = record.notification
        var steps = [Step(notification.createdAt, "enqueued", [("entry", notification.jobEntry)])]
        if let gathering = record.gathering {
            steps.append(Step(record.storedAt, "gathered", [("window", gathering.window.description)]))
            if let summary = gathering.summary {
                steps.append(Step(summary.storedAt, "summarised", [("summary", summary.id.description)]))
            }
        } else {
            // A notification that ended later keeps its channels, so none means a refusal when it
            // arrived.
            let wasRefused =
                [.suppressed, .expired].contains(notification.status) && notification.channels.isEmpty
            steps.append(
                Step(
                    record.storedAt, "stored",
                    wasRefused
                        ? [("status", notification.status.rawValue), ("reason", notification.statusReason)]
                        : []
                )
            )
        }
        if let cancelledAt = record.cancelledAt { steps.append(Step(cancelledAt, "cancelled")) }
        if record.omitted > 0, let next = record.attempts.first {
            steps.append(Step(next.at, "omitted", [("count", String(record.omitted))]))
        }
        steps += record.attempts.map { attempt in
            if attempt.kind == AuditStep.kind {
                let end = attempt.milliseconds.map { attempt.at + .milliseconds($0) }
                return Step(
                    attempt.at, attempt.outcome,
                    [("reason", attempt.reason), ("until", end?.rfc3339), ("summary", attempt.providerID)])
            }
            return Step(
                attempt.at, attempt.kind,
                [
                    ("provider", attempt.provider), ("device", attempt.device?.description),
                    ("attempt", String(attempt.attempt)), ("outcome", attempt.outcome), ("reason", attempt.reason),
                    ("provider_id", attempt.providerID), ("milliseconds", attempt.milliseconds.map { String($0) }),
                ]
            )
        }
        if let decision = notification.decision {
            // The time of the decision is not recorded; it follows any deferral.
            let deferral = record.attempts.last {
                $0.kind == AuditStep.kind && $0.outcome == AuditStep.deferred.rawValue
            }
            steps.append(Step(deferral?.at ?? record.storedAt, "held_back", [("reason", decision)]))
        }
        let moments = [
            ("delivered", notification.deliveredAt), ("opened", notification.openedAt), ("read", notification.readAt),
            // For an archived row, `deleted_at` is the end of its time in the archive.
            record.archivedAt.map { ("archived", $0) } ?? ("deleted", notification.deletedAt),
        ]
        for case (let event, let at?) in moments {
            // `sentVia` may be a push or the inbox, which do not prove receipt.
            let via = event == "delivered" && ["socket", "client"].contains(record.sentVia) ? record.sentVia : nil
            let other = event == "deleted" ? record.replacedBy?.description : nil
            steps.append(Step(at, event, [("via", via), ("replaced_by", other)]))
        }
        if notification.status != .cancelled {
            steps += record.followUps.map { Step($0.due, "due", [("what", $0.kind)]) }
        }
        // Dispatchers' clocks differ by milliseconds, but nothing happens to a notification before
        // it is stored, unless its job was cancelled.
        func order(_ step: Step) -> Timestamp {
            ["enqueued", "cancelled"].contains(step.event) ? step.at : max(step.at, record.storedAt)
        }
        return steps.enumerated().sorted { (order($0.element), $0.offset) < (order($1.element), $1.offset) }
            .map(\.element)
    }
}
