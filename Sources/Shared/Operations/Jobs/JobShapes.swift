// Carillon · JobShapes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// The state of a job as JSON.
package enum JobShape {
    private static func writeHead(_ report: JobControl.Report, to writer: inout JSONWriter) {
        writer.member("id", report.name.id)
        writer.member("org", report.name.org)
        writer.member("final", report.isFinal)
    }

    /// Writes the status of a job.
    package static func write(_ report: JobControl.Report, _ catalog: Catalog?, to writer: inout JSONWriter) {
        Self.writeHead(report, to: &writer)
        writer.member("cancelled_at", report.cancelledAt?.rfc3339)
        writer.key("recipients")
        if let tally = report.tally {
            writer.beginObject()
            for status in NotificationStatus.allCases {
                writer.key(escaping: status.rawValue)
                writer.integer(tally.counts[status, default: 0])
            }
            writer.endObject()
        } else {
            writer.null()
        }
        writer.key("reach")
        if let reach = report.tally?.reach {
            writer.beginObject()
            writer.member("stored", reach.stored)
            ReachShape.write(reach, to: &writer)
            writer.endObject()
        } else {
            writer.null()
        }
        writer.member("scheduled", report.scheduled)
        writer.key("broadcast")
        if let progress = report.progress {
            BroadcastShape.write(progress, catalog, to: &writer)
        } else {
            writer.null()
        }
    }

    /// Writes the result of a cancellation, with counts unless the notifications were not counted.
    package static func write(cancellation report: JobControl.Report, to writer: inout JSONWriter) {
        Self.writeHead(report, to: &writer)
        guard let tally = report.tally else {
            writer.member("status", report.progress?.broadcast.state == .cancelling ? "cancelling" : "cancelled")
            for name: StaticString in ["cancelled", "withdrawing", "too_late", "not_sent"] {
                writer.key(name)
                writer.null()
            }
            return
        }
        let cancelled = tally.counts[.cancelled, default: 0]
        let withdrawing = tally.open.values.reduce(0, +)
        let tooLate = [NotificationStatus.sent, .delivered].reduce(tally.reached) {
            $0 + tally.counts[$1, default: 0] - tally.open[$1, default: 0]
        }
        writer.member("status", Self.outcome(report, tally, cancelled: cancelled, tooLate: tooLate))
        writer.member("cancelled", cancelled)
        writer.member("withdrawing", withdrawing)
        writer.member("too_late", tooLate)
        writer.member("not_sent", tally.total - cancelled - withdrawing - tooLate)
    }

    /// Summarises a cancellation.
    private static func outcome(
        _ report: JobControl.Report,
        _ tally: CancellationStore.Tally,
        cancelled: Int64,
        tooLate: Int64
    ) -> String {
        if report.progress?.broadcast.state == .cancelling { return "cancelling" }
        if cancelled > 0 { return "cancelled" }
        if tooLate > 0 { return "too_late" }
        // The rest of a broadcast, and scheduled rows, are cancelled before they are stored.
        if report.progress != nil { return "cancelled" }
        // A dispatcher is storing the summary of a digest with its items.
        if tally.total == 0 || !tally.open.isEmpty { return "pending" }
        return report.scheduled > 0 ? "cancelled" : "not_sent"
    }
}

/// A broadcast as JSON.
package enum BroadcastShape {
    /// Returns the type and the text of a broadcast's notifications in the default locale.
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

    /// Writes the progress of a broadcast.
    package static func write(_ progress: Broadcast.Progress, _ catalog: Catalog?, to writer: inout JSONWriter) {
        let broadcast = progress.broadcast
        let words = Self.words(broadcast, catalog)
        writer.beginObject()
        writer.member("id", broadcast.id.description)
        writer.member("org", broadcast.org)
        writer.member("job_id", broadcast.job)
        writer.member("entry", broadcast.entry)
        writer.member("topic", broadcast.topic)
        writer.member("type", words.type)
        writer.member("title", words.title)
        writer.member("body", words.body)
        writer.member("lane", broadcast.lane.rawValue)
        writer.member("created_at", broadcast.createdAt.rfc3339)
        writer.member("state", broadcast.state.rawValue)
        writer.member("reason", broadcast.reason)
        writer.member("held", progress.isHeld)
        writer.member("audience", broadcast.audience)
        writer.member("selected", progress.selected)
        writer.member("stored", progress.stored)
        writer.member("pages", progress.pages)
        writer.member("chains_done", progress.chainsDone)
        writer.member("withdrawn", broadcast.withdrawn)
        writer.key("not_stored")
        writer.raw(progress.counted)
        writer.endObject()
    }
}

/// The progress of notifications as JSON.
package enum ReachShape {
    /// Writes the outcomes of notifications.
    package static func write(_ reach: Reach, to writer: inout JSONWriter) {
        writer.member("no_device", reach.noDevice)
        writer.member("accepted", reach.accepted)
        writer.member("failed", reach.failed)
        writer.member("delivered", reach.delivered)
        writer.member("opened", reach.opened)
        writer.member("read", reach.read)
    }
}
