// Carillon · OverviewRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Operations
import Storage

/// The state of the installation over a span of time, for admins: `/v1/admin/overview`.
struct OverviewRoutes {
    /// The parameters of a count; callers with the same ones share its result.
    private struct Question: Hashable {
        let span: Span
        /// Nil for all organisations.
        let org: ExactText?
    }

    /// The spans that an overview covers.
    private enum Span: String, CaseIterable {
        case hour = "1h"
        case day = "24h"
        case week = "7d"

        var duration: Duration {
            switch self {
            case .hour: .seconds(3_600)
            case .day: .seconds(86_400)
            case .week: .seconds(7 * 86_400)
            }
        }
    }

    private let counts: SharedReading<Question, OverviewStore.Summary>

    init(base: GatewayBase) {
        self.counts = SharedReading { question in
            let end = base.now()
            let since = end - question.span.duration
            return try await base.database.overviews.summary(since: since, org: question.org?.text, now: end)
        }
    }

    func add(to routes: Routes) {
        routes.get("admin/overview", Self.show, self.show)
    }

    private static let show = Operation(
        "getOverview",
        "Returns counts, rates and latencies over a span that ends now.",
        "Counted from the newest 200,000 notifications and attempts, and cached for at least five seconds.",
        scope: .admin,
        query: [
            "span?": .cases(of: Span.self)("Defaults to `1h`."),
            "org?": .text(JobLimits.org)("Counts and latencies of this organisation only."),
        ],
        answers: [.ok("The overview.", .overview)])

    private func show(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.show)
        let span = query.choice("span", of: Span.self) ?? .hour
        let org = query.text("org", limit: JobLimits.org)
        try query.finish()
        let summary = try await self.counts.value(Question(span: span, org: org.map { ExactText($0) }))
        return Response.object(capacity: 4_096) { Self.write(summary, to: &$0) }
    }

    private static func write(_ summary: OverviewStore.Summary, to writer: inout JSONWriter) {
        writer.member("since", summary.since.rfc3339)
        writer.member("complete", summary.isComplete)
        writer.member("stored", summary.reach.stored)
        ReachShape.write(summary.reach, to: &writer)
        writer.key("latency")
        writer.beginObject()
        let latencies: [(StaticString, OverviewStore.Latency?)] = [
            ("socket", summary.socket), ("push", summary.push), ("email", summary.email),
        ]
        for (name, latency) in latencies {
            writer.key(name)
            Self.write(latency, to: &writer)
        }
        writer.endObject()
        writer.member("held", summary.held)
        writer.member("late", summary.late)
        writer.member("dead_letters", summary.deadLetters)
        writer.key("organisations")
        writer.beginArray()
        for (org, stored) in summary.organisations {
            writer.beginObject()
            writer.member("org_id", org)
            writer.member("stored", stored)
            writer.endObject()
        }
        writer.endArray()
    }

    private static func write(_ latency: OverviewStore.Latency?, to writer: inout JSONWriter) {
        guard let latency else { return writer.null() }
        writer.beginObject()
        writer.member("count", latency.count)
        writer.member("p50", latency.p50)
        writer.member("p95", latency.p95)
        writer.member("p99", latency.p99)
        writer.endObject()
    }
}

extension Schema {
    static let overview = Schema(
        "Overview",
        [
            "since": .time("The earliest time of the counts."),
            "complete": .bool("False if rows exceeded the limit; `since` is then later than requested."),
            "stored": .count("All notifications."),
        ] + Schema.reach + [
            "latency": .object([
                "socket": Schema.latency.orNull("From the job to the proof of an open socket within two minutes."),
                "push": Schema.latency.orNull(
                    "From the job to the push provider's answer, without pushes delayed by quiet hours or proofs."
                ),
                "email": Schema.latency.orNull("From the job to the mail relay's answer, `email_after` included."),
            ]),
            "held": .count("Steps that wait for their time, up to 200,000: quiet hours, attention, e-mail."),
            "late": .count(
                "Steps, digests and schedules over a minute late, without pages of broadcasts, up to 200,000 of each."),
            "dead_letters": .count("Up to 200,000."),
            "organisations": .list(
                of: .object(["org_id": .string, "stored": .count]), max: 20)("The largest, of all notifications."),
        ])

    private static let latency = Schema.object([
        "count": .count, "p50": .count("Milliseconds."), "p95": .count, "p99": .count,
    ])
}
