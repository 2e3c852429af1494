// Carillon · CatalogDocument.swift
// SPDX-License-Identifier: Apache-2.0

import Yams

/// What one file of a catalog says.
struct CatalogDocument: Sendable {
    static let keys = ["defaults", "types", "topics", "templates", "actions", "caps", "default_locale"]

    var types: [Placed<TypeEntry>] = []
    var topics: [Placed<TopicRule>] = []
    var templates: [Placed<(String, TemplateSet)>] = []
    var actions: [Placed<ActionSet>] = []
    var userCap: Placed<FrequencyCap>?
    var categoryCaps: [Placed<(String, FrequencyCap)>] = []
    var defaultLocale: Placed<LocaleTag>?

    init() {}

    /// Reads a file's text and notes every fault.
    init(_ text: String, file: String, log: CatalogFaultLog) {
        let reader = NodeReader(file: file, log: log)
        let root: Node?
        do {
            root = try Yams.compose(yaml: text)
        } catch {
            log.add("\(file): \(error)")
            return
        }
        guard let root, let mapping = root.mapping else {
            log.add("\(file): expected one or more of \(Self.keys.joined(separator: ", "))")
            return
        }
        for (key, node) in mapping {
            switch key.string {
            case "defaults": if mapping["types"] == nil { reader.fault(key, "defaults without types") }
            case "types": self.readTypes(node, defaults: mapping["defaults"], reader)
            case "topics": TopicReader(reader).read(node, into: &self)
            case "templates": self.readTemplates(node, reader)
            case "actions": self.readActions(node, reader)
            case "caps": CapsReader(reader).read(node, into: &self)
            case "default_locale":
                guard let locale = node.string.flatMap({ LocaleTag($0) }) else {
                    reader.fault(node, "default_locale must be a locale such as en, pt-BR or zh-Hant")
                    continue
                }
                self.defaultLocale = Placed(locale, at: reader.place(key))
            default:
                reader.fault(key, "unknown key \(key.string ?? "?"), expected \(Self.keys.joined(separator: ", "))")
            }
        }
    }

    /// The defaults are those of the file; their faults are named once.
    private mutating func readTypes(_ node: Node, defaults: Node?, _ reader: NodeReader) {
        let defaults = defaults.flatMap { TypeReader.check(defaults: $0, reader) ? $0 : nil }
        for entry in reader.entries(node, "`types:` with an entry for each type") {
            let type = TypeReader(reader, name: entry.key, entry: entry.value, defaults: defaults).read()
            guard let type else { continue }
            self.types.append(Placed(type, at: reader.place(entry.key)))
        }
    }

    private mutating func readTemplates(_ node: Node, _ reader: NodeReader) {
        for entry in reader.entries(node, "`templates:` with an entry for each template") {
            guard reader.name(entry.key, "a template's name") != nil else { continue }
            let owner = reader.of("template \(entry.name)")
            let template = TemplateReader(owner).locales(entry.value, "template")
            self.templates.append(Placed((entry.name, template), at: reader.place(entry.key)))
        }
    }

    private mutating func readActions(_ node: Node, _ reader: NodeReader) {
        for entry in reader.entries(node, "`actions:` with an entry for each set") {
            guard let set = ActionReader(reader, name: entry.key, entry: entry.value).read() else { continue }
            self.actions.append(Placed(set, at: reader.place(entry.key)))
        }
    }
}
