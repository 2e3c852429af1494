// Carillon · TemplateReader.swift
// SPDX-License-Identifier: Apache-2.0

import Yams

/// Reads templates by locale.
struct TemplateReader {
    private static let longestSource = 65_536
    private static let mostLocales = 100
    private static let parts = ["title", "body", "email_subject", "email_text", "email_html"]

    private let reader: NodeReader

    init(_ reader: NodeReader) {
        self.reader = reader
    }

    /// Reads entries such as `en: {title: …, body: …}`.
    func locales(_ node: Node, _ key: String) -> TemplateSet {
        var set = TemplateSet(owner: self.reader.owner)
        let entries = self.reader.entries(node, "\(key) with an entry for each locale")
        if entries.isEmpty, node.mapping != nil { self.reader.fault(node, "\(key) needs a locale") }
        if entries.count > Self.mostLocales {
            self.reader.fault(node, "\(key) has more than \(Self.mostLocales) locales")
        }
        for entry in entries {
            guard let locale = LocaleTag(entry.name) else {
                let reason = "\(entry.name) is not a locale; use one such as en, pt-BR or zh-Hant"
                self.reader.fault(entry.key, "\(key): \(reason)")
                continue
            }
            guard let template = self.template(entry.value, "\(key).\(entry.name)") else { continue }
            if !set.add(template, for: locale) {
                self.reader.fault(entry.key, "\(key).\(entry.name) occurs twice")
            }
        }
        return set
    }

    private func template(_ node: Node, _ key: String) -> MessageTemplate? {
        var template: MessageTemplate?
        var others: [(WritableKeyPath<MessageTemplate, TemplateText?>, TemplateText)] = []
        for entry in self.reader.entries(node, "\(key) as {title: …, body: …}") {
            let form: TemplateText.Form = entry.name == "email_html" ? .html : .text
            var part: WritableKeyPath<MessageTemplate, TemplateText?>?
            switch entry.name {
            case "title": break
            case "body": part = \.body
            case "email_subject": part = \.emailSubject
            case "email_text": part = \.emailText
            case "email_html": part = \.emailHTML
            default:
                self.reader.unknown(entry.key, "\(key).\(entry.name)", among: Self.parts)
                continue
            }
            guard let text = self.text(entry.value, "\(key).\(entry.name)", form) else { continue }
            if let part { others.append((part, text)) } else { template = MessageTemplate(title: text) }
        }
        if let settings = node.mapping, settings["title"] == nil { self.reader.fault(node, "\(key) needs a title") }
        for (part, text) in others { template?[keyPath: part] = text }
        return template
    }

    private func text(_ node: Node, _ key: String, _ form: TemplateText.Form) -> TemplateText? {
        guard let source = self.reader.text(node, key) else { return nil }
        guard source.utf8.count <= Self.longestSource, !source.utf8.contains(0) else {
            self.reader.fault(node, "\(key) is longer than \(Self.longestSource) bytes or holds U+0000")
            return nil
        }
        do throws(TemplateSyntaxFault) {
            return try TemplateText(source, form)
        } catch {
            let location = self.reader.location(of: node)
            // Only a literal block keeps its line breaks; its text begins on the line after `|`.
            let isLiteral = node.scalar?.style == .literal
            let line = isLiteral ? location.line.map { $0 + error.line } : location.line
            self.reader.fault(at: CatalogLocation(file: location.file, line: line), "\(key): \(error.reason)")
            return nil
        }
    }
}
