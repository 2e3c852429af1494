// Carillon · TemplateSet.swift
// SPDX-License-Identifier: Apache-2.0

/// A template in all its locales.
package struct TemplateSet: Sendable {
    /// The owner, for faults: `type payment_received` or `template welcome`.
    let owner: String
    /// Templates by locale key.
    package private(set) var locales: [String: MessageTemplate] = [:]

    /// Adds a locale.
    ///
    /// - Returns: false if it exists.
    mutating func add(_ template: MessageTemplate, for locale: LocaleTag) -> Bool {
        guard self.locales[locale.key] == nil else { return false }
        self.locales[locale.key] = template
        return true
    }

    /// Returns the best locale for a user: theirs or a parent, then the default or a parent, then
    /// the first.
    func locale(for locale: String?, default fallback: LocaleTag) -> String {
        if self.locales.count == 1, let only = self.locales.first { return only.key }
        if let locale, self.locales[locale] != nil { return locale }
        for wanted in [locale.flatMap { LocaleTag(ofUser: $0) }, fallback] {
            for tag in wanted?.chain ?? [] where self.locales[tag.key] != nil { return tag.key }
        }
        return self.locales.keys.min() ?? fallback.key
    }
}

/// A language tag such as `de`, `pt-BR` or `zh-Hant-TW` (BCP 47), compared without regard to case.
package struct LocaleTag: Sendable, Hashable {
    /// The default without any other setting.
    static let english = LocaleTag(key: "en")

    /// The most bytes of a tag with its extensions.
    ///
    /// Those of a phone with regional preferences take about 50.
    package static let longest = 128

    /// Lower case, with hyphens.
    package let key: String

    /// The former codes of Hebrew, Indonesian and Yiddish, which Android still uses, with today's.
    private static let renamed = ["iw": "he", "in": "id", "ji": "yi"]

    /// Parses a tag; `_` counts as `-`, as in POSIX names, and a former language code as today's.
    ///
    /// - Returns: nil if malformed.
    init?(_ text: String) {
        guard text.utf8.count <= Self.longest else { return nil }
        var key = text.lowercased().replacing("_", with: "-")
        let parts = key.split(separator: "-", omittingEmptySubsequences: false)
        let isTag = parts.allSatisfy { part in
            (1...8).contains(part.utf8.count) && part.utf8.allSatisfy { Self.isLetter($0) || Self.isDigit($0) }
        }
        guard isTag, let language = parts.first, language.utf8.count > 1, language.utf8.allSatisfy(Self.isLetter)
        else { return nil }
        if let current = Self.renamed[String(language)] { key = current + key.dropFirst(language.count) }
        self.key = key
    }

    /// Parses the tag in a locale as phones report it, such as `th_TH@calendar=gregorian`.
    init?(ofUser text: String) {
        self.init(String(Self.tag(in: text)))
    }

    private init(key: String) {
        self.key = key
    }

    /// Returns the text up to the first `@` or `#`, without the separators before that.
    ///
    /// Phones append other settings there: `th_TH@calendar=gregorian`, `zh_CN_#Hans`.
    package static func tag(in text: String) -> Substring {
        guard let end = text.utf8.firstIndex(where: { $0 == UInt8(ascii: "@") || $0 == UInt8(ascii: "#") }) else {
            return text[...]
        }
        var tag = text[..<end]
        while let last = tag.utf8.last, last == UInt8(ascii: "-") || last == UInt8(ascii: "_") {
            tag = tag[..<tag.utf8.index(before: tag.endIndex)]
        }
        return tag
    }

    /// The tag and its parents, the nearest first: zh-Hant-TW, zh-Hant, zh.
    var chain: [LocaleTag] {
        var chain = [self]
        var parts = self.key.split(separator: "-")
        while parts.count > 1 {
            parts.removeLast()
            // A single letter starts an extension and cannot end a tag (RFC 4647 section 3.4).
            while parts.count > 1, parts.last?.utf8.count == 1 { parts.removeLast() }
            chain.append(LocaleTag(key: parts.joined(separator: "-")))
        }
        return chain
    }

    private static func isLetter(_ byte: UInt8) -> Bool { (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte) }

    private static func isDigit(_ byte: UInt8) -> Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }
}
