// Carillon · BroadcastRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Storage

/// Jobs for a topic's subscribers or for everyone, as services steer them and admins see them.
struct BroadcastRoutes {
    private static let largestPage = 100

    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        group.post("jobs/:id/pause") { try await self.steer(.pause, $0, $1) }
        group.post("jobs/:id/resume") { try await self.steer(.resume, $0, $1) }
        group.post("jobs/:id/confirm") { try await self.steer(.confirm, $0, $1) }
        group.get("admin/broadcasts", use: self.list)
    }

    private func steer(_ order: JobControl.Order, _ request: Request, _ context: APIContext) async throws -> Response {
        let name = try JobControlRoutes(services: self.services).name(request, context)
        guard let (report, isObeyed) = try await self.services.jobControl.order(order, name) else {
            throw Problem.notFound
        }
        guard isObeyed else {
            throw Problem(.conflict, "the broadcast is \(report.progress?.broadcast.state.rawValue ?? "gone")")
        }
        return Response.object { JobControlRoutes.write(report, self.services.catalog, to: &$0) }
    }

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        var query = QueryFields(request, allowing: ["limit", "cursor", "state"])
        let limit = Int(query.integer("limit", in: 1...Int64(Self.largestPage)) ?? 20)
        var before: NotificationID?
        if let cursor = query.text("cursor", limit: JobLimits.id) {
            before = NotificationID(cursor)
            if before == nil { query.fault("cursor", "is not one of ours") }
        }
        var state: Broadcast.State?
        if let text = query.text("state", limit: JobLimits.name) {
            state = Broadcast.State(rawValue: text)
            let names = Broadcast.State.allCases.map(\.rawValue).joined(separator: ", ")
            if state == nil { query.fault("state", "must be one of " + names) }
        }
        try query.finish()
        let found = try await self.services.broadcasts.list(before: before, state: state, limit: limit + 1)
        let catalog = self.services.catalog
        return Response.object { writer in
            writer.key("broadcasts")
            writer.beginArray()
            for progress in found.prefix(limit) { Self.write(progress, catalog, to: &writer) }
            writer.endArray()
            writer.member("next_cursor", found.count > limit ? found[limit - 1].broadcast.id.description : nil)
        }
    }

    /// Returns the type and the text of a broadcast's notifications in the default locale.
    private static func words(
        _ broadcast: Broadcast,
        _ catalog: Catalog
    ) -> (type: String?, title: String?, body: String?) {
        // The type may have left the catalog since.
        guard let job = try? JobDecoder.decode(broadcast.fields), case .notification(let content) = job.payload else {
            return (nil, nil, nil)
        }
        guard var renderer = catalog.renderer(content) else {
            let hasOwn = content.template == nil && content.variables == nil
            return (content.type, hasOwn ? content.title : nil, hasOwn ? content.body : nil)
        }
        let message = try? renderer.message(locale: nil)
        return (content.type, message?.title, message?.body)
    }

    /// Writes how far a broadcast has come.
    static func write(_ progress: Broadcast.Progress, _ catalog: Catalog, to writer: inout JSONWriter) {
        let broadcast = progress.broadcast
        let words = Self.words(broadcast, catalog)
        writer.beginObject()
        let texts: [(String, String?)] = [
            ("id", broadcast.id.description), ("org", broadcast.org), ("job_id", broadcast.job),
            ("entry", broadcast.entry), ("topic", broadcast.topic), ("type", words.type), ("title", words.title),
            ("body", words.body), ("lane", broadcast.lane.rawValue),
            ("created_at", broadcast.createdAt.rfc3339), ("state", broadcast.state.rawValue),
            ("reason", broadcast.reason),
        ]
        for (name, text) in texts {
            writer.key(escaping: name)
            writer.string(text)
        }
        writer.member("held", progress.isHeld)
        writer.key("audience")
        if let audience = broadcast.audience { writer.integer(audience) } else { writer.null() }
        let counts = [
            ("selected", progress.selected), ("stored", progress.stored), ("pages", progress.pages),
            ("chains_done", progress.chainsDone), ("withdrawn", broadcast.withdrawn),
        ]
        for (name, count) in counts {
            writer.key(escaping: name)
            writer.integer(count)
        }
        writer.key("not_stored")
        writer.raw(progress.counted)
        writer.endObject()
    }
}
