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
        answers: [.ok("The counts.", StatisticsStore.Summary.shape.schema)])

    private func statistics(_ request: Request, _ context: APIContext) async throws -> Response {
        .json(try await self.statistics.summary(), as: StatisticsStore.Summary.shape, capacity: 16_384)
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
        answers: [.ok("A page.", failurePage.schema)])

    private static let failurePage = Shape.page("failures", of: StatisticsStore.Failure.shape)

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
        return .json(Page(failures[...], next: next?.text), as: Self.failurePage)
    }

    private static let reports = Operation(
        "listClientReports",
        "Returns the client reports of the last 24 hours.",
        scope: .admin,
        query: ["limit?": .integer(1...100, default: 20)],
        answers: [.ok("The counts, and the newest failed registrations.", clientReports.schema)])

    private func reports(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.reports)
        let limit = query.limit()
        try query.finish()
        let since = self.base.now() - Self.span
        let summary = try await self.base.database.clientReports.summary(since: since, limit: limit)
        return .json(summary, as: Self.clientReports)
    }

    private static let clientReports = Shape<(counts: [ClientReportStore.Count], failed: [ClientReportStore.Failed])>(
        "ClientReports",
        [
            "counts": .list(
                of: [
                    "kind": .value(.string) { $0.kind },
                    "outcome": .value(.string) { $0.outcome },
                    "provider": .value(.string) { $0.provider },
                    "count": .value(.count) { $0.count },
                ], max: 128
            ) { $0.counts },
            "failed": .list(
                of: [
                    "at": .value(.time) { $0.at },
                    "user_id": .value(.string) { $0.user },
                    "provider": .value(.string) { $0.provider },
                    "reason": .value(.string) { $0.reason },
                ], max: 100
            ) { $0.failed },
        ])

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

extension StatisticsStore.Summary {
    static let shape = Shape<StatisticsStore.Summary>(
        "Statistics",
        [
            "since": .value(.time, "The first counted minute.") { $0.since },
            "complete": .value(
                .bool,
                "False if rows exceeded the limit; `since` is then less than an hour ago. If only one minute is "
                    + "left, its counts lack some rows."
            ) { $0.isComplete },
            "channels": .list(of: channel, max: 64) { $0.channels },
            "types_since": .value(
                .time, "The first notification that `types` counts; null if they count all of the last 24 hours."
            ) { $0.typesStart },
            "types": .list(of: type, max: 100) { $0.types },
        ])

    private static let type: Shape<(type: String, reach: Reach)> =
        [
            "type": .value(.string) { $0.type },
            "stored": .value(.count) { $0.reach.stored },
        ] + Reach.shape.of { $0.reach }

    /// The counts of a channel by outcome and minute.
    private typealias Channel = (channel: String, outcomes: [(outcome: String, counts: [Int64])])

    private static let channel: Shape<Channel> = [
        "channel": .value(.string, "`in_app` or a provider.") { $0.channel },
        "outcomes": .list(
            of: [
                "outcome": .value(
                    .string,
                    "Of a provider: accepted, retry, failed, skipped. In app: delivered, waiting, suppressed, skipped."
                ) { $0.outcome },
                "counts": .value(.list(of: .count, max: 60), "One per minute.") { $0.counts },
            ], max: 16
        ) { $0.outcomes },
    ]

    /// The counts of each minute until the summary was counted.
    private var channels: [Channel] {
        // At least one, as the database's clock may be ahead.
        let minutes = max(1, StatisticsService.minutes - self.skippedMinutes)
        var series: [String: [String: [Int64]]] = [:]
        for count in self.counts {
            let index = Int((count.minute - self.since).components.seconds / 60)
            guard (0..<minutes).contains(index) else { continue }
            let none = [Int64](repeating: 0, count: minutes)
            series[count.channel, default: [:]][count.outcome, default: none][index] += count.count
        }
        return series.sorted { $0.key < $1.key }.map { channel, outcomes in
            (channel, outcomes.sorted { $0.key < $1.key }.map { ($0.key, $0.value) })
        }
    }
}

extension StatisticsStore.Failure {
    static let shape = Shape<StatisticsStore.Failure>(
        "Failure",
        [
            "at": .value(.time) { $0.at },
            "user_id": .value(.string) { $0.user },
            "notification_id": .value(.string) { $0.notification },
            "provider": .value(.string) { $0.provider },
            "attempt": .value(.count) { $0.attempt },
            "reason": .value(.string) { $0.reason },
        ])
}

extension Schema {
    static let clientReport = Schema(
        "ClientReport",
        [
            "kind": .cases(of: ClientReportStore.Kind.self),
            "outcome": .cases(of: ClientReportStore.Outcome.self)(
                "`failed` for a registration, else for a permission."),
            "provider?": .deviceProvider.orNull.with("default", .string("webpush")),
            "reason?": .text(256).orNull,
        ], isClosed: true)
}
