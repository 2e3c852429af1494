// Carillon · StatisticsRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Storage

/// What went out, what failed and what clients report: `/v1/admin/statistics`, `/v1/admin/failures`, client reports.
struct StatisticsRoutes {
    private static let span: Duration = .seconds(86_400)
    private static let longestReason = 256

    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        group.get("admin/statistics", use: self.statistics)
        group.get("admin/failures", use: self.failures)
        group.get("admin/client-reports", use: self.reports)
        group.post("client-reports", use: self.report)
    }

    private func statistics(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        let summary = try await self.services.statistics.summary()
        let broadcasts = try await self.services.statistics.broadcasts()
        return Response.object(capacity: 16_384) { writer in
            writer.member("since", summary.since.rfc3339)
            writer.member("complete", summary.isComplete)
            Self.writeChannels(summary, now: self.services.now(), to: &writer)
            writer.key("types")
            writer.beginArray()
            for (type, reach) in summary.types {
                writer.beginObject()
                writer.member("type", type)
                writer.member("stored", reach.stored)
                Self.write(reach, to: &writer)
                writer.endObject()
            }
            writer.endArray()
            writer.key("broadcasts")
            writer.beginArray()
            for broadcast in broadcasts {
                writer.beginObject()
                writer.member("id", broadcast.id.description)
                writer.member("org", broadcast.org)
                writer.member("job_id", broadcast.job)
                writer.member("type", broadcast.type)
                writer.member("stored", broadcast.stored)
                Self.write(broadcast.reach, to: &writer)
                writer.endObject()
            }
            writer.endArray()
        }
    }

    /// Each channel with its outcomes, and each outcome with a count for every minute since the first.
    private static func writeChannels(
        _ summary: StatisticsStore.Summary,
        now: Timestamp,
        to writer: inout JSONWriter
    ) {
        let minutes = min(StatisticsService.minutes, max(1, Int((now - summary.since).components.seconds / 60) + 1))
        var series: [String: [String: [Int64]]] = [:]
        for count in summary.counts {
            let place = Int((count.minute - summary.since).components.seconds / 60)
            guard (0..<minutes).contains(place) else { continue }
            let none = [Int64](repeating: 0, count: minutes)
            series[count.channel, default: [:]][count.outcome, default: none][place] += count.count
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
                writer.key("counts")
                writer.beginArray()
                for count in counts { writer.integer(count) }
                writer.endArray()
                writer.endObject()
            }
            writer.endArray()
            writer.endObject()
        }
        writer.endArray()
    }

    /// Writes what became of those that were stored; nulls where it could not be counted.
    static func write(_ reach: Reach?, to writer: inout JSONWriter) {
        let counts: [(StaticString, Int64?)] = [
            ("no_device", reach?.noDevice), ("accepted", reach?.accepted), ("failed", reach?.failed),
            ("delivered", reach?.delivered), ("opened", reach?.opened), ("read", reach?.read),
        ]
        for (name, count) in counts {
            writer.key(name)
            if let count { writer.integer(count) } else { writer.null() }
        }
    }

    private func failures(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        var query = QueryFields(request, allowing: ["limit"])
        let limit = Int(query.integer("limit", in: 1...100) ?? 20)
        try query.finish()
        let since = self.services.now() + (.zero - Self.span)
        let failures = try await self.services.statisticsStore.failures(since: since, limit: limit)
        return Response.object { writer in
            writer.key("failures")
            writer.beginArray()
            for failure in failures {
                writer.beginObject()
                writer.member("at", failure.at.rfc3339)
                writer.member("user_id", failure.user)
                writer.member("notification_id", failure.notification?.description)
                writer.member("provider", failure.provider)
                writer.member("attempt", failure.attempt)
                writer.member("reason", failure.reason)
                writer.endObject()
            }
            writer.endArray()
        }
    }

    private func reports(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        var query = QueryFields(request, allowing: ["limit"])
        let limit = Int(query.integer("limit", in: 1...100) ?? 20)
        try query.finish()
        let since = self.services.now() + (.zero - Self.span)
        let (counts, failed) = try await self.services.clientReports.summary(since: since, limit: limit)
        return Response.object { writer in
            writer.key("counts")
            writer.beginArray()
            for count in counts {
                writer.beginObject()
                writer.member("kind", count.kind)
                writer.member("outcome", count.outcome)
                writer.member("provider", count.provider)
                writer.member("count", count.count)
                writer.endObject()
            }
            writer.endArray()
            writer.key("failed")
            writer.beginArray()
            for report in failed {
                writer.beginObject()
                writer.member("at", report.at.rfc3339)
                writer.member("user_id", report.user)
                writer.member("provider", report.provider)
                writer.member("reason", report.reason)
                writer.endObject()
            }
            writer.endArray()
        }
    }

    /// A client tells how a prompt or a registration went, which no server sees by itself.
    private func report(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try JSONBody(try await JSONBody.read(request, isRequired: true))
        body.allow(["kind", "outcome", "provider", "reason"])
        let kind = body.choice("kind", of: ClientReportStore.Kind.self, isRequired: true)
        let outcome = body.choice("outcome", of: ClientReportStore.Outcome.self, isRequired: true)
        let provider = self.services.userFields.provider(&body) ?? .webpush
        let reason = body.text("reason", limit: Self.longestReason)
        if let kind, let outcome, (kind == .registration) != (outcome == .failed) {
            let outcomes = kind == .registration ? "failed" : "one of granted, denied, dismissed"
            body.fault("outcome", "must be \(outcomes) for a \(kind.rawValue)")
        }
        if let reason, reason.utf8.contains(0) { body.fault("reason", "may not hold U+0000") }
        try body.finish()
        guard let kind, let outcome else { throw Problem(.badRequest, "fields are missing") }
        let report = ClientReportStore.Report(
            at: self.services.now(),
            user: user,
            kind: kind,
            outcome: outcome,
            provider: provider,
            reason: reason
        )
        guard try await self.services.clientReports.add(report) else {
            let limit = ClientReportStore.mostPerHour
            throw Problem(.tooManyRequests, "a user may report \(limit) times an hour", retryAfter: 3_600)
        }
        return Response(status: .noContent)
    }
}
