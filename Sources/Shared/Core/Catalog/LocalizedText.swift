// Carillon · LocalizedText.swift
// SPDX-License-Identifier: Apache-2.0

import Yams

/// A text in several languages, or one for all of them.
package struct LocalizedText: Sendable, Equatable {
    /// The key of a text for all languages.
    private static let everywhere = ""

    /// The texts by locale key.
    private var locales: [String: String] = [:]

    init() {}

    /// A text for all languages.
    init(_ text: String) {
        self.locales = [Self.everywhere: text]
    }

    package var isEmpty: Bool { self.locales.isEmpty }

    /// Whether readers of different languages see different texts.
    package var isLocalized: Bool { self.locales.count > 1 }

    /// Adds a locale.
    ///
    /// - Returns: false if it exists.
    mutating func add(_ text: String, for locale: LocaleTag) -> Bool {
        guard self.locales[locale.key] == nil else { return false }
        self.locales[locale.key] = text
        return true
    }

    /// Returns the text of the first wanted locale that has one, else of the default, else the
    /// first; nil if there is none.
    ///
    /// A locale without a text uses its parent's: `de-AT` falls back to `de`.
    package func text(for wanted: [String], default fallback: LocaleTag) -> String? {
        guard !self.locales.isEmpty else { return nil }
        for tag in wanted.compactMap({ LocaleTag(ofUser: $0) }) + [fallback] {
            for step in tag.chain {
                if let text = self.locales[step.key] { return text }
            }
        }
        return self.locales.min { $0.key < $1.key }?.value
    }
}

extension NodeReader {
    /// Reads a text for all languages, or texts by locale: `{en: …, de: …}`.
    ///
    /// - Parameter longest: the most characters of each.
    func localized(_ node: Node, _ key: String, longest: Int) -> LocalizedText {
        guard node.mapping != nil else {
            return self.text(node, key, longest: longest).map { LocalizedText($0) } ?? LocalizedText()
        }
        var texts = LocalizedText()
        for entry in self.entries(node, "\(key) with an entry for each locale") {
            guard let locale = LocaleTag(entry.name) else {
                let reason = "\(entry.name) is not a locale; use one such as en, pt-BR or zh-Hant"
                self.fault(entry.key, "\(key): \(reason)")
                continue
            }
            guard let text = self.text(entry.value, "\(key).\(entry.name)", longest: longest) else { continue }
            if !texts.add(text, for: locale) { self.fault(entry.key, "\(key).\(entry.name) occurs twice") }
        }
        return texts
    }

    private func text(_ node: Node, _ key: String, longest: Int) -> String? {
        guard let text = self.text(node, key) else { return nil }
        if text.unicodeScalars.count <= longest { return text }
        self.fault(node, "\(key) has more than \(longest) characters")
        return nil
    }
}
