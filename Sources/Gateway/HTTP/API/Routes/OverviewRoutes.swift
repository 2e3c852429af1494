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
        answers: [.ok("The overview.", OverviewStore.Summary.shape.schema)])

    private func show(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.show)
        let span = query.choice("span", of: Span.self) ?? .hour
        let org = query.text("org", limit: JobLimits.org)
        try query.finish()
        let summary = try await self.counts.value(Question(span: span, org: org.map { ExactText($0) }))
        return .json(summary, as: OverviewStore.Summary.shape, capacity: 4_096)
    }
}

extension OverviewStore.Summary {
    static let shape = Shape<OverviewStore.Summary>(
        "Overview",
        [
            "since": .value(.time, "The earliest time of the counts.") { $0.since },
            "complete": .value(.bool, "False if rows exceeded the limit; `since` is then later than requested.") {
                $0.isComplete
            },
            "stored": .value(.count, "All notifications.") { $0.reach.stored },
        ] + Reach.shape.of { $0.reach } + [
            "latency": .object(latencies) { $0 },
            "held": .value(
                .count, "Steps that wait for their time, up to 200,000: quiet hours, attention, e-mail."
            ) { $0.held },
            "late": .value(
                .count,
                "Steps, digests and schedules over a minute late, without pages of broadcasts, up to 200,000 of each."
            ) { $0.late },
            "dead_letters": .value(.count, "Up to 200,000.") { $0.deadLetters },
            "organisations": .list(
                of: ["org_id": .value(.string) { $0.org }, "stored": .value(.count) { $0.stored }], max: 20,
                "The largest, of all notifications."
            ) { $0.organisations },
        ])

    private static let latencies: Shape<OverviewStore.Summary> = [
        "socket": .object(latency, "From the job to the proof of an open socket within two minutes.") { $0.socket },
        "push": .object(
            latency, "From the job to the push provider's answer, without pushes delayed by quiet hours or proofs."
        ) { $0.push },
        "email": .object(latency, "From the job to the mail relay's answer, `email_after` included.") { $0.email },
    ]

    private static let latency: Shape<OverviewStore.Latency> = [
        "count": .value(.count) { $0.count },
        "p50": .value(.count, "Milliseconds.") { $0.p50 },
        "p95": .value(.count) { $0.p95 },
        "p99": .value(.count) { $0.p99 },
    ]
}
