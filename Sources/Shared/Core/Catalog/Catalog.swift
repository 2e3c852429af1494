// Carillon · Catalog.swift
// SPDX-License-Identifier: Apache-2.0

/// All that is laid down about notifications: types that jobs may name, texts, buttons, caps and topics.
package struct Catalog: Sendable {
    private let content: CatalogContent

    init(_ content: CatalogContent) {
        self.content = content
    }

    /// A catalog of types and topics alone.
    ///
    /// - Throws: ``CatalogFaults`` if a name or an integer code occurs twice.
    package init(_ types: [NotificationType], topics: [TopicRule] = []) throws(CatalogFaults) {
        var document = CatalogDocument()
        document.types = types.map { Placed(TypeEntry(type: $0)) }
        document.topics = topics.map { Placed($0) }
        let log = CatalogFaultLog()
        self.content = CatalogContent([document], digest: "", log: log)
        try log.finish()
    }

    package subscript(_ name: String) -> NotificationType? { self.content.types[name]?.type }

    /// All types, by name.
    package var all: [NotificationType] { self.content.sorted }

    /// The categories of types that have one.
    package var categories: [(type: String, category: String)] { self.content.categories }

    /// Whether users may subscribe to a topic themselves.
    package func isOpen(topic: String) -> Bool { self.content.topics[topic]?.isOpen ?? false }

    /// How many notifications of all types a user gets with an interruption; nil for any number.
    package var userCap: FrequencyCap? { self.content.userCap }

    /// How many of a category's types a user gets with an interruption; nil for any number.
    package func cap(category: String) -> FrequencyCap? { self.content.categoryCaps[category] }

    /// The locale of those whose own is not known, or has no text.
    package var defaultLocale: LocaleTag { self.content.defaultLocale }

    /// The texts of a name that types share.
    package func template(named name: String) -> TemplateSet? { self.content.templates[name] }

    /// A type's own texts.
    package func templates(of type: String) -> TemplateSet? { self.content.types[type]?.templates }

    /// The texts of the summary that a type's digest makes.
    package func summary(of type: String) -> TemplateSet? { self.content.types[type]?.summary }

    /// The rules that pick a type's buttons.
    package func actions(of type: String) -> ActionSet? {
        self.content.types[type]?.actions.flatMap { self.content.actions[$0.value] }
    }

    /// The category for which an app has registered buttons: the job's own, or that of the rule for
    /// the state.
    ///
    /// The type's category stands for buttons only where a rule applies that names none.
    package func buttonCategory(of notification: Notification) -> String? {
        guard let type = self[notification.type], notification.category == type.category else {
            return notification.category
        }
        guard let rule = self.actions(of: type.name)?.rule(for: notification.extras.state) else { return nil }
        return rule.category ?? type.category
    }

    /// The files' contents as one hash, in hexadecimal digits; the same for two processes that have the same catalog.
    package var digest: String { self.content.digest }
}
