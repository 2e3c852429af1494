// Carillon · OverviewRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Operations
import Storage

/// The state of the installation over a span of time, for admins: `/v1/admin/overview`.
struct OverviewRoutes {
    let base: GatewayBase
    private let overview: OverviewService

    init(base: GatewayBase) {
        self.base = base
        self.overview = OverviewService(store: base.database.overviews, now: base.now)
    }

    func add(to routes: Routes) {
        routes.get("admin/overview", Self.show, self.show)
    }

    private static let show = Operation(
        "getOverview",
        "Returns counts, rates and latencies over a span that ends now, and the running processes.",
        "Counted from the newest 200,000 notifications and attempts, and cached for at least five seconds.",
        scope: .admin,
        query: [
            "span?": .cases(of: OverviewService.Span.self)("Defaults to `1h`."),
            "org?": .text(JobLimits.org)("Counts and latencies of this organisation only."),
        ],
        answers: [.ok("The overview.", .overview)])

    private func show(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.show)
        let span = query.choice("span", of: OverviewService.Span.self) ?? .hour
        let org = query.text("org", limit: JobLimits.org)
        try query.finish()
        let summary = try await self.overview.summary(OverviewService.Question(span: span, org: org))
        let nodes = try await self.base.live.survey.nodes()
        let dispatchers = try await self.base.live.survey.dispatchers()
        return Response.object(capacity: 4_096) { writer in
            Self.write(summary, to: &writer)
            writer.key("processes")
            writer.beginArray()
            for node in nodes {
                Self.write("gateway", node.id, isAlive: node.isAlive, node.process, to: &writer)
            }
            for dispatcher in dispatchers {
                Self.write("dispatcher", dispatcher.name, isAlive: dispatcher.isAlive, dispatcher.process, to: &writer)
            }
            writer.endArray()
        }
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

    private static func write(
        _ role: String,
        _ name: String,
        isAlive: Bool,
        _ process: ProcessNote?,
        to writer: inout JSONWriter
    ) {
        writer.beginObject()
        writer.member("role", role)
        writer.member("name", name)
        writer.member("version", process?.version)
        writer.member("started_at", process?.startedAt.rfc3339)
        writer.member("alive", isAlive)
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
        ] + Schema.reach(.count) + [
            "latency": .object([
                "socket": Schema.latency.orNull("From the job to the proof of an open socket within two minutes."),
                "push": Schema.latency.orNull(
                    "From the job to the push provider's answer, without pushes that quiet hours or a proof put off."
                ),
                "email": Schema.latency.orNull("From the job to the mail relay's answer, `email_after` included."),
            ]),
            "held": .count("Steps that wait for their time, up to 200,000: quiet hours, attention, e-mail."),
            "late": .count(
                "Steps, digests and schedules over a minute late, without pages of broadcasts, up to 200,000 of each."),
            "dead_letters": .count("Up to 200,000."),
            "organisations": .list(
                of: .object(["org_id": .string, "stored": .count]), max: 20)("The largest, of all notifications."),
            "processes": .list(
                of: .object([
                    "role": .choice("gateway", "dispatcher"),
                    "name": .string,
                    "version": .string.orNull,
                    "started_at": .time.orNull,
                    "alive": .bool,
                ]), max: 200_000),
        ])

    private static let latency = Schema.object([
        "count": .count, "p50": .count("Milliseconds."), "p95": .count, "p99": .count,
    ])
}
