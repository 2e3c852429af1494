// Carillon · CatalogRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Logging
import Operations
import Storage

/// The current catalog, for admins: `/v1/admin/catalog`.
struct CatalogRoutes {
    let base: GatewayBase
    let statistics: StatisticsService

    func add(to routes: Routes) {
        routes.get("admin/catalog", Self.show, self.show)
        routes.post("admin/catalog/reload", Self.reload, self.reload)
    }

    private static let show = Operation(
        "getCatalog",
        "Returns the current catalog.",
        scope: .admin,
        answers: [.ok("The catalog.", CatalogReport.shape.schema)])

    private func show(_ request: Request, _ context: APIContext) async throws -> Response {
        // The catalog itself needs no database: if that does not answer, the counts are null.
        let summary = try? await self.statistics.summary()
        return .json(CatalogReport(self.base.catalogs, summary), as: CatalogReport.shape, capacity: 16_384)
    }

    private static let reload = Operation(
        "reloadCatalog",
        "Reloads the catalog here and on all other gateways and dispatchers.",
        scope: .admin,
        answers: [.ok("It is active.", reloaded.schema), 422])

    private typealias Reload = (outcome: CatalogRegister.Outcome, entry: CatalogRegister.Entry, told: Int64)

    private static let reloaded: Shape<Reload> = [
        "outcome": .value(.choice("replaced", "unchanged")) { $0.outcome.rawValue },
        "digest": .value(.string, "A hash of the files.") { $0.entry.catalog.digest },
        "loaded_at": .value(.time) { $0.entry.loadedAt },
        "types": .value(.integer) { $0.entry.catalog.all.count },
        "told": .value(.integer, "The number of processes that received the announcement.") { $0.told },
    ]

    /// Reloads the catalog here, and announces it to all processes if it is valid.
    private func reload(_ request: Request, _ context: APIContext) async throws -> Response {
        let outcome: CatalogRegister.Outcome
        do throws(CatalogFaults) {
            outcome = try self.base.catalogs.reload(logger: context.logger)
        } catch {
            let faults = error.faults.map { JobFault("catalog", $0.description) }
            throw Problem(.unprocessableContent, "the catalog is faulty; the previous one stays in use", faults: faults)
        }
        let entry = self.base.catalogs.entry
        let told = try await self.base.live.catalogAnnouncer.announce(digest: entry.catalog.digest)
        return .json((outcome, entry, told), as: Self.reloaded)
    }
}

/// The catalog, and how often its types were sent.
struct CatalogReport {
    private let entry: CatalogRegister.Entry
    private let refusal: CatalogRegister.Refusal?
    /// The counts of the last 24 hours by type; nil if unknown.
    private let sent: [String: Int64]?
    /// The count of a type without one; nil if unknown.
    private let least: Int64?

    /// - Parameter summary: the counts by type; nil if unknown.
    init(_ register: CatalogRegister, _ summary: StatisticsStore.Summary?) {
        self.entry = register.entry
        self.refusal = register.refusal
        // Counts of less than 24 hours would be too low.
        let types = summary.flatMap { $0.typesStart == nil ? $0.types : nil }
        // At the limit, a type without a count may still have been sent.
        let hasAll = (types?.count ?? 0) < StatisticsStore.mostTypes
        self.sent = types.map { types in Dictionary(types.map { ($0.type, $0.reach.stored) }) { first, _ in first } }
        self.least = hasAll ? 0 : nil
    }

    static let shape = Shape<CatalogReport>(
        "Catalog",
        [
            "digest": .value(.string, "A hash of the files.") { $0.entry.catalog.digest },
            "loaded_at": .value(.time) { $0.entry.loadedAt },
            "default_locale": .value(.string) { $0.entry.catalog.defaultLocale.key },
            "user_cap": .object(cap) { $0.entry.catalog.userCap },
            "types": .list(of: type, max: 10_000) { report in
                report.entry.catalog.all.map { type in
                    let sent = report.sent.flatMap { $0[type.name] ?? report.least }
                    return (type: type, catalog: report.entry.catalog, sent: sent)
                }
            },
            "advice": .value(
                .list(of: .string, max: 100_000), "Likely oversights in the files: by type, then by category."
            ) { CatalogAdvice.lines(for: $0.entry.catalog) },
            "refused": .object(
                [
                    "at": .value(.time) { $0.at },
                    "faults": .value(.list(of: .string, max: 1001)) { $0.faults.faults.map(\.description) },
                ], "The faults of the last reload, if it was refused."
            ) { $0.refusal },
        ])

    private static let type = Shape<(type: NotificationType, catalog: Catalog, sent: Int64?)>(
        "CatalogType",
        [
            "name": .value(.text(JobLimits.name)) { $0.type.name },
            "title": .value(.string, "In the default locale.") {
                $0.catalog.presentation(ofType: $0.type.name).title.text(for: [], default: $0.catalog.defaultLocale)
            },
            "sent": .value(.count, "Its notifications of the last 24 hours; null if not all were counted.") {
                $0.sent
            },
            "severity": .value(.severity) { $0.type.severity.rawValue },
            "delivery": .value(.delivery) { $0.type.delivery.rawValue },
            "lane": .value(.lane) { $0.type.lane.rawValue },
            "category": .value(.string) { $0.type.category },
            "sound": .value(.string) { $0.type.sound },
            "quiet_hours": .value(.cases(of: QuietPolicy.self)) { $0.type.quietHours.rawValue },
            "push_priority": .value(.pushPriority, "null: derived from the lane.") { $0.type.pushPriority?.rawValue },
            "actions": .value(.string) { $0.catalog.actions(of: $0.type.name)?.name },
            "default": .value(.bool) { $0.type.isOnByDefault },
            "required": .value(.bool) { $0.type.isRequired },
            "enabled": .value(.bool) { $0.type.isEnabled },
            "badge": .written(
                .string.with("type", .array([.string("boolean"), .string("integer")])).with("minimum", .number("0"))
                    .with("maximum", .number("99999")),
                "true: the unread count; false: none; a number: always this number."
            ) { value, writer in
                switch value.type.badge {
                case .unseen: writer.bool(true)
                case .absent: writer.bool(false)
                case .number(let number): writer.integer(number)
                }
            },
            "retract_on_read": .value(.bool) { $0.type.isRetractedOnRead },
            "push_when_online": .value(.bool) { $0.type.isPushedWhenOnline },
            "code": .value(.integer) { $0.type.code },
            "time_to_live": .value(.integer, "Seconds.") { $0.type.timeToLive.components.seconds },
            "attention_delay": .value(.integer, "Seconds.") { $0.type.attentionDelay.components.seconds },
            "email_after": .value(.integer, "Seconds.") { $0.type.emailDelay?.components.seconds },
            "channels": .value(.list(of: .channel, max: 3)) { value in
                DeliveryChannel.allCases.filter { value.type.channels.contains(Channels($0)) }.map(\.rawValue)
            },
            "locales": .value(.list(of: .string, max: 100)) {
                $0.catalog.templates(of: $0.type.name)?.locales.keys.sorted() ?? []
            },
            "cap": .object(cap) { $0.type.cap },
            "category_cap": .object(cap) { value in value.type.category.flatMap { value.catalog.cap(category: $0) } },
            "digest": .object(digest) { $0.type.digest },
        ])

    private static let cap: Shape<FrequencyCap> = [
        "count": .value(.integer) { $0.count },
        "per": .value(.integer, "Seconds.") { $0.window.components.seconds },
    ]

    private static let digest: Shape<DigestRule> = [
        "window": .value(.integer, "Seconds.") { $0.window.components.seconds },
        "sliding": .value(.bool) { $0.isSliding },
        "maximum": .value(.integer, "Seconds.") { $0.maximum.components.seconds },
        "singles": .value(.integer) { $0.singles },
    ]
}
