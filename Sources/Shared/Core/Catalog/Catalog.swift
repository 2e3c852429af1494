// Carillon · Catalog.swift
// SPDX-License-Identifier: Apache-2.0

/// The operator's rules for notifications: types, texts, buttons, caps and topics.
///
/// A class, so that passing a catalog on costs one retain.
package final class Catalog: Sendable {
    private static let mostTypes = 10_000

    /// Keyed by exact name, because tokens and the database compare types by their bytes.
    private let types: [ExactText: TypeEntry]
    /// All types, sorted by name.
    package let all: [NotificationType]
    /// The categories of the types that have one.
    package let categories: [(type: String, category: String)]
    /// How users see the types; kept apart from ``types``, because every job looks up its type.
    private let presentations: [String: Presentation]
    private let categoryPresentations: [String: Presentation]
    private let topics: TopicRules
    private let templates: [String: TemplateSet]
    private let actions: [String: ActionSet]
    /// The limit on interruptions per user, across all types; nil for no limit.
    package let userCap: FrequencyCap?
    /// The limits by category, which may include categories that no type has.
    let categoryCaps: [String: FrequencyCap]
    /// The locale of users whose own is unknown or has no text.
    package let defaultLocale: LocaleTag
    /// A hash of the files in hexadecimal; equal in processes that loaded the same catalog.
    package let digest: String

    /// Merges documents and reports collisions.
    init(_ documents: [CatalogDocument], digest: String, log: CatalogFaultLog) {
        self.digest = digest
        let types = documents.flatMap(\.types)
        if types.count > Self.mostTypes { log.add("the catalog has more than \(Self.mostTypes) types") }
        let named = Self.byKey(types, log, { $0.type.name }) { "type \($0) is defined twice" }
        self.types = Dictionary(uniqueKeysWithValues: named.map { (ExactText($0.key), $0.value) })
        let coded = types.filter { $0.value.type.code != nil }
        _ = Self.byKey(coded, log, { $0.type.code ?? 0 }) { "code \($0) belongs to two types" }
        self.all = self.types.values.map(\.type).sorted { $0.name < $1.name }
        self.categories = self.all.compactMap { type in type.category.map { (type.name, $0) } }
        self.presentations = documents.reduce(into: [:]) { $0.merge($1.presentations) { first, _ in first } }
        let known = Self.byKey(documents.flatMap(\.categories), log, { $0.0 }) {
            "category \($0) is defined twice"
        }
        self.categoryPresentations = known.mapValues(\.1)
        let topics = documents.flatMap(\.topics)
        _ = Self.byKey(topics, log, { $0.pattern }) { "topic \($0) is defined twice" }
        self.topics = TopicRules(topics.map(\.value))
        let templates = Self.byKey(documents.flatMap(\.templates), log, { $0.0 }) { "template \($0) is defined twice" }
        self.templates = templates.mapValues(\.1)
        let actions = Self.byKey(documents.flatMap(\.actions), log, { $0.name }) { "actions \($0) are defined twice" }
        self.actions = actions
        for type in types {
            guard let named = type.value.actions, actions[named.value] == nil else { continue }
            log.add("\(named.location): type \(type.value.type.name): actions \(named.value) are not in the catalog")
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

    package subscript(_ name: String) -> NotificationType? { self.types[ExactText(name)]?.type }

    /// How users see a type.
    package func presentation(ofType name: String) -> Presentation {
        self.presentations[name] ?? Presentation()
    }

    /// How users see a category.
    package func presentation(ofCategory name: String) -> Presentation {
        self.categoryPresentations[name] ?? Presentation()
    }

    /// Whether users may subscribe to a topic themselves.
    package func isOpen(topic: String) -> Bool { self.topics[topic]?.isOpen ?? false }

    /// The limit on interruptions per user within a category; nil for no limit.
    package func cap(category: String) -> FrequencyCap? { self.categoryCaps[category] }

    /// The shared template of this name.
    func template(named name: String) -> TemplateSet? { self.templates[name] }

    /// A type's own templates.
    package func templates(of type: String) -> TemplateSet? { self.types[ExactText(type)]?.templates }

    /// The templates of a type's digest summary.
    package func summary(of type: String) -> TemplateSet? { self.types[ExactText(type)]?.summary }

    /// The rules that select a type's buttons.
    package func actions(of type: String) -> ActionSet? {
        self.types[ExactText(type)]?.actions.flatMap { self.actions[$0.value] }
    }

    /// Returns the category that selects the app's buttons: the job's own, or that of the state's
    /// rule.
    ///
    /// The type's category applies only if the matching rule names none. An empty `actions` array
    /// in the notification's data turns the rules off.
    package func buttonCategory(of notification: Notification) -> String? {
        guard let type = self[notification.type], notification.category == type.category else {
            return notification.category
        }
        guard let rule = self.actions(of: type.name)?.rule(for: notification.extras.state),
            let category = rule.category ?? type.category
        else { return nil }
        // Validated on arrival, but perhaps under older limits.
        let data = notification.data.flatMap { try? JSONParser.parse(stored: $0) }
        let buttons = data?.object?.first { ExactText($0.key) == ExactText("actions") }?.value
        return buttons?.array?.isEmpty == true ? nil : category
    }

    /// Groups values by key; for a duplicate, the first wins and the fault names both.
    private static func byKey<Value, Key: Hashable>(
        _ values: [Located<Value>],
        _ log: CatalogFaultLog,
        _ key: (Value) -> Key,
        _ fault: (Key) -> String
    ) -> [Key: Value] {
        var found: [Key: Located<Value>] = [:]
        for value in values {
            let key = key(value.value)
            guard let first = found[key] else {
                found[key] = value
                continue
            }
            log.add("\(first.location) and \(value.location): \(fault(key))")
        }
        return found.mapValues(\.value)
    }
}

/// A cap that applies to a type.
package struct AppliedCap: Sendable {
    package let scope: CapScope
    /// The counter's name, such as `type:news`.
    package let name: String
    package let limit: FrequencyCap
}

extension Catalog {
    /// The caps that apply to a type, the narrowest first.
    package func caps(ofType name: String) -> [AppliedCap] {
        var caps: [AppliedCap] = []
        let type = self[name]
        if let limit = type?.cap { caps.append(AppliedCap(scope: .type, name: "type:\(name)", limit: limit)) }
        if let category = type?.category, let limit = self.cap(category: category) {
            caps.append(AppliedCap(scope: .category, name: "category:\(category)", limit: limit))
        }
        if let limit = self.userCap { caps.append(AppliedCap(scope: .user, name: "user", limit: limit)) }
        return caps
    }

    /// The names of all caps of all types.
    package var capNames: [String] { Set(self.all.flatMap { self.caps(ofType: $0.name) }.map(\.name)).sorted() }
}

extension Catalog {
    /// Decodes the fields of one entry and checks them against the catalog.
    ///
    /// - Parameter source: the JSON object that the fields come from; if nil, the types of its
    ///   members are not checked.
    /// - Throws: `JobFaults` with every fault.
    package func job(
        _ entry: [(name: String, value: ArraySlice<UInt8>)],
        from source: JSONValue? = nil
    ) throws(JobFaults) -> Job {
        try JobDecoder.decode(entry, from: source, isKnown: { self[$0] != nil }, check: self.faults)
    }

    /// Decodes the fields of a job as ``job(_:from:)`` does, and checks that its texts can be
    /// rendered in every locale.
    ///
    /// - Throws: `JobFaults` with every fault.
    package func checkedJob(
        _ fields: [(name: String, value: [UInt8])],
        from source: JSONValue? = nil
    ) throws(JobFaults) -> Job {
        let job = try self.job(fields.map { ($0.name, $0.value[...]) }, from: source)
        guard case .notification(let content) = job.payload else { return job }
        let faults = self.variableFaults(content)
        guard faults.isEmpty else { throw JobFaults(faults) }
        return job
    }

    /// Returns the lane that a job asks for, or else its type's; normal if the catalog lacks the
    /// type.
    package func lane(of content: JobContent) -> Lane { content.lane ?? self[content.type]?.lane ?? .normal }

    /// Returns the renderer of a job's texts; nil if the job has its own texts.
    package func renderer(_ content: JobContent) -> MessageRenderer? {
        guard let templates = self.texts(of: content) else { return nil }
        let variables = TemplateVariables(content.variables ?? [])
        return MessageRenderer(templates, default: self.defaultLocale, variables: variables)
    }

    /// Returns the faults of a job's variables in any locale: missing or unsuitable ones.
    package func variableFaults(_ content: JobContent) -> [JobFault] {
        self.renderer(content)?.faults() ?? []
    }

    private func texts(of content: JobContent) -> TemplateSet? {
        if let name = content.template { return self.template(named: name) }
        return content.variables == nil ? nil : self.templates(of: content.type)
    }

    /// Returns the faults of `template` and `vars`: combined with texts, or not in the catalog.
    private func faults(_ content: JobContent) -> [JobFault] {
        let field = content.template == nil ? "vars" : "template"
        guard content.template != nil || content.variables != nil, self[content.type] != nil else { return [] }
        if !content.title.isEmpty || !content.body.isEmpty {
            return [JobFault(field, "cannot be combined with title or body")]
        }
        guard self.texts(of: content) == nil else { return [] }
        return [JobFault(field, field == "vars" ? JobFault.lacksTemplate : JobFault.notInCatalog)]
    }
}
