// Carillon · ActionSet.swift
// SPDX-License-Identifier: Apache-2.0

import Yams

/// The buttons of a kind of entity, and the rules that select them by its state.
package struct ActionSet: Sendable {
    /// A button of a notification.
    package struct Button: Sendable, Equatable {
        package let id: String
        /// The button's label; if empty, clients show the id.
        package var title = LocalizedText()
        /// Whether it opens the app.
        package var isForeground = false
        package var isDestructive = false
        /// Whether the device must be unlocked first.
        package var needsAuthentication = false
        /// Where the button leads; nil for the notification's own link.
        package var url: String?

        /// Returns the title for a locale.
        package func title(for locale: String?, default fallback: LocaleTag) -> String {
            self.title.text(for: locale.map { [$0] } ?? [], default: fallback) ?? self.id
        }
    }

    /// The buttons for some states.
    package struct Rule: Sendable, Equatable {
        /// The category that the client's app registered; nil for the type's.
        var category: String?
        package var buttons: [Button] = []
    }

    package let name: String
    private var byState: [String: Rule] = [:]
    /// The rule for all other states, and for notifications without a state.
    private var fallback: Rule?

    init(name: String) {
        self.name = name
    }

    /// Returns the rule for a state; nil if none names it and there is no default.
    package func rule(for state: String?) -> Rule? {
        state.flatMap { self.byState[$0] } ?? self.fallback
    }

    /// Sets the rule of a state; nil sets the default.
    ///
    /// - Returns: false if the state already has a rule.
    mutating func set(_ rule: Rule, for state: String?) -> Bool {
        guard let state else {
            defer { self.fallback = rule }
            return self.fallback == nil
        }
        return self.byState.updateValue(rule, forKey: state) == nil
    }
}

/// Reads one entry of `actions:`: buttons, and the rules that select them by an entity's state.
struct ActionReader {
    private static let mostButtons = 10
    private static let buttonSettings = ["title", "foreground", "destructive", "authentication", "url"]

    private let reader: NodeReader
    private let name: String
    private let entry: Node

    /// Reports a fault and returns nil if the name is not valid.
    init?(_ reader: NodeReader, name: Node, entry: Node) {
        guard let text = reader.name(name, "a set's name") else { return nil }
        self.reader = reader.of("actions \(text)")
        self.name = text
        self.entry = entry
    }

    func read() -> ActionSet {
        var buttons: [String: ActionSet.Button] = [:]
        var set = ActionSet(name: self.name)
        let settings = self.reader.entries(self.entry, "buttons and rules")
        for setting in settings where setting.name == "buttons" {
            for entry in self.reader.entries(setting.value, "buttons with an entry for each") {
                guard let id = self.reader.name(entry.key, "a button's id") else { continue }
                buttons[id] = self.button(id, entry.value)
            }
        }
        for setting in settings {
            switch setting.name {
            case "buttons": break
            case "rules":
                guard let rules = setting.value.sequence, !rules.isEmpty else {
                    self.reader.fault(setting.value, "rules must be a list of {states: …, category: …, buttons: …}")
                    continue
                }
                for rule in rules { self.rule(rule, buttons, needsStates: true, into: &set) }
            case "default": self.rule(setting.value, buttons, needsStates: false, into: &set)
            default: self.reader.unknown(setting.key, among: ["buttons", "rules", "default"])
            }
        }
        return set
    }

    private func button(_ id: String, _ node: Node) -> ActionSet.Button {
        var button = ActionSet.Button(id: id)
        for setting in self.reader.entries(node, "button \(id) as {title: {en: …}}") {
            let key = "button \(id).\(setting.name)"
            switch setting.name {
            case "title": button.title = self.reader.localized(setting.value, key, longest: JobLimits.name)
            case "foreground": button.isForeground = self.reader.bool(setting.value, key) ?? false
            case "destructive": button.isDestructive = self.reader.bool(setting.value, key) ?? false
            case "authentication": button.needsAuthentication = self.reader.bool(setting.value, key) ?? false
            case "url": button.url = self.reader.link(setting.value, key)
            default: self.reader.unknown(setting.key, key, among: Self.buttonSettings)
            }
        }
        return button
    }

    private func rule(
        _ node: Node,
        _ buttons: [String: ActionSet.Button],
        needsStates: Bool,
        into set: inout ActionSet
    ) {
        var rule = ActionSet.Rule()
        var states: [String] = []
        for setting in self.reader.entries(node, "a rule as {states: …, category: …, buttons: …}") {
            switch setting.name {
            case "states" where needsStates: states = self.reader.texts(setting.value, "states") ?? []
            case "category": rule.category = self.reader.name(setting.value, "a category")
            case "buttons": rule.buttons = self.pick(setting.value, buttons)
            default:
                let known = (needsStates ? ["states"] : []) + ["category", "buttons"]
                self.reader.unknown(setting.key, "\(setting.name) of a rule", among: known)
            }
        }
        guard let settings = node.mapping else { return }
        if needsStates, settings["states"] == nil { self.reader.fault(node, "a rule needs states") }
        for state in needsStates ? states.map({ Optional($0) }) : [nil] where !set.set(rule, for: state) {
            self.reader.fault(node, "state \(state ?? "") has two rules")
        }
    }

    private func pick(_ node: Node, _ buttons: [String: ActionSet.Button]) -> [ActionSet.Button] {
        guard let elements = node.sequence else {
            self.reader.fault(node, "buttons must be a list of ids")
            return []
        }
        if elements.count > Self.mostButtons {
            self.reader.fault(node, "a rule has more than \(Self.mostButtons) buttons")
        }
        return elements.compactMap { element in
            if let button = element.string.flatMap({ buttons[$0] }) { return button }
            self.reader.fault(element, "button \(element.string ?? "?") is not among the buttons")
            return nil
        }
    }
}
