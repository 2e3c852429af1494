// Carillon · ActionSet.swift
// SPDX-License-Identifier: Apache-2.0

/// The buttons of a kind of entity, and the rules that pick them by its state.
package struct ActionSet: Sendable {
    /// What a button is and does.
    package struct Button: Sendable, Equatable {
        package let id: String
        /// By the locale's key; the id if there is none.
        package var titles: [String: String] = [:]
        /// Whether it opens the app.
        package var isForeground = false
        package var isDestructive = false
        /// Whether the device must be unlocked first.
        package var needsAuthentication = false

        package init(id: String) {
            self.id = id
        }

        /// The title that someone with that locale gets.
        package func title(for locale: String?, default fallback: LocaleTag) -> String {
            for wanted in [locale.flatMap { LocaleTag($0) }, fallback] {
                for tag in wanted?.chain ?? [] { if let title = self.titles[tag.key] { return title } }
            }
            return self.titles.min { $0.key < $1.key }?.value ?? self.id
        }
    }

    /// What holds for some states.
    package struct Rule: Sendable, Equatable {
        /// The category that the client's app registered; nil for the type's.
        package var category: String?
        package var buttons: [Button] = []
    }

    package let name: String
    private var byState: [String: Rule] = [:]
    /// What holds for any other state, and for none.
    private var fallback: Rule?

    package init(name: String) {
        self.name = name
    }

    /// The rule for a state; nil if none names it and there is no default.
    package func rule(for state: String?) -> Rule? {
        state.flatMap { self.byState[$0] } ?? self.fallback
    }

    /// Sets the rule of a state, or of all others if that is nil.
    ///
    /// - Returns: false if the state has one already.
    mutating func set(_ rule: Rule, for state: String?) -> Bool {
        guard let state else {
            defer { self.fallback = rule }
            return self.fallback == nil
        }
        return self.byState.updateValue(rule, forKey: state) == nil
    }
}
