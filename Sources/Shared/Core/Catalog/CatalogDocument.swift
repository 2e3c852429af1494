// Carillon · CatalogDocument.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto
import Yams

/// Parses the texts of a catalog's YAML files.
package enum CatalogParser {
    /// - Throws: ``CatalogFaults`` with every fault: file, line, key and the rule.
    package static func parse(_ texts: [(file: String, text: String)]) throws(CatalogFaults) -> Catalog {
        let log = CatalogFaultLog()
        var hash = SHA256()
        var documents: [CatalogDocument] = []
        for (file, text) in texts {
            hash.update(data: Array("\(text.utf8.count):".utf8))
            hash.update(data: Array(text.utf8))
            documents.append(CatalogDocument(text, file: file, log: log))
        }
        let catalog = Catalog(documents, digest: hash.finalize().prefix(8).hex, log: log)
        try log.finish()
        return catalog
    }
}

/// The contents of one catalog file.
struct CatalogDocument: Sendable {
    static let keys = [
        "defaults", "types", "categories", "topics", "templates", "actions", "caps", "default_locale",
    ]

    var types: [Located<TypeEntry>] = []
    /// How users see the types, by name.
    var presentations: [String: Presentation] = [:]
    var categories: [Located<(String, Presentation)>] = []
    var topics: [Located<TopicRule>] = []
    var templates: [Located<(String, TemplateSet)>] = []
    var actions: [Located<ActionSet>] = []
    var userCap: Located<FrequencyCap>?
    var categoryCaps: [Located<(String, FrequencyCap)>] = []
    var defaultLocale: Located<LocaleTag>?
}

extension CatalogDocument {
    /// Parses a file and reports every fault.
    init(_ text: String, file: String, log: CatalogFaultLog) {
        let reader = NodeReader(file: file, log: log)
        let root: Node?
        do {
            root = try Yams.compose(yaml: text)
        } catch {
            reader.syntaxFault(error)
            return
        }
        guard let root, let mapping = root.mapping else {
            log.add("\(file): expected one or more of \(Self.keys.joined(separator: ", "))")
            return
        }
        for (key, node) in mapping {
            switch key.string {
            case "defaults": if mapping["types"] == nil { reader.fault(key, "defaults need types in the same file") }
            case "types": self.readTypes(node, defaults: mapping["defaults"], reader)
            case "categories": self.readCategories(node, reader)
            case "topics": TopicReader(reader).read(node, into: &self)
            case "templates": self.readTemplates(node, reader)
            case "actions": self.readActions(node, reader)
            case "caps": CapsReader(reader).read(node, into: &self)
            case "default_locale":
                guard let locale = node.plainText.flatMap({ LocaleTag($0) }) else {
                    reader.fault(node, "default_locale must be a locale such as en, pt-BR or zh-Hant")
                    continue
                }
                self.defaultLocale = Located(locale, at: reader.location(of: key))
            default:
                reader.fault(key, "unknown key \(key.string ?? "?"), expected \(Self.keys.joined(separator: ", "))")
            }
        }
    }

    /// Reads the types with the file's defaults, and reports faults in the defaults once.
    private mutating func readTypes(_ node: Node, defaults: Node?, _ reader: NodeReader) {
        let defaults = defaults.flatMap { TypeReader.check(defaults: $0, reader) ? $0 : nil }
        for entry in reader.entries(node, "`types:` with an entry for each type") {
            let type = TypeReader(reader, name: entry.key, entry: entry.value, defaults: defaults)?.read()
            guard let type else { continue }
            self.types.append(Located(type.entry, at: reader.location(of: entry.key)))
            self.presentations[type.entry.type.name] = type.presentation
        }
    }

    private mutating func readCategories(_ node: Node, _ reader: NodeReader) {
        for entry in reader.entries(node, "`categories:` with an entry for each category") {
            guard let name = reader.name(entry.key, "a category") else { continue }
            let owner = reader.of("category \(name)")
            var presentation = Presentation()
            for setting in owner.entries(entry.value, "settings") {
                let known = ["title", "description", "icon"]
                let isKnown =
                    known.contains(setting.name)
                    && PresentationReader(owner).read(setting.name, setting.value, into: &presentation)
                if !isKnown { owner.unknown(setting.key, among: known) }
            }
            self.categories.append(Located((name, presentation), at: reader.location(of: entry.key)))
        }
    }

    private mutating func readTemplates(_ node: Node, _ reader: NodeReader) {
        for entry in reader.entries(node, "`templates:` with an entry for each template") {
            guard reader.name(entry.key, "a template's name") != nil else { continue }
            let owner = reader.of("template \(entry.name)")
            let template = TemplateReader(owner).locales(entry.value, "template")
            self.templates.append(Located((entry.name, template), at: reader.location(of: entry.key)))
        }
    }

    private mutating func readActions(_ node: Node, _ reader: NodeReader) {
        for entry in reader.entries(node, "`actions:` with an entry for each set") {
            guard let actions = ActionReader(reader, name: entry.key, entry: entry.value) else { continue }
            self.actions.append(Located(actions.read(), at: reader.location(of: entry.key)))
        }
    }
}

/// Reads the caps across types: `caps: {user: …, categories: {news: …}}`.
struct CapsReader {
    private let reader: NodeReader

    init(_ reader: NodeReader) {
        self.reader = reader.of("caps")
    }

    func read(_ node: Node, into document: inout CatalogDocument) {
        for entry in self.reader.entries(node, "caps as {user: …, categories: …}") {
            switch entry.name {
            case "user":
                if let cap = self.reader.cap(entry.value, "user") {
                    document.userCap = Located(cap, at: self.reader.location(of: entry.key))
                }
            case "categories":
                for category in self.reader.entries(entry.value, "categories with an entry for each category") {
                    guard let name = self.reader.name(category.key, "a category"),
                        let cap = self.reader.cap(category.value, "categories.\(category.name)")
                    else { continue }
                    document.categoryCaps.append(Located((name, cap), at: self.reader.location(of: category.key)))
                }
            default: self.reader.unknown(entry.key, among: ["user", "categories"])
            }
        }
    }
}
