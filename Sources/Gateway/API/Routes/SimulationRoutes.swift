// Carillon · SimulationRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Catalog
import Decision
import Hummingbird
import JSON
import Model
import Services
import Stores
import Streams
import Templates
import Zones

/// What a user would get for a job, for admins: `/v1/admin/simulate`.
///
/// Nothing is stored, counted or sent.
struct SimulationRoutes {
    /// Presence as a caller supposes it.
    private enum Supposed: String, CaseIterable {
        case actual, offline, online, idle
    }

    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        group.post("admin/simulate", use: self.simulate)
    }

    private func simulate(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        var body = try JSONBody(try await JSONBody.read(request, isRequired: true))
        body.allow(["user", "job", "at", "presence", "proven"])
        let user = body.text("user", limit: JobLimits.user, isRequired: true) ?? ""
        let supposed = body.choice("presence", of: Supposed.self) ?? .actual
        let isProven = body.flag("proven") ?? true
        let moment = body.text("at", limit: 64)
        let at = moment.flatMap { Timestamp(rfc3339: $0) }
        if moment != nil, at == nil { body.fault("at", "must be an RFC 3339 time such as 2026-11-20T10:00:00Z") }
        let content = self.content(&body, user: user)
        try body.finish()
        guard let content, let type = self.services.catalog[content.type] else {
            throw Problem(.badRequest, "the job is missing")
        }
        let facts = try await self.facts(content, type, user: user, now: at ?? self.services.now(), supposed)
        let (title, text) = try self.words(content, locale: facts.settings.locale)
        let events = Simulation(facts, isProven: isProven).run()
        return Response.object { writer in
            writer.key("user_id")
            writer.string(user)
            writer.key("at")
            writer.string(facts.now.rfc3339)
            writer.key("zone")
            writer.string(facts.settings.zone)
            writer.key("locale")
            writer.string(facts.settings.locale)
            writer.key("title")
            writer.string(title)
            writer.key("body")
            writer.string(text)
            writer.key("devices")
            writer.integer(facts.deviceCount)
            writer.key("cap")
            writer.string(facts.cap?.rawValue)
            writer.key("quiet_until")
            writer.string(facts.quietEnd?.rfc3339)
            writer.key("steps")
            writer.beginArray()
            for event in events { StepJSON.write(event, to: &writer) }
            writer.endArray()
        }
    }

    /// The job's content; its audience may be left out, as the user is named.
    private func content(_ body: inout JSONBody, user: String) -> JobContent? {
        guard let members = body.value["job"]?.object else {
            body.fault("job", "must be a JSON object with the fields of a job")
            return nil
        }
        var fields = JobFields.flat(members)
        if !fields.contains(where: { ["user", "users", "topic", "all"].contains($0.name) }) {
            fields.append(("user", Array(user.utf8)))
        }
        do throws(JobFaults) {
            let job = try self.services.catalog.job(fields.map { ($0.name, $0.value[...]) })
            if case .notification(let content) = job.payload {
                for fault in self.services.catalog.variableFaults(content) {
                    body.fault("job.\(fault.field)", fault.reason)
                }
                return content
            }
            body.fault("job.event", "is not stored and follows no rules")
        } catch {
            for fault in error.faults { body.fault("job.\(fault.field)", fault.reason) }
        }
        return nil
    }

    /// What it says to someone with that locale.
    private func words(_ content: JobContent, locale: String?) throws -> (title: String, body: String) {
        guard var renderer = self.services.catalog.renderer(content) else { return (content.title, content.body) }
        let message = try renderer.message(locale: locale)
        return (message.title, message.body)
    }

    private func facts(
        _ content: JobContent,
        _ type: NotificationType,
        user: String,
        now: Timestamp,
        _ supposed: Supposed
    ) async throws -> DecisionFacts {
        let key = RecipientStore.Key(user: user, type: type.name, category: type.category, needsLocale: true)
        let wishes = try await self.services.recipients.wishes([key]).first ?? RecipientStore.Wishes()
        let devices = try await self.services.recipients.activeDevices([user])[ExactText(user)] ?? []
        let draft = NotificationDraft(content, type: type, lane: .bulk, createdAt: now)
        var facts = DecisionFacts(
            notification: draft.notification(id: NotificationID(high: 0, low: 0), user: user),
            type: type,
            progress: .arrived,
            now: now
        )
        facts.preference = wishes.preference
        facts.settings = wishes.settings
        facts.zone = wishes.settings.zone.flatMap { self.services.zones.rules($0) } ?? self.services.defaultZone
        facts.deviceCount = devices.count
        facts.cap = try await self.cap(type, user: user, now: now)
        facts.presence = try await self.presence(of: user, supposed, now: now)
        return facts
    }

    /// The cap that one more would reach, as the user's count stands.
    private func cap(_ type: NotificationType, user: String, now: Timestamp) async throws -> CapScope? {
        let caps = self.services.catalog.caps(ofType: type.name)
        let reached = try await self.services.usage.reached(
            caps.map { UsageCaps.Cap(name: $0.name, limit: $0.limit) }, user: user, now: now)
        return reached.map { caps[$0].scope }
    }

    private func presence(of user: String, _ supposed: Supposed, now: Timestamp) async throws -> Presence {
        func connection(_ state: ConnectionPresence.State) -> Presence {
            .online([
                ConnectionPresence(
                    connection: "", node: "", dialect: .native, state: state,
                    since: now + (.zero - ConnectionPresence.idleAfter))
            ])
        }
        switch supposed {
        case .actual: return try await self.services.presence.lookUp([user]).first ?? .offline
        case .offline: return .offline
        case .online: return connection(.active)
        case .idle: return connection(.idle)
        }
    }
}
