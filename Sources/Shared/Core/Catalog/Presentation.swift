// Carillon · Presentation.swift
// SPDX-License-Identifier: Apache-2.0

import Yams

/// How users see a type or a category: its title, description, icon and image.
package struct Presentation: Sendable, Equatable {
    /// The displayed name; if empty, clients derive one from the key.
    package var title = LocalizedText()
    package var description = LocalizedText()
    /// One of ``icons``, an emoji, or the URL of a picture.
    package var icon: String?
    /// The URL of the picture for notifications without one of their own.
    package var image: String?
    /// The member of a notification's `data` that holds the person or thing behind it, as
    /// `{"name": …, "image": …}`.
    package var actor: String?

    /// The icons that Carillon's own pages draw.
    package static let icons: Set<String> = [
        "alert", "bell", "book", "calendar", "cart", "chat", "check", "clock", "coins", "document", "flag", "gift",
        "globe", "heart", "home", "key", "lock", "mail", "megaphone", "news", "people", "person", "phone", "plane",
        "shield", "star", "tag", "task", "tool", "truck",
    ]
}

/// Reads the settings of a ``Presentation``.
struct PresentationReader {
    static let settings = ["title", "description", "icon", "image", "actor"]

    private static let longestTitle = 100
    private static let longestDescription = 500
    private static let longestURL = 2_048

    private let reader: NodeReader

    init(_ reader: NodeReader) {
        self.reader = reader
    }

    /// Reads one setting.
    ///
    /// - Returns: false if the setting does not belong to a presentation.
    func read(_ name: String, _ value: Node, into presentation: inout Presentation) -> Bool {
        switch name {
        case "title": presentation.title = self.reader.localized(value, name, longest: Self.longestTitle)
        case "description":
            presentation.description = self.reader.localized(value, name, longest: Self.longestDescription)
        case "icon": presentation.icon = self.icon(value)
        case "image": presentation.image = self.url(value, name)
        case "actor": presentation.actor = self.reader.name(value, "actor")
        default: return false
        }
        return true
    }

    private func icon(_ node: Node) -> String? {
        guard let text = self.reader.text(node, "icon") else { return nil }
        let isEmoji = text.count == 1 && text.unicodeScalars.contains { $0.properties.isEmoji && !$0.isASCII }
        if Presentation.icons.contains(text) || isEmoji { return text }
        if text.hasPrefix("https://") { return self.url(node, "icon") }
        let known = Presentation.icons.sorted().joined(separator: ", ")
        self.reader.fault(node, "icon must be an emoji, a URL that begins with https://, or one of \(known)")
        return nil
    }

    private func url(_ node: Node, _ key: String) -> String? {
        guard let text = self.reader.text(node, key) else { return nil }
        if text.hasPrefix("https://"), text.utf8.count <= Self.longestURL, !text.contains(where: \.isWhitespace) {
            return text
        }
        self.reader.fault(node, "\(key) must be a URL that begins with https://")
        return nil
    }
}
