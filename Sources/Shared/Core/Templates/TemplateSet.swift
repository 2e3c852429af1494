// Carillon · TemplateSet.swift
// SPDX-License-Identifier: Apache-2.0

/// A template in all its locales.
package struct TemplateSet: Sendable {
    /// What it belongs to, for faults: `type payment_received` or `template welcome`.
    package let owner: String
    /// By the locale's key.
    package private(set) var locales: [String: MessageTemplate] = [:]

    package init(owner: String) {
        self.owner = owner
    }

    /// Adds a locale.
    ///
    /// - Returns: false if it is there already.
    package mutating func add(_ template: MessageTemplate, for locale: LocaleTag) -> Bool {
        guard self.locales[locale.key] == nil else { return false }
        self.locales[locale.key] = template
        return true
    }

    /// The locale whose texts someone gets: theirs or what it is a case of, the default likewise, or else the first there is.
    package func locale(for locale: String?, default fallback: LocaleTag) -> String {
        if self.locales.count == 1, let only = self.locales.first { return only.key }
        if let locale, self.locales[locale] != nil { return locale }
        for wanted in [locale.flatMap { LocaleTag($0) }, fallback] {
            for tag in wanted?.chain ?? [] where self.locales[tag.key] != nil { return tag.key }
        }
        return self.locales.keys.min() ?? fallback.key
    }
}
