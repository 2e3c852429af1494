// Carillon · CatalogSchemaTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Support
import Testing

@testable import Operations

/// The JSON Schema of the catalog against the readers of its files.
struct CatalogSchemaTests {
    private func schema() throws -> JSONValue { try JSONParser.parse(Array(CatalogSchema.text.utf8)) }

    private func keys(_ value: JSONValue?) -> Set<String> { Set(value?["properties"]?.object?.map(\.key) ?? []) }

    private func faults(_ yaml: String) throws -> [String] {
        let path = FileManager.default.temporaryDirectory.appending(path: "catalog-\(UUID().uuidString).yaml")
        try Data(yaml.utf8).write(to: path)
        defer { try? FileManager.default.removeItem(at: path) }
        do throws(CatalogFaults) {
            _ = try CatalogLoader.load(path: path.path)
            return []
        } catch {
            return error.faults.map(\.description)
        }
    }

    @Test("has the keys of a file, and of each part no key that the readers do not know")
    func known() throws {
        let schema = try self.schema()
        let expected = try #require(try self.faults("colour: red").first?.split(separator: "expected ").last)
        let names = expected.split(separator: ",").map { $0.trimmingCharacters(in: .whitespaces) }
        #expect(self.keys(schema) == Set(names))
        let parts = [
            ("settings", "types: {a: {KEY: {}}}"), ("category", "categories: {a: {KEY: {}}}"),
            ("cap", "types: {a: {cap: {KEY: {}}}}"), ("digest", "types: {a: {digest: {KEY: {}}}}"),
            ("template", "templates: {a: {en: {KEY: {}}}}"), ("button", "actions: {a: {buttons: {b: {KEY: {}}}}}"),
            ("rule", "actions: {a: {rules: [{KEY: {}}]}}"), ("topic", "topics: {a: {KEY: {}}}"),
        ]
        for (part, yaml) in parts {
            let keys = self.keys(schema["$defs"]?[part])
            #expect(!keys.isEmpty, "\(part)")
            for key in keys {
                let faults = try self.faults(yaml.replacing("KEY", with: key))
                #expect(!faults.contains { $0.contains("unknown setting") }, "\(part).\(key): \(faults)")
                let mistyped = try self.faults(yaml.replacing("KEY", with: key + "x"))
                #expect(mistyped.contains { $0.contains("did you mean \(key)?") }, "\(part).\(key): \(mistyped)")
            }
            let unknown = try self.faults(yaml.replacing("KEY", with: "colour"))
            #expect(unknown.contains { $0.contains("unknown setting") }, "\(part): \(unknown)")
            #expect(schema["$defs"]?[part]?["additionalProperties"] == .bool(false), "\(part)")
        }
    }

    @Test("allows a locale as long as the readers do")
    func locales() throws {
        let schema = try self.schema()
        for part in [schema["$defs"]?["locale"], schema["properties"]?["default_locale"]] {
            #expect(part?["maxLength"]?.integer == Int64(LocaleTag.longest))
        }
    }

    @Test("has every setting that the page about the catalog explains")
    func explained() throws {
        let page = try String(contentsOfFile: "docs/catalog.md", encoding: .utf8)
        let known = self.keys(try self.schema()["$defs"]?["settings"])
        let start = try #require(page.range(of: "types:\n  payment_received:\n"))
        let snippet = page[start.upperBound...].prefix { $0 != "`" }
        let names = snippet.split(separator: "\n").filter { $0.hasPrefix("    ") && !$0.hasPrefix("     ") }
            .compactMap { $0.trimmingCharacters(in: .whitespaces).split(separator: ":").first.map(String.init) }
            .filter { $0.allSatisfy { $0.isLetter || $0 == "_" } }
        #expect(names.count > 15)
        #expect(Set(names).subtracting(known).isEmpty, "\(Set(names).subtracting(known))")
    }
}
