// Carillon · CatalogJSON.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A catalog as JSON, for admins.
enum CatalogJSON {
    /// Writes the members of an object.
    static func write(_ register: CatalogRegister, to writer: inout JSONWriter) {
        let entry = register.entry
        writer.member("digest", entry.catalog.digest)
        writer.member("loaded_at", entry.loadedAt.rfc3339)
        writer.member("default_locale", entry.catalog.defaultLocale.key)
        writer.key("user_cap")
        Self.write(entry.catalog.userCap, to: &writer)
        writer.key("types")
        writer.beginArray()
        for type in entry.catalog.all { Self.write(type, entry.catalog, to: &writer) }
        writer.endArray()
        writer.key("refused")
        if let refusal = register.refusal {
            writer.beginObject()
            writer.member("at", refusal.at.rfc3339)
            writer.key("faults")
            writer.beginArray()
            for fault in refusal.faults.faults { writer.string(fault.description) }
            writer.endArray()
            writer.endObject()
        } else {
            writer.null()
        }
    }

    private static func write(_ type: NotificationType, _ catalog: Catalog, to writer: inout JSONWriter) {
        writer.beginObject()
        let texts: [(StaticString, String?)] = [
            ("name", type.name), ("severity", type.severity.rawValue), ("delivery", type.delivery.rawValue),
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
            ("retract_on_read", type.isRetractedOnRead),
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
        writer.key("code")
        if let code = type.code { writer.integer(code) } else { writer.null() }
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
        writer.key(name)
        writer.beginArray()
        for text in texts { writer.string(text) }
        writer.endArray()
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
