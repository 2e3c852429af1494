// Carillon · LocaleTag.swift
// SPDX-License-Identifier: Apache-2.0

/// A language tag such as `de`, `pt-BR` or `zh-Hant-TW` (BCP 47), compared without regard to case.
package struct LocaleTag: Sendable, Hashable {
    /// What holds where nothing else is said.
    package static let english = LocaleTag(key: "en")

    /// Lower case, with hyphens.
    package let key: String

    /// Reads a tag; `_` counts as `-`, as in POSIX names.
    ///
    /// - Returns: nil if it has no such form.
    package init?(_ text: String) {
        guard text.utf8.count <= 35 else { return nil }
        let key = text.lowercased().replacing("_", with: "-")
        let parts = key.split(separator: "-", omittingEmptySubsequences: false)
        let isTag = parts.allSatisfy { part in
            (1...8).contains(part.utf8.count) && part.utf8.allSatisfy { Self.isLetter($0) || Self.isDigit($0) }
        }
        guard isTag, let language = parts.first, language.utf8.count > 1, language.utf8.allSatisfy(Self.isLetter)
        else { return nil }
        self.key = key
    }

    private init(key: String) {
        self.key = key
    }

    /// The tag and what it is a case of, the nearest first: zh-Hant-TW, zh-Hant, zh.
    package var chain: [LocaleTag] {
        var chain = [self]
        var parts = self.key.split(separator: "-")
        while parts.count > 1 {
            parts.removeLast()
            // A single letter opens an extension and means nothing by itself (RFC 4647, section 3.4).
            while parts.count > 1, parts.last?.utf8.count == 1 { parts.removeLast() }
            chain.append(LocaleTag(key: parts.joined(separator: "-")))
        }
        return chain
    }

    private static func isLetter(_ byte: UInt8) -> Bool { (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte) }

    private static func isDigit(_ byte: UInt8) -> Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }
}
