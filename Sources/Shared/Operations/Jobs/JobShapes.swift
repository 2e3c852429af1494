// Carillon · JobShapes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

extension JobControl.Report {
    private static let head: Shape<JobControl.Report> = [
        "id": .value(.string) { $0.name.id },
        "org": .value(.string) { $0.name.org },
        "final": .value(
            .bool,
            "Whether every recipient has an outcome; mail that waits for `email_after` and attention calls may follow."
        ) { $0.isFinal },
    ]

    // MARK: Status

    /// The status of a job; the catalog has the texts of a broadcast.
    package static let shape = Shape<(report: JobControl.Report, catalog: Catalog?)>(
        "JobReport",
        head.of { $0.report } + [
            "cancelled_at": .value(.time) { $0.report.cancelledAt },
            "recipients": .written(
                .object(Fields(NotificationStatus.allCases.map { ($0.rawValue, .count) })).orNull,
                "The number of notifications by status; null if those of a broadcast are not counted."
            ) { value, writer in
                guard let tally = value.report.tally else { return writer.null() }
                writer.beginObject()
                for status in NotificationStatus.allCases {
                    writer.key(escaping: status.rawValue)
                    writer.integer(tally.counts[status, default: 0])
                }
                writer.endObject()
            },
            "reach": .object(
                ["stored": .value(.count, "Stored notifications.") { $0.stored }] + Reach.shape,
                "The reach of the notifications; one may count in several places. Those held for a digest are "
                    + "not included."
            ) { $0.report.tally?.reach },
            "scheduled": .value(.count, "Scheduled rows, one per zone with `deliver_local`.") { $0.report.scheduled },
            "broadcast": .object(BroadcastReport.shape, "Null unless the job is for a topic or everyone.") { value in
                value.report.progress.map { BroadcastReport($0, value.catalog) }
            },
        ])

    // MARK: Cancellation

    /// The result of a cancellation, with counts unless the notifications were not counted.
    package static let cancellationShape = Shape<JobControl.Report>(
        "JobCancellation",
        head + [
            "status": .value(
                .choice("cancelled", "cancelling", "too_late", "not_sent", "pending"),
                "cancelling: a broadcast is being withdrawn. not_sent: no recipient would have received it. "
                    + "pending: the job is not stored yet; if it comes while the cancellation is kept, it is stored as "
                    + "cancelled."
            ) { $0.outcome },
            "cancelled": .value(
                .count, "Recipients who do not receive it; the counts are null for a broadcast or an event."
            ) { $0.tally?.cancelled },
            "withdrawing": .value(.count, "Recipients from whose inboxes it is being withdrawn.") {
                $0.tally?.withdrawing
            },
            "too_late": .value(.count, "Recipients who have it already.") { $0.tally?.tooLate },
            "not_sent": .value(
                .count, "Recipients who would not have received it: suppressed, expired, failed."
            ) { $0.tally?.notSent },
        ])

    /// Summarises a cancellation.
    private var outcome: String {
        if self.progress?.broadcast.state == .cancelling { return "cancelling" }
        guard let tally = self.tally else { return "cancelled" }
        if tally.cancelled > 0 { return "cancelled" }
        if tally.tooLate > 0 { return "too_late" }
        // The rest of a broadcast, and scheduled rows, are cancelled before they are stored.
        if self.progress != nil { return "cancelled" }
        // A dispatcher is storing the summary of a digest with its items.
        if tally.total == 0 || !tally.open.isEmpty { return "pending" }
        return self.scheduled > 0 ? "cancelled" : "not_sent"
    }
}

extension CancellationStore.Tally {
    fileprivate var cancelled: Int64 { self.counts[.cancelled, default: 0] }
    fileprivate var withdrawing: Int64 { self.open.values.reduce(0, +) }
    fileprivate var tooLate: Int64 {
        [NotificationStatus.sent, .delivered].reduce(self.reached) {
            $0 + self.counts[$1, default: 0] - self.open[$1, default: 0]
        }
    }
    fileprivate var notSent: Int64 { self.total - self.cancelled - self.withdrawing - self.tooLate }
}

/// A broadcast, its progress, and the type and text of its notifications in the default locale.
package struct BroadcastReport: Sendable {
    private let progress: Broadcast.Progress
    private let words: (type: String?, title: String?, body: String?)

    package init(_ progress: Broadcast.Progress, _ catalog: Catalog?) {
        self.progress = progress
        self.words = Self.words(progress.broadcast, catalog)
    }

    private static func words(
        _ broadcast: Broadcast,
        _ catalog: Catalog?
    ) -> (type: String?, title: String?, body: String?) {
        // The catalog may no longer contain the type.
        guard let job = try? JobDecoder.decode(broadcast.fields), case .notification(let content) = job.payload else {
            return (nil, nil, nil)
        }
        guard var renderer = catalog?.renderer(content) else {
            let hasOwn = content.template == nil && content.variables == nil
            return (content.type, hasOwn ? content.title : nil, hasOwn ? content.body : nil)
        }
        let message = try? renderer.message(locale: nil)
        return (content.type, message?.title, message?.body)
    }

    package static let shape = Shape<BroadcastReport>(
        "Broadcast",
        [
            "id": .value(.uuid) { $0.progress.broadcast.id },
            "org": .value(.string) { $0.progress.broadcast.org },
            "job_id": .value(.string) { $0.progress.broadcast.job },
            "entry": .value(.string) { $0.progress.broadcast.entry },
            "topic": .value(.string, "Null for everyone.") { $0.progress.broadcast.topic },
            "type": .value(.string, "The type of its notifications.") { $0.words.type },
            "title": .value(
                .string, "The title in the default locale; null if the current catalog cannot render it."
            ) { $0.words.title },
            "body": .value(.string) { $0.words.body },
            "lane": .value(.lane) { $0.progress.broadcast.lane.rawValue },
            "created_at": .value(.time) { $0.progress.broadcast.createdAt },
            "state": .value(.cases(of: Broadcast.State.self)) { $0.progress.broadcast.state.rawValue },
            "reason": .value(.string, "Why it failed.") { $0.progress.broadcast.reason },
            "held": .value(.bool, "Whether the expansion waits for room in the delivery streams.") {
                $0.progress.isHeld
            },
            "audience": .value(.count, "The audience counted at the start.") { $0.progress.broadcast.audience },
            "selected": .value(.count, "Users processed so far.") { $0.progress.selected },
            "stored": .value(.count, "Users with a stored notification.") { $0.progress.stored },
            "not_stored": .written(
                .map(of: .count),
                "Users without one, by reason; `held` for a digest, `text_failed` if rendering failed and a "
                    + "dead letter was written, `missed` if their local time had passed too long ago, `left_topic` if "
                    + "they left the topic before it."
            ) { $1.raw($0.progress.counted) },
            "pages": .value(.count) { $0.progress.pages },
            "chains_done": .value(.integer(0...16)) { $0.progress.chainsDone },
            "withdrawn": .value(.count, "Notifications withdrawn by a cancellation.") {
                $0.progress.broadcast.withdrawn
            },
        ])
}

extension Reach {
    /// The outcomes of notifications, after `stored`.
    package static let shape: Shape<Reach> = [
        "no_device": .value(
            .count, "The recipient has no reachable device: it stays in the inbox, or has failed."
        ) { $0.noDevice },
        "accepted": .value(.count, "A push provider or the mail relay accepted it.") { $0.accepted },
        "failed": .value(.count, "It could not be sent.") { $0.failed },
        "delivered": .value(.count, "A client confirmed it.") { $0.delivered },
        "opened": .value(.count, "The user opened it.") { $0.opened },
        "read": .value(.count, "The user read it.") { $0.read },
    ]
}
