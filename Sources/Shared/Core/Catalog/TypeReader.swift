// Carillon · TypeReader.swift
// SPDX-License-Identifier: Apache-2.0

import Yams

/// Reads one entry of `types:`.
struct TypeReader {
    private let reader: NodeReader
    private let name: Node
    private let entry: Node
    private let defaults: Node?

    /// - Parameter defaults: settings that hold unless the entry says otherwise.
    init(_ reader: NodeReader, name: Node, entry: Node, defaults: Node? = nil) {
        self.reader = reader.of("type \(name.string ?? "?")")
        self.name = name
        self.entry = entry
        self.defaults = defaults
    }

    /// The entry as far as it is right; nil if it has no name.
    func read() -> TypeEntry? {
        guard let name = self.reader.name(self.name) else { return nil }
        // Preferences for categories are stored under such names.
        guard PreferenceKey.category(of: name) == nil else {
            self.reader.fault(self.name, "a type's name must not begin with \(PreferenceKey.categoryPrefix)")
            return nil
        }
        var entry = TypeEntry(type: NotificationType(name: name))
        if let defaults { Self.readAll(defaults, self.reader, into: &entry) }
        Self.readAll(self.entry, self.reader, into: &entry)
        self.check(entry.type)
        return entry
    }

    /// Whether settings can be the defaults of types; their faults are noted here, once.
    static func check(defaults: Node, _ reader: NodeReader) -> Bool {
        let known = reader.log.faults.count
        var entry = TypeEntry(type: NotificationType(name: ""))
        Self.readAll(defaults, reader.of("defaults"), into: &entry)
        return reader.log.faults.count == known
    }

    private static func readAll(_ node: Node, _ reader: NodeReader, into entry: inout TypeEntry) {
        for setting in reader.entries(node, "settings") where !self.read(setting, reader, into: &entry) {
            reader.fault(setting.key, "unknown setting \(setting.name)")
        }
    }

    private static func read(
        _ setting: (key: Node, name: String, value: Node),
        _ reader: NodeReader,
        into entry: inout TypeEntry
    ) -> Bool {
        let value = setting.value
        func set<Value>(_ path: WritableKeyPath<NotificationType, Value>, _ value: Value?) {
            if let value { entry.type[keyPath: path] = value }
        }
        switch setting.name {
        case "code": set(\.code, reader.integer(value, "code"))
        case "severity": set(\.severity, reader.choice(value, "severity"))
        case "delivery": set(\.delivery, reader.choice(value, "delivery"))
        case "lane": set(\.lane, reader.choice(value, "lane"))
        case "category": set(\.category, reader.text(value, "category"))
        case "sound": set(\.sound, reader.text(value, "sound"))
        case "channels": set(\.channels, reader.channels(value))
        case "default": set(\.isOnByDefault, reader.bool(value, "default"))
        case "required": set(\.isRequired, reader.bool(value, "required"))
        case "enabled": set(\.isEnabled, reader.bool(value, "enabled"))
        case "time_to_live": set(\.timeToLive, reader.duration(value, "time_to_live"))
        case "quiet_hours": set(\.quietHours, reader.choice(value, "quiet_hours"))
        case "attention_delay": set(\.attentionDelay, reader.duration(value, "attention_delay"))
        case "email_after": set(\.emailDelay, reader.duration(value, "email_after"))
        case "cap": set(\.cap, reader.cap(value, "cap"))
        case "digest": set(\.digest, DigestReader(reader).read(value))
        case "badge": set(\.badge, reader.badge(value, "badge"))
        case "push_priority": set(\.pushPriority, reader.choice(value, "push_priority"))
        case "retract_on_read": set(\.isRetractedOnRead, reader.bool(value, "retract_on_read"))
        case "templates": entry.templates = TemplateReader(reader).locales(value, "templates")
        case "summary": entry.summary = TemplateReader(reader).locales(value, "summary")
        case "actions": entry.actions = reader.text(value, "actions").map { Placed($0, at: reader.place(value)) }
        default: return false
        }
        return true
    }

    /// What does not go together; the fault is at the setting that is too much.
    private func check(_ type: NotificationType) {
        func node(_ setting: String) -> Node { self.entry.mapping?[setting] ?? self.entry }
        if type.quietHours == .ignore, type.severity != .alert {
            self.reader.fault(node("quiet_hours"), "quiet_hours: ignore is for severity alert only")
        }
        if type.emailDelay != nil, !type.channels.contains(.email) {
            self.reader.fault(node("email_after"), "email_after needs email among the channels")
        }
    }
}

/// A type and what the catalog keeps beside it.
struct TypeEntry: Sendable {
    var type: NotificationType
    /// Its own texts.
    var templates: TemplateSet?
    /// The texts of its digest's summary.
    var summary: TemplateSet?
    /// The name of its action rules.
    var actions: Placed<String>?

    init(type: NotificationType) {
        self.type = type
    }
}
