// Carillon · JobSimulation.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// Simulates a job for one user, without storing, counting or sending anything.
package struct JobSimulation: Sendable {
    /// The presence to assume.
    package enum SupposedPresence: String, CaseIterable, Sendable {
        case actual, offline, online, idle
    }

    /// The simulation's input.
    package struct Question: Sendable {
        let user: String
        let org: String
        let audience: Audience
        /// Users to leave out.
        let except: [String]
        let content: JobContent
        package var at: Timestamp?
        package var presence = SupposedPresence.actual
        /// Whether sockets prove receipt, if there are any.
        package var isProven = true

        init(user: String, job: Job, content: JobContent) {
            self.user = user
            self.org = job.org
            self.audience = job.audience
            self.except = job.except
            self.content = content
        }
    }

    /// Why a user is not a recipient of a job.
    private enum Absence: String {
        case excepted
        case notNamed = "not_named"
        case notSubscribed = "not_subscribed"
    }

    private let database: Database
    private let live: Live
    private let presence: PresenceRegistry
    private let catalog: Catalog
    private let zones: ZoneDatabase
    private let defaultZone: ZoneRules

    package init(
        database: Database,
        live: Live,
        presence: PresenceRegistry,
        catalog: Catalog,
        zones: ZoneDatabase,
        defaultZone: ZoneRules
    ) {
        self.database = database
        self.live = live
        self.presence = presence
        self.catalog = catalog
        self.zones = zones
        self.defaultZone = defaultZone
    }

    /// Decodes a job for a user; without an audience, the user is the audience.
    ///
    /// - Parameter source: the JSON object that the fields come from; if nil, the types of its
    ///   members are not checked.
    /// - Throws: `JobFaults` with every fault.
    package static func question(
        of fields: [(name: String, value: [UInt8])],
        from source: JSONValue? = nil,
        user: String,
        catalog: Catalog
    ) throws(JobFaults) -> Question {
        var fields = fields
        if !fields.contains(where: { ["user", "users", "topic", "all"].contains($0.name) }) {
            fields.append(("user", Array(user.utf8)))
        }
        let job = try catalog.checkedJob(fields, from: source)
        guard case .notification(let content) = job.payload else {
            throw JobFaults([JobFault("event", "cannot be simulated; give a notification")])
        }
        return Question(user: user, job: job, content: content)
    }

    /// - Throws: errors of the stores; `JobFaults` if the type is not in the catalog or its texts
    ///   cannot be rendered.
    package func answer(_ question: Question, now: Timestamp) async throws -> SimulationAnswer {
        guard let type = self.catalog[question.content.type] else {
            throw JobFaults([JobFault("type", "is not in the catalog")])
        }
        let arrival = question.at ?? now
        let active = try await self.database.recipients.activeDevices([question.user])[ExactText(question.user)] ?? []
        let report = try await self.live.providerBoard.report(now: now, removesStale: false)
        let devices = active.map {
            SimulatedDevice(device: $0, isReachable: report.serves($0.provider, app: $0.app))
        }
        var facts = try await self.facts(question, type, devices, now: arrival)
        if let absence = try await self.absence(question) {
            let channels = DeliveryChannel.allCases.map { ChannelFate($0, isUsed: false, reason: absence.rawValue) }
            return try self.answer(question, facts, devices, at: arrival, channels: channels, holds: [], steps: [])
        }
        var holds: [SimulatedHold] = []
        if let (moment, field) = self.scheduling(question.content, facts) {
            if moment > arrival {
                holds.append(SimulatedHold(kind: .schedule, at: arrival, until: moment, what: field))
            }
            // A local time on a past day still counts as the job's time.
            facts = try await self.facts(question, type, devices, createdAt: moment, now: max(moment, arrival))
        }
        if let hold = try await self.gathering(question, type, facts) {
            holds.append(hold)
            facts = try await self.facts(question, type, devices, now: hold.until ?? facts.now)
        } else if let key = question.content.collapseKey {
            holds.append(SimulatedHold(kind: .replace, at: facts.now, until: nil, what: key))
        }
        facts.hasMailRelay = report.serves(.email)
        let simulation = Simulation(facts, isProven: question.isProven)
        let events = simulation.run()
        return try self.answer(
            question, facts, devices, at: arrival, channels: simulation.fates(events), holds: holds, steps: events)
    }

    private func answer(
        _ question: Question,
        _ facts: DecisionFacts,
        _ devices: [SimulatedDevice],
        at arrival: Timestamp,
        channels: [ChannelFate],
        holds: [SimulatedHold],
        steps: [Simulation.Event]
    ) throws -> SimulationAnswer {
        let (title, body) = try self.words(question.content, locale: facts.settings.locale)
        return SimulationAnswer(
            user: question.user,
            at: arrival,
            zone: facts.settings.zone,
            locale: facts.settings.locale,
            title: title,
            body: body,
            presence: facts.presence,
            devices: devices,
            cap: facts.cap,
            quietUntil: facts.quietEnd,
            channels: channels,
            holds: holds,
            steps: steps
        )
    }

    /// Returns why the user is not a recipient; nil if they are.
    private func absence(_ question: Question) async throws -> Absence? {
        let user = ExactText(question.user)
        if question.except.contains(where: { ExactText($0) == user }) { return .excepted }
        switch question.audience {
        case .users(let users): return users.contains { ExactText($0) == user } ? nil : .notNamed
        case .topic(let topic):
            return try await self.database.topics.isSubscribed(user: question.user, topic: topic) ? nil : .notSubscribed
        case .everyone: return nil
        }
    }

    /// Returns the moment of the scheduled delivery and the field that sets it; schedules apply
    /// before all other rules.
    private func scheduling(_ content: JobContent, _ facts: DecisionFacts) -> (moment: Timestamp, field: String)? {
        if let wall = content.deliverLocal {
            let delivery = LocalDelivery(
                [(user: facts.notification.user, zone: facts.settings.zone)],
                at: wall,
                now: facts.now,
                defaultZone: "",
                rules: { $0.isEmpty ? self.defaultZone : self.zones.rules($0) }
            )
            return delivery.parts.first.map { ($0.at, "deliver_local") }
        }
        guard let moment = content.deliverAt, moment > facts.now + JobContent.scheduleTolerance else { return nil }
        return (moment, "deliver_at")
    }

    /// Returns the hold of a digest.
    ///
    /// It applies to notifications that the preferences allow, after the window's first few.
    private func gathering(
        _ question: Question,
        _ type: NotificationType,
        _ facts: DecisionFacts
    ) async throws -> SimulatedHold? {
        guard let key = question.content.digest, let rule = type.digest, storing(facts).status == .pending
        else { return nil }
        let now = facts.now
        let known = try await self.database.digests.window(
            user: question.user, org: question.org, type: type.name, key: key)
        let window = known.flatMap { $0.due > now ? $0 : nil }
        guard (window?.count ?? 0) >= rule.singles else { return nil }
        var until = window?.due ?? now + rule.window
        if let window, rule.isSliding { until = min(window.last, now + rule.window) }
        return SimulatedHold(kind: .gather, at: now, until: until, what: key)
    }

    /// Returns the texts in a locale.
    private func words(_ content: JobContent, locale: String?) throws -> (title: String, body: String) {
        guard var renderer = self.catalog.renderer(content) else { return (content.title, content.body) }
        let message = try renderer.message(locale: locale)
        return (message.title, message.body)
    }

    /// - Parameter createdAt: the time of the job; now if nil.
    private func facts(
        _ question: Question,
        _ type: NotificationType,
        _ devices: [SimulatedDevice],
        createdAt: Timestamp? = nil,
        now: Timestamp
    ) async throws -> DecisionFacts {
        let user = question.user
        let key = RecipientStore.Key(user: user, type: type.name, category: type.category, needsLocale: true)
        let preferences = try await self.database.recipients.preferences([key]).first ?? RecipientStore.Preferences()
        let notification = question.content.notification(
            id: NotificationID(high: 0, low: 0), user: user, type: type, lane: .bulk, createdAt: createdAt ?? now)
        var facts = DecisionFacts(
            notification,
            type: type,
            preference: preferences.preference,
            settings: preferences.settings,
            progress: .arrived,
            now: now
        ) { zone in
            zone.flatMap { self.zones.rules($0) } ?? self.defaultZone
        }
        facts.deviceCount = devices.count { $0.isReachable }
        facts.presence = try await self.presence(of: user, question.presence, now: now)
        // Quiet hours check the cap when they release the notification.
        if facts.canInterrupt { facts.cap = try await self.cap(type, user: user, now: facts.releaseAt ?? now) }
        return facts
    }

    /// Returns the cap that one more notification would exceed.
    private func cap(_ type: NotificationType, user: String, now: Timestamp) async throws -> CapScope? {
        let caps = self.catalog.caps(ofType: type.name)
        let reached = try await self.live.usageCaps.reached(
            caps.map { UsageCaps.Cap(name: $0.name, limit: $0.limit) }, user: user, now: now)
        return reached.map { caps[$0].scope }
    }

    private func presence(of user: String, _ supposed: SupposedPresence, now: Timestamp) async throws -> Presence {
        func connection(_ state: ConnectionPresence.State) -> Presence {
            .online([
                ConnectionPresence(
                    connection: "", node: "", dialect: .native, state: state,
                    since: now - ConnectionPresence.idleAfter)
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
