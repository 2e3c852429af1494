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
        answers: [.ok("The catalog.", .catalog)])

    private func show(_ request: Request, _ context: APIContext) async throws -> Response {
        // The catalog itself needs no database: if that does not answer, the counts are null.
        let summary = try? await self.statistics.summary()
        return Response.object(capacity: 16_384) { CatalogJSON.write(self.base.catalogs, summary, to: &$0) }
    }

    private static let reload = Operation(
        "reloadCatalog",
        "Reloads the catalog here and on all other gateways and dispatchers.",
        scope: .admin,
        answers: [
            .ok(
                "It is active.",
                .object([
                    "outcome": .choice("replaced", "unchanged"),
                    "digest": .string("A hash of the files."),
                    "loaded_at": .time,
                    "types": .integer,
                    "told": .integer("The number of processes that received the announcement."),
                ])),
            422,
        ])

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
        return Response.object { writer in
            writer.member("outcome", outcome.rawValue)
            writer.member("digest", entry.catalog.digest)
            writer.member("loaded_at", entry.loadedAt.rfc3339)
            writer.member("types", entry.catalog.all.count)
            writer.member("told", told)
        }
    }
}

/// The catalog as JSON.
enum CatalogJSON {
    /// Writes the members of the object.
    ///
    /// - Parameter summary: the counts by type; nil if unknown.
    static func write(
        _ register: CatalogRegister,
        _ summary: StatisticsStore.Summary?,
        to writer: inout JSONWriter
    ) {
        let entry = register.entry
        // Counts of less than 24 hours would be too low.
        let types = summary.flatMap { $0.typesStart == nil ? $0.types : nil }
        // At the limit, a type without a count may still have been sent.
        let hasAll = (types?.count ?? 0) < StatisticsStore.mostTypes
        let sent = types.map { types in Dictionary(types.map { ($0.type, $0.reach.stored) }) { first, _ in first } }
        writer.member("digest", entry.catalog.digest)
        writer.member("loaded_at", entry.loadedAt.rfc3339)
        writer.member("default_locale", entry.catalog.defaultLocale.key)
        writer.key("user_cap")
        Self.write(entry.catalog.userCap, to: &writer)
        writer.array("types", entry.catalog.all) { writer, type in
            Self.write(type, entry.catalog, sent: sent.flatMap { $0[type.name] ?? (hasAll ? 0 : nil) }, to: &writer)
        }
        Self.strings("advice", CatalogAdvice.lines(for: entry.catalog), &writer)
        writer.key("refused")
        if let refusal = register.refusal {
            writer.beginObject()
            writer.member("at", refusal.at.rfc3339)
            writer.array("faults", refusal.faults.faults) { $0.string($1.description) }
            writer.endObject()
        } else {
            writer.null()
        }
    }

    private static func write(
        _ type: NotificationType,
        _ catalog: Catalog,
        sent: Int64?,
        to writer: inout JSONWriter
    ) {
        writer.beginObject()
        writer.member("sent", sent)
        let title = catalog.presentation(ofType: type.name).title.text(for: [], default: catalog.defaultLocale)
        let texts: [(StaticString, String?)] = [
            ("name", type.name), ("title", title), ("severity", type.severity.rawValue),
            ("delivery", type.delivery.rawValue),
            ("lane", type.lane.rawValue), ("category", type.category), ("sound", type.sound),
            ("quiet_hours", type.quietHours.rawValue), ("push_priority", type.pushPriority?.rawValue),
            ("actions", catalog.actions(of: type.name)?.name),
        ]
        for (name, text) in texts {
            writer.key(name)
            writer.string(text)
        }
        let flags: [(StaticString, Bool)] = [
            ("default", type.isOnByDefault), ("required", type.isRequired), ("enabled", type.isEnabled),
            ("retract_on_read", type.isRetractedOnRead), ("push_when_online", type.isPushedWhenOnline),
        ]
        for (name, flag) in flags {
            writer.key(name)
            writer.bool(flag)
        }
        writer.key("badge")
        switch type.badge {
        case .unseen: writer.bool(true)
        case .absent: writer.bool(false)
        case .number(let number): writer.integer(number)
        }
        writer.member("code", type.code)
        let seconds: [(StaticString, Duration?)] = [
            ("time_to_live", type.timeToLive), ("attention_delay", type.attentionDelay),
            ("email_after", type.emailDelay),
        ]
        for (name, duration) in seconds {
            writer.key(name)
            Self.write(duration, to: &writer)
        }
        let channels = DeliveryChannel.allCases.filter { type.channels.contains(Channels($0)) }
        Self.strings("channels", channels.map(\.rawValue), &writer)
        Self.strings("locales", catalog.templates(of: type.name)?.locales.keys.sorted() ?? [], &writer)
        writer.key("cap")
        Self.write(type.cap, to: &writer)
        writer.key("category_cap")
        Self.write(type.category.flatMap { catalog.cap(category: $0) }, to: &writer)
        writer.key("digest")
        Self.write(type.digest, to: &writer)
        writer.endObject()
    }

    private static func strings(_ name: StaticString, _ texts: [String], _ writer: inout JSONWriter) {
        writer.array(name, texts) { $0.string($1) }
    }

    private static func write(_ duration: Duration?, to writer: inout JSONWriter) {
        if let duration { writer.integer(duration.components.seconds) } else { writer.null() }
    }

    private static func write(_ cap: FrequencyCap?, to writer: inout JSONWriter) {
        guard let cap else { return writer.null() }
        writer.beginObject()
        writer.member("count", cap.count)
        writer.key("per")
        Self.write(cap.window, to: &writer)
        writer.endObject()
    }

    private static func write(_ digest: DigestRule?, to writer: inout JSONWriter) {
        guard let digest else { return writer.null() }
        writer.beginObject()
        writer.key("window")
        Self.write(digest.window, to: &writer)
        writer.member("sliding", digest.isSliding)
        writer.key("maximum")
        Self.write(digest.maximum, to: &writer)
        writer.member("singles", digest.singles)
        writer.endObject()
    }
}

extension Schema {
    static let catalogType = Schema(
        "CatalogType",
        [
            "name": .text(JobLimits.name),
            "title": .string.orNull("In the default locale."),
            "sent": .count.orNull("Its notifications of the last 24 hours; null if not all were counted."),
            "severity": .severity,
            "delivery": .delivery,
            "lane": .lane,
            "category": .string.orNull,
            "sound": .string.orNull,
            "quiet_hours": .cases(of: QuietPolicy.self),
            "push_priority": .pushPriority.orNull("null: derived from the lane."),
            "actions": .string.orNull,
            "default": .bool,
            "required": .bool,
            "enabled": .bool,
            "badge": .string.with("type", .array([.string("boolean"), .string("integer")])).with(
                "minimum", .number("0")
            ).with("maximum", .number("99999"))(
                "true: the unread count; false: none; a number: always this number."),
            "retract_on_read": .bool,
            "push_when_online": .bool,
            "code": .integer.orNull,
            "time_to_live": .integer("Seconds."),
            "attention_delay": .integer("Seconds."),
            "email_after": .integer.orNull("Seconds."),
            "channels": .list(of: .channel, max: 3),
            "locales": .list(of: .string, max: 100),
            "cap": .object(["count": .integer, "per": .integer("Seconds.")]).orNull,
            "category_cap": .object(["count": .integer, "per": .integer("Seconds.")]).orNull,
            "digest": .object([
                "window": .integer("Seconds."),
                "sliding": .bool,
                "maximum": .integer("Seconds."),
                "singles": .integer,
            ]).orNull,
        ])

    static let catalog = Schema(
        "Catalog",
        [
            "digest": .string("A hash of the files."),
            "loaded_at": .time,
            "default_locale": .string,
            "user_cap": .object(["count": .integer, "per": .integer("Seconds.")]).orNull,
            "types": .list(of: .catalogType, max: 10_000),
            "advice": .list(of: .string, max: 100_000)("Likely oversights in the files: by type, then by category."),
            "refused": .object(["at": .time, "faults": .list(of: .string, max: 1001)]).orNull(
                "The faults of the last reload, if it was refused."),
        ])
}
