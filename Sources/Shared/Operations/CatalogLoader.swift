// Carillon · CatalogLoader.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import FoundationEssentials

/// Loads the catalog from YAML: a file, or a folder of files.
package enum CatalogLoader {
    /// - Throws: ``CatalogFaults`` with every fault: file, line, key and the rule.
    package static func load(path: String) throws(CatalogFaults) -> Catalog {
        var unreadable: [CatalogFault] = []
        var texts: [(file: String, text: String)] = []
        for file in try Self.files(path) {
            guard let bytes = FileManager.default.contents(atPath: file),
                let text = String(validating: bytes, as: UTF8.self)
            else {
                unreadable.append(CatalogFault("\(file): cannot be read as UTF-8 text"))
                continue
            }
            texts.append((file, text))
        }
        let catalog: Catalog
        do throws(CatalogFaults) {
            catalog = try CatalogParser.parse(texts)
        } catch {
            throw CatalogFaults(unreadable + error.faults)
        }
        guard unreadable.isEmpty else { throw CatalogFaults(unreadable) }
        return catalog
    }

    private static func files(_ path: String) throws(CatalogFaults) -> [String] {
        var isFolder = false
        guard FileManager.default.fileExists(atPath: path, isDirectory: &isFolder) else {
            throw CatalogFaults([CatalogFault("\(path): no such file or folder")])
        }
        guard isFolder else { return [path] }
        let names: [String]
        do {
            names = try FileManager.default.contentsOfDirectory(atPath: path)
        } catch {
            throw CatalogFaults([CatalogFault("\(path): cannot be listed")])
        }
        let files = names.filter { $0.hasSuffix(".yaml") || $0.hasSuffix(".yml") }.sorted()
        guard !files.isEmpty else { throw CatalogFaults([CatalogFault("\(path): holds no .yaml file")]) }
        return files.map { "\(path)/\($0)" }
    }
}
