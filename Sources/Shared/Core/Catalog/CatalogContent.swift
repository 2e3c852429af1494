// Carillon · CatalogContent.swift
// SPDX-License-Identifier: Apache-2.0

/// The documents of a catalog as one, made once.
///
/// A class, so that handing a catalog on is one reference counted.
final class CatalogContent: Sendable {
    private static let mostTypes = 10_000

    let types: [String: TypeEntry]
    let sorted: [NotificationType]
    let categories: [(type: String, category: String)]
    let topics: TopicRules
    let templates: [String: TemplateSet]
    let actions: [String: ActionSet]
    let userCap: FrequencyCap?
    let categoryCaps: [String: FrequencyCap]
    let defaultLocale: LocaleTag
    /// The files' contents as one hash, in hexadecimal digits.
    let digest: String

    /// Joins documents and notes what collides.
    init(_ documents: [CatalogDocument], digest: String, log: CatalogFaultLog) {
        self.digest = digest
        let types = documents.flatMap(\.types)
        if types.count > Self.mostTypes { log.add("the catalog has more than \(Self.mostTypes) types") }
        self.types = Self.byKey(types, log, { $0.type.name }) { "type \($0) is defined twice" }
        let coded = types.filter { $0.value.type.code != nil }
        _ = Self.byKey(coded, log, { $0.type.code ?? 0 }) { "code \($0) belongs to two types" }
        self.sorted = self.types.values.map(\.type).sorted { $0.name < $1.name }
        self.categories = self.sorted.compactMap { type in type.category.map { (type.name, $0) } }
        let topics = documents.flatMap(\.topics)
        _ = Self.byKey(topics, log, { $0.pattern }) { "topic \($0) is defined twice" }
        self.topics = TopicRules(topics.map(\.value))
        let templates = Self.byKey(documents.flatMap(\.templates), log, { $0.0 }) { "template \($0) is defined twice" }
        self.templates = templates.mapValues(\.1)
        let actions = Self.byKey(documents.flatMap(\.actions), log, { $0.name }) { "actions \($0) are defined twice" }
        self.actions = actions
        for type in types {
            guard let named = type.value.actions, actions[named.value] == nil else { continue }
            let place = named.place.map { "\($0): " } ?? ""
            log.add("\(place)type \(type.value.type.name): actions \(named.value) are not in the catalog")
        }
        let categories = Self.byKey(documents.flatMap(\.categoryCaps), log, { $0.0 }) {
            "the cap of category \($0) is set twice"
        }
        self.categoryCaps = categories.mapValues(\.1)
        let userCaps = documents.compactMap(\.userCap)
        self.userCap = Self.byKey(userCaps, log, { _ in "user" }) { _ in "the cap of users is set twice" }["user"]
        let locales = documents.compactMap(\.defaultLocale)
        _ = Self.byKey(locales, log, { _ in 0 }) { _ in "default_locale is set twice" }
        self.defaultLocale = locales.first?.value ?? .english
    }

    /// The values by key; of two with the same key the first counts, and both places are named.
    private static func byKey<Value, Key: Hashable>(
        _ values: [Placed<Value>],
        _ log: CatalogFaultLog,
        _ key: (Value) -> Key,
        _ fault: (Key) -> String
    ) -> [Key: Value] {
        var found: [Key: Placed<Value>] = [:]
        for value in values {
            let key = key(value.value)
            guard let first = found[key] else {
                found[key] = value
                continue
            }
            let places = [first.place, value.place].compactMap { $0?.description }
            log.add(places.isEmpty ? fault(key) : "\(places.joined(separator: " and ")): \(fault(key))")
        }
        return found.mapValues(\.value)
    }
}
