// Carillon · WebhookRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Storage

/// Webhooks for events of notifications: `/v1/webhooks`.
struct WebhookRoutes {
    let base: GatewayBase
    let options: WebhookOptions

    func add(to routes: Routes) {
        routes.post("webhooks", Self.register, self.register)
        routes.get("webhooks", Self.list, self.list)
        routes.get("webhooks/:id", Self.find, self.find)
        routes.delete("webhooks/:id", Self.remove, self.remove)
    }

    private static let register = Operation(
        "registerWebhook",
        "Registers a webhook for events of notifications.",
        "Only the first response contains the secret. Another call with the same `org` and `url` replaces the "
            + "events and reactivates the webhook. docs/events.md explains requests and signatures.",
        scope: .service,
        body: .object(
            [
                "url": .text(2048)("https, without credentials and fragment."),
                "org?": .text(JobLimits.org).orNull("Only events of this organisation; of all if absent."),
                "events?": .list(of: .cases(of: LifecycleEvent.Kind.self), min: 1, max: 100).orNull(
                    "The kinds of events; all if absent."),
            ], isClosed: true),
        answers: [
            .ok("It existed already and was renewed.", Webhook.shape.schema),
            .created("It was created.", .allOf(Webhook.shape.schema, .object(["secret": .string]))),
            Answer(409, "Events are disabled on this server."),
        ])

    private func register(_ request: Request, _ context: APIContext) async throws -> Response {
        guard self.options.areEventsWritten else {
            throw Problem(.conflict, "events are switched off on this server; set EVENTS=on")
        }
        var body = try await FieldReader(body: request, of: Self.register)
        let url = body.text("url", limit: JobLimits.url, isRequired: true) ?? ""
        if !url.isEmpty, let fault = Webhook.fault(inURL: url, allowsPlain: self.options.allowsPrivate) {
            body.fault("url", fault)
        }
        let org = body.text("org", limit: JobLimits.org)
        let kinds = Self.kinds(&body)
        try body.finish()
        let webhook = Webhook(
            id: WebhookID.random(),
            org: org,
            url: url,
            kinds: kinds,
            secret: Self.makeSecret(),
            createdAt: self.base.now()
        )
        switch try await self.base.database.webhooks.register(webhook) {
        case .made: return Self.answer(webhook, secret: webhook.secret, status: .created)
        case .renewed(let known):
            try await self.base.live.webhookQueues.endBackoff(of: known.id, now: self.base.now())
            return Self.answer(known)
        case .tooMany:
            let reason =
                "exceeds the limit of \(WebhookStore.mostOfOrg) of an organisation, or of \(WebhookStore.most) in all; "
                + "remove one first"
            throw Problem(.unprocessableContent, reason, faults: [JobFault("url", reason)])
        }
    }

    /// Returns a new secret of 256 random bits, for signatures.
    private static func makeSecret() -> String {
        "whsec_" + Base64.url.encode((0..<32).map { _ in UInt8.random(in: .min ... .max) })
    }

    private static func kinds(_ body: inout FieldReader) -> Set<LifecycleEvent.Kind>? {
        guard let value = body.value["events"], value != .null else { return nil }
        let named = value.strings?.map { LifecycleEvent.Kind(rawValue: $0) } ?? []
        guard !named.isEmpty, named.count <= 100, named.allSatisfy({ $0 != nil }) else {
            let known = LifecycleEvent.Kind.allCases.map(\.rawValue).joined(separator: ", ")
            body.fault("events", "must be an array out of \(known)")
            return nil
        }
        return Set(named.compactMap { $0 })
    }

    private static let list = Operation(
        "listWebhooks",
        "Lists webhooks by id.",
        scope: .service,
        query: [
            "org?": .text(JobLimits.org),
            "limit?": .integer(1...100, default: 20),
            "cursor?": .uuid("`next_cursor` of the previous page."),
        ],
        answers: [.ok("A page.", page.schema)])

    private static let page = Shape.page("webhooks", of: Webhook.shape)

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.list)
        let org = query.text("org", limit: JobLimits.org)
        let limit = query.limit()
        let last = query.cursor()
        try query.finish()
        let webhooks = try await self.base.database.webhooks.list(org: org, after: last, limit: limit + 1)
        return .json(Page(webhooks, limit: limit, id: \.id), as: Self.page)
    }

    private static let find = Operation(
        "getWebhook",
        "Returns a webhook with its status.",
        scope: .service,
        path: ["id": .uuid("A webhook.")],
        answers: [.ok("The webhook.", Webhook.shape.schema), 404])

    private func find(_ request: Request, _ context: APIContext) async throws -> Response {
        guard let webhook = try await self.base.database.webhooks.find(try context.pathID(of: "webhook")) else {
            throw Problem.noSuch("webhook")
        }
        return Self.answer(webhook)
    }

    private static let remove = Operation(
        "deleteWebhook",
        "Removes a webhook and drops its queue.",
        scope: .service,
        path: ["id": .uuid("A webhook.")],
        answers: [.noContent("Deleted."), 404])

    private func remove(_ request: Request, _ context: APIContext) async throws -> Response {
        guard try await self.base.database.webhooks.remove(try context.pathID(of: "webhook")) else {
            throw Problem.noSuch("webhook")
        }
        return Response(status: .noContent)
    }

    private static func answer(
        _ webhook: Webhook,
        secret: String? = nil,
        status: HTTPResponse.Status = .ok
    ) -> Response {
        Response.object(status: status) { writer in
            Webhook.shape.writeMembers(of: webhook, to: &writer)
            if let secret { writer.member("secret", secret) }
        }
    }
}

extension Webhook {
    static let shape = Shape<Webhook>(
        "Webhook",
        [
            "id": .value(.uuid) { $0.id },
            "org": .value(.string) { $0.org },
            "url": .value(.string) { $0.url },
            "events": .value(.list(of: .cases(of: LifecycleEvent.Kind.self), max: 100)) {
                $0.kinds?.map(\.rawValue).sorted()
            },
            "status": .value(.cases(of: Status.self)) { $0.status.rawValue },
            "status_reason": .value(.string) { $0.statusReason },
            "failing_since": .value(.time) { $0.failingSince },
            "created_at": .value(.time) { $0.createdAt },
        ])
}

/// The operator's settings for webhooks.
package struct WebhookOptions: Sendable {
    /// Whether events are written at all.
    var areEventsWritten = true
    /// Whether receivers may use private networks and plain HTTP.
    var allowsPrivate = false

    package init(areEventsWritten: Bool = true, allowsPrivate: Bool = false) {
        self.areEventsWritten = areEventsWritten
        self.allowsPrivate = allowsPrivate
    }
}
