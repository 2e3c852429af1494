// Carillon · JobSimulation.swift
// SPDX-License-Identifier: Apache-2.0

package import Catalog
import Decision
import JSON
package import Model
package import Stores
package import Streams
import Templates
package import Zones

/// What a user would get for a job, and when; nothing is stored, counted or sent.
package struct JobSimulation: Sendable {
    /// Presence as a caller supposes it.
    package enum SupposedPresence: String, CaseIterable, Sendable {
        case actual, offline, online, idle
    }

    /// What is asked.
    package struct Question: Sendable {
        package let user: String
        package let content: JobContent
        package var at: Timestamp?
        package var presence = SupposedPresence.actual
        /// Whether sockets prove receipt, where there are any.
        package var isProven = true

        package init(user: String, content: JobContent) {
            self.user = user
            self.content = content
        }
    }

    private let catalog: Catalog
    private let recipients: RecipientStore
    private let presence: PresenceRegistry
    private let usage: UsageCaps
    private let zones: ZoneDatabase
    private let defaultZone: ZoneRules

    package init(
        catalog: Catalog,
        recipients: RecipientStore,
        presence: PresenceRegistry,
        usage: UsageCaps,
        zones: ZoneDatabase,
        defaultZone: ZoneRules
    ) {
        self.catalog = catalog
        self.recipients = recipients
        self.presence = presence
        self.usage = usage
        self.zones = zones
        self.defaultZone = defaultZone
    }

    /// A job's content; its audience may be left out, as the user is named.
    ///
    /// - Throws: `JobFaults` with every fault.
    package static func content(
        of fields: [(name: String, value: [UInt8])],
        user: String,
        catalog: Catalog
    ) throws(JobFaults) -> JobContent {
        var fields = fields
        if !fields.contains(where: { ["user", "users", "topic", "all"].contains($0.name) }) {
            fields.append(("user", Array(user.utf8)))
        }
        let job = try catalog.job(fields.map { ($0.name, $0.value[...]) })
        guard case .notification(let content) = job.payload else {
            throw JobFaults([JobFault("event", "is not stored and follows no rules")])
        }
        let faults = catalog.variableFaults(content)
        guard faults.isEmpty else { throw JobFaults(faults) }
        return content
    }

    /// - Throws: what the stores say; `JobFaults` if the type is not in the catalog or its words cannot be made.
    package func answer(_ question: Question, now: Timestamp) async throws -> SimulationAnswer {
        guard let type = self.catalog[question.content.type] else {
            throw JobFaults([JobFault("type", "is not in the catalog")])
        }
        let facts = try await self.facts(question, type, now: question.at ?? now)
        let (title, body) = try self.words(question.content, locale: facts.settings.locale)
        let simulation = Simulation(facts, isProven: question.isProven)
        let events = simulation.run()
        return SimulationAnswer(
            user: question.user,
            at: facts.now,
            zone: facts.settings.zone,
            locale: facts.settings.locale,
            title: title,
            body: body,
            presence: facts.presence,
            devices: facts.deviceCount,
            cap: facts.cap,
            quietUntil: facts.quietEnd,
            channels: simulation.fates(events),
            steps: events
        )
    }

    /// What it says to someone with that locale.
    private func words(_ content: JobContent, locale: String?) throws -> (title: String, body: String) {
        guard var renderer = self.catalog.renderer(content) else { return (content.title, content.body) }
        let message = try renderer.message(locale: locale)
        return (message.title, message.body)
    }

    private func facts(_ question: Question, _ type: NotificationType, now: Timestamp) async throws -> DecisionFacts {
        let user = question.user
        let key = RecipientStore.Key(user: user, type: type.name, category: type.category, needsLocale: true)
        let wishes = try await self.recipients.wishes([key]).first ?? RecipientStore.Wishes()
        let devices = try await self.recipients.activeDevices([user])[ExactText(user)] ?? []
        let draft = NotificationDraft(question.content, type: type, lane: .bulk, createdAt: now)
        var facts = DecisionFacts(
            notification: draft.notification(id: NotificationID(high: 0, low: 0), user: user),
            type: type,
            progress: .arrived,
            now: now
        )
        facts.preference = wishes.preference
        facts.settings = wishes.settings
        facts.zone = wishes.settings.zone.flatMap { self.zones.rules($0) } ?? self.defaultZone
        facts.deviceCount = devices.count
        facts.cap = try await self.cap(type, user: user, now: now)
        facts.presence = try await self.presence(of: user, question.presence, now: now)
        return facts
    }

    /// The cap that one more would reach, as the user's count stands.
    private func cap(_ type: NotificationType, user: String, now: Timestamp) async throws -> CapScope? {
        let caps = self.catalog.caps(ofType: type.name)
        let reached = try await self.usage.reached(
            caps.map { UsageCaps.Cap(name: $0.name, limit: $0.limit) }, user: user, now: now)
        return reached.map { caps[$0].scope }
    }

    private func presence(of user: String, _ supposed: SupposedPresence, now: Timestamp) async throws -> Presence {
        func connection(_ state: ConnectionPresence.State) -> Presence {
            .online([
                ConnectionPresence(
                    connection: "", node: "", dialect: .native, state: state,
                    since: now + (.zero - ConnectionPresence.idleAfter))
            ])
        }
        switch supposed {
        case .actual: return try await self.presence.lookUp([user]).first ?? .offline
        case .offline: return .offline
        case .online: return connection(.active)
        case .idle: return connection(.idle)
        }
    }
}
