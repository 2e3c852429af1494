// Carillon · TypeReader.swift
// SPDX-License-Identifier: Apache-2.0

import Yams

/// Reads one entry of `types:`.
struct TypeReader {
    /// The settings of types alone; ``PresentationReader`` has the others.
    private static let settings = [
        "code", "severity", "delivery", "lane", "category", "sound", "channels", "default", "required", "enabled",
        "time_to_live", "quiet_hours", "attention_delay", "push_when_online", "email_after", "cap", "digest", "badge",
        "push_priority", "retract_on_read", "templates", "summary", "actions",
    ]

    private let reader: NodeReader
    private let name: String
    private let entry: Node
    private let defaults: Node?

    /// Reports a fault and returns nil if the name is not valid.
    ///
    /// - Parameter defaults: settings that apply unless the entry overrides them.
    init?(_ reader: NodeReader, name: Node, entry: Node, defaults: Node? = nil) {
        guard let text = reader.name(name, "a type's name") else { return nil }
        // Such names are the keys of category preferences.
        guard PreferenceKey.category(of: text) == nil else {
            reader.fault(name, "a type's name must not begin with \(PreferenceKey.categoryPrefix)")
            return nil
        }
        self.reader = reader.of("type \(text)")
        self.name = text
        self.entry = entry
        self.defaults = defaults
    }

    /// Reads the entry's valid settings and its presentation.
    func read() -> (entry: TypeEntry, presentation: Presentation) {
        var entry = TypeEntry(type: NotificationType(name: self.name))
        var presentation = Presentation()
        if let defaults { Self.readAll(defaults, self.reader, into: &entry, &presentation) }
        Self.readAll(self.entry, self.reader, into: &entry, &presentation)
        self.check(entry.type)
        return (entry, presentation)
    }

    /// Whether a file's defaults are valid; reports their faults once, not for each type.
    static func check(defaults: Node, _ reader: NodeReader) -> Bool {
        let known = reader.log.faults.count
        var entry = TypeEntry(type: NotificationType(name: ""))
        var presentation = Presentation()
        Self.readAll(defaults, reader.of("defaults"), into: &entry, &presentation)
        return reader.log.faults.count == known
    }

    private static func readAll(
        _ node: Node,
        _ reader: NodeReader,
        into entry: inout TypeEntry,
        _ presentation: inout Presentation
    ) {
        for setting in reader.entries(node, "settings") {
            let isKnown =
                self.read(setting, reader, into: &entry)
                || PresentationReader(reader).read(setting.name, setting.value, into: &presentation)
            if !isKnown { reader.unknown(setting.key, among: self.settings + PresentationReader.settings) }
        }
    }

    private static func read(
        _ setting: (key: Node, name: String, value: Node),
        _ reader: NodeReader,
        into entry: inout TypeEntry
    ) -> Bool {
        let (name, value) = (setting.name, setting.value)
        func set<Value>(_ path: WritableKeyPath<NotificationType, Value>, _ value: Value?) {
            if let value { entry.type[keyPath: path] = value }
        }
        switch name {
        case "code": set(\.code, reader.integer(value, name))
        case "severity": set(\.severity, reader.choice(value, name))
        case "delivery": set(\.delivery, reader.choice(value, name))
        case "lane": set(\.lane, reader.choice(value, name))
        case "category": set(\.category, reader.text(value, name))
        case "sound": set(\.sound, reader.text(value, name))
        case "channels": set(\.channels, reader.channels(value))
        case "default": set(\.isOnByDefault, reader.bool(value, name))
        case "required": set(\.isRequired, reader.bool(value, name))
        case "enabled": set(\.isEnabled, reader.bool(value, name))
        case "time_to_live": set(\.timeToLive, reader.duration(value, name))
        case "quiet_hours": set(\.quietHours, reader.choice(value, name))
        case "attention_delay": set(\.attentionDelay, reader.duration(value, name))
        case "push_when_online": set(\.isPushedWhenOnline, reader.bool(value, name))
        case "email_after": set(\.emailDelay, reader.duration(value, name))
        case "cap": set(\.cap, reader.cap(value, name))
        case "digest": set(\.digest, DigestReader(reader).read(value))
        case "badge": set(\.badge, reader.badge(value, name))
        case "push_priority": set(\.pushPriority, reader.choice(value, name))
        case "retract_on_read": set(\.isRetractedOnRead, reader.bool(value, name))
        case "templates": entry.templates = TemplateReader(reader).locales(value, name)
        case "summary": entry.summary = TemplateReader(reader).locales(value, name)
        case "actions": entry.actions = reader.text(value, name).map { Located($0, at: reader.location(of: value)) }
        default: return false
        }
        return true
    }

    /// Reports settings that contradict each other, at the one to remove.
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

/// A type and its parts that are not in ``NotificationType``.
struct TypeEntry: Sendable {
    var type: NotificationType
    /// The type's own templates.
    var templates: TemplateSet?
    /// The templates of its digest's summary.
    var summary: TemplateSet?
    /// The name of its action rules.
    var actions: Located<String>?
}

/// Reads a type's digest rule: `{window: 15m, sliding: true, maximum: 1h, singles: 5}`.
struct DigestReader {
    private let reader: NodeReader

    init(_ reader: NodeReader) {
        self.reader = reader
    }

    func read(_ node: Node) -> DigestRule? {
        var window: Duration?
        var maximum: Duration?
        var isSliding = false
        var singles = 0
        for (key, name, value) in self.reader.entries(node, "digest as {window: 15m}") {
            let shown = "digest.\(name)"
            switch name {
            case "window": window = self.reader.duration(value, shown)
            case "maximum": maximum = self.reader.duration(value, shown)
            case "sliding": isSliding = self.reader.bool(value, shown) ?? false
            case "singles": singles = self.reader.integer(value, shown, in: 0...1_000) ?? 0
            default: self.reader.unknown(key, shown, among: ["window", "maximum", "sliding", "singles"])
            }
        }
        guard let settings = node.mapping else { return nil }
        if settings["window"] == nil { self.reader.fault(node, "digest needs a window") }
        guard let window else { return nil }
        if let node = settings["maximum"], !isSliding {
            self.reader.fault(node, "digest.maximum needs sliding: true")
        } else if let node = settings["maximum"], let maximum, maximum < window {
            self.reader.fault(node, "digest.maximum is shorter than the window")
        } else if isSliding, settings["maximum"] == nil {
            self.reader.fault(node, "a sliding digest needs a maximum")
        }
        var rule = DigestRule(window: window, maximum: maximum)
        rule.isSliding = isSliding
        rule.singles = singles
        return rule
    }
}
