// Carillon · CapsReader.swift
// SPDX-License-Identifier: Apache-2.0

import Yams

/// Reads the caps over all types: `caps: {user: …, categories: {news: …}}`.
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
                    document.userCap = Placed(cap, at: self.reader.place(entry.key))
                }
            case "categories":
                for category in self.reader.entries(entry.value, "categories with an entry for each category") {
                    guard let name = self.reader.name(category.key, "a category"),
                        let cap = self.reader.cap(category.value, "categories.\(category.name)")
                    else { continue }
                    document.categoryCaps.append(Placed((name, cap), at: self.reader.place(category.key)))
                }
            default: self.reader.fault(entry.key, "unknown setting \(entry.name)")
            }
        }
    }
}
