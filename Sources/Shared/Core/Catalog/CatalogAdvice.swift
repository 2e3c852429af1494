// Carillon · CatalogAdvice.swift
// SPDX-License-Identifier: Apache-2.0

/// Advice on a valid catalog.
package enum CatalogAdvice {
    /// Returns one line per likely oversight: first by type, then by category.
    package static func lines(for catalog: Catalog) -> [String] {
        var lines: [String] = []
        let locales = catalog.all.reduce(into: Set<String>()) { locales, type in
            locales.formUnion(catalog.templates(of: type.name)?.locales.keys.map { $0 } ?? [])
        }
        for type in catalog.all {
            func advise(_ text: String) { lines.append("type \(type.name): \(text)") }
            if let templates = catalog.templates(of: type.name) {
                let missing = locales.subtracting(templates.locales.keys)
                if !missing.isEmpty {
                    advise("has no templates for \(missing.sorted().joined(separator: ", ")), which other types have")
                }
            }
            if catalog.presentation(ofType: type.name).title.isEmpty {
                advise("has no title; users see its name in readable form")
            }
            if type.channels.contains(.email), type.emailDelay == nil, type.channels != [.email], !type.isRequired {
                advise("has e-mail among its channels but no email_after, so users get mail only if they ask for it")
            }
            if let delay = type.emailDelay, delay >= type.timeToLive {
                advise("email_after is not shorter than time_to_live, so it expires before its mail is due")
            }
            if type.delivery == .push, type.channels.contains([.inApp, .push]), type.attentionDelay >= type.timeToLive {
                advise("attention_delay is not shorter than time_to_live, so it expires before its push is due")
            }
        }
        let categories = Set(catalog.categories.map(\.category))
        for category in categories.sorted() where catalog.presentation(ofCategory: category).title.isEmpty {
            lines.append("category \(category): has no title; users see its name in readable form")
        }
        for category in Set(catalog.categoryCaps.keys).subtracting(categories).sorted() {
            lines.append("category \(category): has a cap, but no type has the category")
        }
        return lines
    }
}
