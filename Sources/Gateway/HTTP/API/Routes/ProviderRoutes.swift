// Carillon · ProviderRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Operations
import Storage

/// The state of providers, for admins: `/v1/admin/providers`; test sends, for services:
/// `/v1/test-sends`.
struct ProviderRoutes {
    private enum TestChannel: String, CaseIterable {
        case push, email
    }

    let base: GatewayBase

    func add(to routes: Routes) {
        routes.group(tag: "admin").get("admin/providers", Self.providers, self.providers)
        routes.group(tag: "jobs").post("test-sends", Self.test, self.test)
    }

    private static let providers = Operation(
        "listProviders",
        "Returns the state and counts of each provider by app and dispatcher.",
        "As reported by dispatchers in the last 20 seconds.",
        scope: .admin,
        answers: [.ok("All providers, including disabled ones.", report.schema)])

    private static let report: Shape<ProviderReport> = [
        "providers": .list(of: one, max: 100) { report in
            Provider.all.map { (provider: $0, report: report) }
        },
        "dispatchers": .value(
            .list(of: .string, max: 100_000), "The dispatchers that reported, even those without providers."
        ) { $0.dispatchers.sorted() },
    ]

    private static let one: Shape<(provider: Provider, report: ProviderReport)> = [
        "provider": .value(.string) { $0.provider.rawValue },
        "ways": .list(of: way, max: 100_000) { one in one.report.states.filter { $0.provider == one.provider } },
        "counts": .list(
            of: counts, max: 100_000, "The outcomes by app, summed over running dispatchers since their starts."
        ) { one in one.report.counts.filter { $0.provider == one.provider } },
    ]

    private static let way: Shape<ProviderState> = [
        "app": .value(.string) { $0.app },
        "dispatcher": .value(.string) { $0.dispatcher },
        "breaker": .value(.cases(of: ProviderState.Breaker.self)) { $0.breaker.rawValue },
        "open_until": .value(.time) { $0.until },
        "in_flight": .value(.integer) { $0.inFlight },
    ]

    private static let counts: Shape<ProviderCounts> = [
        "app": .value(.string) { $0.app },
        "sent": .value(.integer, "All attempts, including retries.") { $0.sent },
        "accepted": .value(.integer) { $0.accepted },
        "failed": .value(.integer, "Attempts that were not accepted, temporarily or permanently.") { $0.failed },
        "reasons": .value(
            .map(of: .integer).with("maxProperties", .number("32")),
            "Failures by reason, most frequent first; beyond 32 reasons, the rest is `other`."
        ) { counts in
            let reasons = counts.reasons.sorted { ($1.value, $0.key) < ($0.value, $1.key) }
            return CountsByName(reasons.map { (name: $0.key, count: $0.value) })
        },
        "latencies": .list(of: latency, max: 100, "A histogram of the attempts' durations.") { counts in
            counts.latencies.enumerated().map { index, count in
                (bound: index < ProviderCounts.bounds.count ? ProviderCounts.bounds[index] : nil, count: count)
            }
        },
    ]

    private static let latency: Shape<(bound: Int64?, count: Int)> = [
        "up_to_milliseconds": .value(.integer, "Null for the last bucket.") { $0.bound },
        "count": .value(.integer) { $0.count },
    ]

    private func providers(_ request: Request, _ context: APIContext) async throws -> Response {
        let report = try await self.base.live.providerBoard.report(now: self.base.now(), removesStale: true)
        return .json(report, as: Self.report)
    }

    private static let test = Operation(
        "testDevice",
        "Sends a test message to one device or address and returns the provider's answer.",
        "Bypasses preferences, quiet hours, records, retries and circuit breakers. Without `device`, the user's "
            + "most recently used one; with `channel` `email`, the user's address. Waits for the provider, up to 40 "
            + "seconds.",
        scope: .service,
        body: .object(
            [
                "user": .text(JobLimits.user),
                "channel?": .choice("push", "email").with("default", .string("push")).orNull(
                    "`email` sends to the user's e-mail address and excludes `device`."),
                "device?": .uuid.orNull,
                "type?": .text(JobLimits.name).orNull,
                "title?": .text(JobLimits.title).orNull,
                "body?": .text(JobLimits.body).orNull,
                "data?": .anyObject.orNull,
            ], isClosed: true),
        answers: [
            .ok(
                "The outcome, accepted or not.",
                .object([
                    "device": .string.orNull("Null for e-mail."),
                    "provider": .string,
                    "app": .string.orNull("Null for e-mail."),
                    "outcome": .choice(
                        "accepted", "dead_token", "retry_later", "refused", "configuration", "no_answer", "not_sent"),
                    "reason": .string.orNull,
                    "provider_id?": .string.orNull,
                    "answer?": .string.orNull(
                        "The status, relevant headers (`content-type`, `retry-after`, `apns-id`, "
                            + "`apns-unique-id`, `location`) and the start of the body; for mail the relay's last "
                            + "reply; `not sent` if nothing was sent."
                    ),
                    "advice?": .string.orNull,
                    "milliseconds?": .integer,
                ])),
            404,
            Answer(
                504, "No dispatcher took it within 40 s, or the dispatcher did not answer; `detail` says which."),
        ])

    private func test(_ request: Request, _ context: APIContext) async throws -> Response {
        var body = try await FieldReader(body: request, of: Self.test)
        let user = body.text("user", limit: JobLimits.user, isRequired: true)
        let isMail = body.choice("channel", of: TestChannel.self) == .email
        let device = body.text("device", limit: JobLimits.id)
        if isMail, device != nil {
            body.fault("device", "must be absent where channel is email")
        } else if let device, DeviceID(device) == nil {
            body.fault("device", "must be the UUID of a device")
        }
        let texts = [
            ("type", body.text("type", limit: JobLimits.name)), ("title", body.text("title", limit: JobLimits.title)),
            ("body", body.text("body", limit: JobLimits.body)),
        ]
        let data = body.value["data"].flatMap { $0 == .null ? nil : $0 }
        if let data, data.object == nil { body.fault("data", "must be an object") }
        try body.finish()
        do {
            let reply = try await TestSend(self.base.database, self.base.live).ask(
                user: user ?? "", device: device, isMail: isMail, texts: texts, data: data)
            guard let reply else {
                throw Problem(
                    .notFound,
                    isMail
                        ? "the user has no e-mail address; GET /v1/users/{id} shows it"
                        : "the user has no such active device; GET /v1/users/{id} lists them")
            }
            return Response.object { writer in
                writer.member("device", reply.device?.id.description)
                writer.member("provider", reply.provider.rawValue)
                writer.member("app", reply.device?.app)
                for member in reply.answer {
                    writer.key(escaping: member.key)
                    writer.value(member.value)
                }
            }
        } catch let failure as TestSends.Failure {
            guard failure == .tooMany else { throw Problem(.gatewayTimeout, failure.rawValue) }
            throw Problem(.serviceUnavailable, failure.rawValue, retryAfter: 5)
        }
    }
}
