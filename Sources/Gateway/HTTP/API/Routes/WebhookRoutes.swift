// Carillon · WebhookRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Storage

/// Where services want to be told what became of notifications: `/v1/webhooks`.
struct WebhookRoutes {
    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        group.post("webhooks", use: self.register)
        group.get("webhooks", use: self.list)
        group.get("webhooks/:id", use: self.find)
        group.delete("webhooks/:id", use: self.remove)
    }

    private func register(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireService()
        let options = self.services.webhookOptions
        guard options.areEventsWritten else {
            throw Problem(.conflict, "events are switched off on this server, so there is nothing to be told")
        }
        var body = try JSONBody(try await JSONBody.read(request, isRequired: true))
        body.allow(["url", "org", "events"])
        let url = body.text("url", limit: JobLimits.url, isRequired: true) ?? ""
        if !url.isEmpty, let fault = Webhook.fault(inURL: url, allowsPlain: options.allowsPrivate) {
            body.fault("url", fault)
        }
        let org = body.text("org", limit: JobLimits.org)
        let kinds = Self.kinds(&body)
        try body.finish()
        let webhook = Webhook(
            id: NotificationID(high: .random(in: .min ... .max), low: .random(in: .min ... .max)).asRandomUUID,
            org: org,
            url: url,
            kinds: kinds,
            secret: WebhookSecret.make(),
            createdAt: self.services.now()
        )
        switch try await self.services.webhooks.register(webhook) {
        case .made: return Self.answer(webhook, secret: webhook.secret, status: .created)
        case .renewed(let known): return Self.answer(known)
        case .tooMany:
            let reason = "would be one more than \(WebhookStore.mostOfOrg) of an organisation, or \(WebhookStore.most)"
            throw Problem(.unprocessableContent, reason, faults: [JobFault("url", reason)])
        }
    }

    private static func kinds(_ body: inout JSONBody) -> Set<LifecycleEvent.Kind>? {
        guard let value = body.value["events"], value != .null else { return nil }
        let named = value.strings?.map { LifecycleEvent.Kind(rawValue: $0) } ?? []
        guard !named.isEmpty, named.count <= 100, named.allSatisfy({ $0 != nil }) else {
            let known = LifecycleEvent.Kind.allCases.map(\.rawValue).joined(separator: ", ")
            body.fault("events", "must be an array out of \(known)")
            return nil
        }
        return Set(named.compactMap { $0 })
    }

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireService()
        var query = QueryFields(request, allowing: ["org", "limit", "cursor"])
        let org = query.text("org", limit: JobLimits.org)
        let limit = Int(query.integer("limit", in: 1...100) ?? 20)
        var last: NotificationID?
        if let cursor = query.text("cursor", limit: 64) {
            last = NotificationID(cursor)
            if last == nil { query.fault("cursor", "is not one of ours") }
        }
        try query.finish()
        let webhooks = try await self.services.webhooks.list(org: org, after: last, limit: limit + 1)
        return Response.object { writer in
            writer.key("webhooks")
            writer.beginArray()
            for webhook in webhooks.prefix(limit) { Self.write(webhook, secret: nil, to: &writer) }
            writer.endArray()
            writer.member("next_cursor", webhooks.count > limit ? webhooks[limit - 1].id.description : nil)
        }
    }

    private func id(_ context: APIContext) throws -> NotificationID {
        guard let id = NotificationID(try context.parameters.require("id")) else { throw Problem.notFound }
        return id
    }

    private func find(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireService()
        guard let webhook = try await self.services.webhooks.find(try self.id(context)) else { throw Problem.notFound }
        return Self.answer(webhook)
    }

    private func remove(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireService()
        guard try await self.services.webhooks.remove(try self.id(context)) else { throw Problem.notFound }
        return Response(status: .noContent)
    }

    private static func answer(
        _ webhook: Webhook,
        secret: String? = nil,
        status: HTTPResponse.Status = .ok
    ) -> Response {
        var writer = JSONWriter()
        self.write(webhook, secret: secret, to: &writer)
        return .json(writer, status: status)
    }

    private static func write(_ webhook: Webhook, secret: String?, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("id", webhook.id.description)
        writer.member("org", webhook.org)
        writer.member("url", webhook.url)
        writer.key("events")
        if let kinds = webhook.kinds {
            writer.beginArray()
            for kind in kinds.map(\.rawValue).sorted() { writer.string(kind) }
            writer.endArray()
        } else {
            writer.null()
        }
        writer.member("status", webhook.status.rawValue)
        writer.member("status_reason", webhook.statusReason)
        writer.member("failing_since", webhook.failingSince?.rfc3339)
        writer.member("created_at", webhook.createdAt.rfc3339)
        if let secret {
            writer.member("secret", secret)
        }
        writer.endObject()
    }
}
