// Carillon · StatisticsRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Operations
import Storage

/// Statistics, failures and client reports: `/v1/admin/statistics`, `/v1/admin/failures`,
/// `/v1/client-reports`.
struct StatisticsRoutes {
    private static let span: Duration = .seconds(86_400)
    private static let longestReason = 256

    let base: GatewayBase
    let fields: UserFields
    let statistics: StatisticsService

    func add(to routes: Routes) {
        let admin = routes.group("admin", tag: "admin")
        admin.get("statistics", Self.statistics, self.statistics)
        admin.get("failures", Self.failures, self.failures)
        admin.get("client-reports", Self.reports, self.reports)
        routes.group(tag: "devices").post("client-reports", Self.report, self.report)
    }

    private static let statistics = Operation(
        "getStatistics",
        "Returns the sends of the last hour by minute, and of the last day by type.",
        "Counted from the newest 200,000 rows each, and cached for at least five seconds.",
        scope: .admin,
        answers: [.ok("The counts.", .statistics)])

    private func statistics(_ request: Request, _ context: APIContext) async throws -> Response {
        let summary = try await self.statistics.summary()
        return Response.object(capacity: 16_384) { writer in
            writer.member("since", summary.since.rfc3339)
            writer.member("complete", summary.isComplete)
            Self.writeChannels(summary, to: &writer)
            writer.member("types_since", summary.typesStart?.rfc3339)
            writer.key("types")
            writer.beginArray()
            for (type, reach) in summary.types {
                writer.beginObject()
                writer.member("type", type)
                writer.member("stored", reach.stored)
                ReachShape.write(reach, to: &writer)
                writer.endObject()
            }
            writer.endArray()
        }
    }

    /// Writes a count for each channel, outcome and minute until the summary was counted.
    static func writeChannels(_ summary: StatisticsStore.Summary, to writer: inout JSONWriter) {
        // At least one, as the database's clock may be ahead.
        let minutes = max(1, StatisticsService.minutes - summary.skippedMinutes)
        var series: [String: [String: [Int64]]] = [:]
        for count in summary.counts {
            let index = Int((count.minute - summary.since).components.seconds / 60)
            guard (0..<minutes).contains(index) else { continue }
            let none = [Int64](repeating: 0, count: minutes)
            series[count.channel, default: [:]][count.outcome, default: none][index] += count.count
        }
        writer.key("channels")
        writer.beginArray()
        for (channel, outcomes) in series.sorted(by: { $0.key < $1.key }) {
            writer.beginObject()
            writer.member("channel", channel)
            writer.key("outcomes")
            writer.beginArray()
            for (outcome, counts) in outcomes.sorted(by: { $0.key < $1.key }) {
                writer.beginObject()
                writer.member("outcome", outcome)
                writer.array("counts", counts) { $0.integer($1) }
                writer.endObject()
            }
            writer.endArray()
            writer.endObject()
        }
        writer.endArray()
    }

    private static let failures = Operation(
        "listFailures",
        "Lists the failed sends of the last 24 hours, newest first.",
        "A page looks at up to 50,000 of them, so with a filter it may have fewer than `limit`.",
        scope: .admin,
        query: [
            "reason?": .text(1024)("A prefix of the reason."),
            "provider?": .text(64)("Only of this provider."),
            "limit?": .integer(1...100, default: 20),
            "cursor?": .text(64)("`next_cursor` of the previous page."),
        ],
        answers: [
            .ok("A page.", .object(["failures": .list(of: .failure, max: 100), "next_cursor": .string.orNull]))
        ])

    private func failures(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.failures)
        let reason = query.text("reason", limit: 1_024)
        let provider = query.text("provider", limit: 64)
        let limit = query.limit()
        var last: StatisticsStore.Cursor?
        if let text = query.text("cursor", limit: 64) {
            last = StatisticsStore.Cursor(text)
            if last == nil { query.fault("cursor", "must be next_cursor of a page") }
        }
        try query.finish()
        let since = self.base.now() - Self.span
        let (failures, next) = try await self.base.database.statistics.failures(
            since: since, reason: reason, provider: provider, after: last, limit: limit)
        return Response.object { writer in
            writer.array("failures", failures) { writer, failure in
                writer.beginObject()
                writer.member("at", failure.at.rfc3339)
                writer.member("user_id", failure.user)
                writer.member("notification_id", failure.notification?.description)
                writer.member("provider", failure.provider)
                writer.member("attempt", failure.attempt)
                writer.member("reason", failure.reason)
                writer.endObject()
            }
            writer.member("next_cursor", next?.text)
        }
    }

    private static let reports = Operation(
        "listClientReports",
        "Returns the client reports of the last 24 hours.",
        scope: .admin,
        query: ["limit?": .integer(1...100, default: 20)],
        answers: [.ok("The counts, and the newest failed registrations.", .clientReports)])

    private func reports(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.reports)
        let limit = query.limit()
        try query.finish()
        let since = self.base.now() - Self.span
        let (counts, failed) = try await self.base.database.clientReports.summary(since: since, limit: limit)
        return Response.object { writer in
            writer.array("counts", counts) { writer, count in
                writer.beginObject()
                writer.member("kind", count.kind)
                writer.member("outcome", count.outcome)
                writer.member("provider", count.provider)
                writer.member("count", count.count)
                writer.endObject()
            }
            writer.array("failed", failed) { writer, report in
                writer.beginObject()
                writer.member("at", report.at.rfc3339)
                writer.member("user_id", report.user)
                writer.member("provider", report.provider)
                writer.member("reason", report.reason)
                writer.endObject()
            }
        }
    }

    private static let report = Operation(
        "reportClient",
        "Reports the outcome of a permission prompt or a device registration.",
        "For operators' information only. Repeated reports within a minute count once.",
        body: .clientReport,
        answers: [
            .noContent("It is stored."),
            Answer(429, "The user has sent 20 reports within the hour."),
        ])

    /// Records how a prompt or a registration went on a client, which the server cannot observe.
    private func report(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try await FieldReader(body: request, of: Self.report)
        let kind = body.choice("kind", of: ClientReportStore.Kind.self, isRequired: true)
        let outcome = body.choice("outcome", of: ClientReportStore.Outcome.self, isRequired: true)
        let provider = self.fields.provider(&body) ?? .webpush
        let reason = body.text("reason", limit: Self.longestReason)
        if let kind, let outcome, (kind == .registration) != (outcome == .failed) {
            let outcomes = kind == .registration ? "failed" : "one of granted, denied, dismissed"
            body.fault("outcome", "must be \(outcomes) for a \(kind.rawValue)")
        }
        try body.finish()
        guard let kind, let outcome else { throw Problem(.badRequest, "fields are missing") }
        let report = ClientReportStore.Report(
            at: self.base.now(),
            user: user,
            kind: kind,
            outcome: outcome,
            provider: provider,
            reason: reason
        )
        guard try await self.base.database.clientReports.add(report) else {
            let limit = ClientReportStore.mostPerHour
            throw Problem(.tooManyRequests, "a user may report \(limit) times an hour", retryAfter: 3_600)
        }
        return Response(status: .noContent)
    }
}

extension Schema {
    /// The counts of a reach, after `stored`.
    static let reach: Fields = [
        "no_device": .count("The recipient has no reachable device: it stays in the inbox, or has failed."),
        "accepted": .count("A push provider or the mail relay accepted it."),
        "failed": .count("It could not be sent."),
        "delivered": .count("A client confirmed it."),
        "opened": .count("The user opened it."),
        "read": .count("The user read it."),
    ]

    static let statistics = Schema(
        "Statistics",
        [
            "since": .time("The first counted minute."),
            "complete": .bool(
                "False if rows exceeded the limit; `since` is then less than an hour ago. If only one minute is "
                    + "left, its counts lack some rows."),
            "channels": .list(
                of: .object([
                    "channel": .string("`in_app` or a provider."),
                    "outcomes": .list(
                        of: .object([
                            "outcome": .string(
                                "Of a provider: accepted, retry, failed, skipped. In app: delivered, waiting, "
                                    + "suppressed, skipped."
                            ),
                            "counts": .list(of: .count, max: 60)("One per minute."),
                        ]), max: 16),
                ]), max: 64),
            "types_since": .time.orNull(
                "The first notification that `types` counts; null if they count all of the last 24 hours."),
            "types": .list(
                of: .object(["type": .string, "stored": .count] + Schema.reach), max: 100),
        ])

    static let failure = Schema(
        "Failure",
        [
            "at": .time,
            "user_id": .string,
            "notification_id": .string.orNull,
            "provider": .string,
            "attempt": .count,
            "reason": .string.orNull,
        ])

    static let clientReport = Schema(
        "ClientReport",
        [
            "kind": .cases(of: ClientReportStore.Kind.self),
            "outcome": .cases(of: ClientReportStore.Outcome.self)(
                "`failed` for a registration, else for a permission."),
            "provider?": .deviceProvider.orNull.with("default", .string("webpush")),
            "reason?": .text(256).orNull,
        ], isClosed: true)

    static let clientReports = Schema(
        "ClientReports",
        [
            "counts": .list(
                of: .object(["kind": .string, "outcome": .string, "provider": .string, "count": .count]), max: 128),
            "failed": .list(
                of: .object([
                    "at": .time,
                    "user_id": .string,
                    "provider": .string,
                    "reason": .string.orNull,
                ]), max: 100),
        ])
}
