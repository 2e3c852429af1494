// Carillon · CatalogLoader.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto
import FoundationEssentials

/// Loads the catalog from YAML: a file, or a folder of files.
package enum CatalogLoader {
    /// - Throws: ``CatalogFaults`` with every fault: file, line, key and the rule.
    package static func load(path: String) throws(CatalogFaults) -> Catalog {
        let log = CatalogFaultLog()
        var texts: [(file: String, text: String)] = []
        for file in try Self.files(path) {
            guard let bytes = FileManager.default.contents(atPath: file),
                let text = String(validating: bytes, as: UTF8.self)
            else {
                log.add("\(file): cannot be read as UTF-8 text")
                continue
            }
            texts.append((file, text))
        }
        return try Self.parse(texts, log)
    }

    /// Parses the texts of files.
    ///
    /// - Throws: ``CatalogFaults``.
    package static func parse(_ texts: [(file: String, text: String)]) throws(CatalogFaults) -> Catalog {
        try self.parse(texts, CatalogFaultLog())
    }

    private static func parse(
        _ texts: [(file: String, text: String)],
        _ log: CatalogFaultLog
    ) throws(CatalogFaults) -> Catalog {
        var hash = SHA256()
        var documents: [CatalogDocument] = []
        for (file, text) in texts {
            hash.update(data: Array("\(text.utf8.count):".utf8))
            hash.update(data: Array(text.utf8))
            documents.append(CatalogDocument(text, file: file, log: log))
        }
        let digest = hash.finalize().prefix(8).map { byte in
            let digits = String(byte, radix: 16)
            return byte < 16 ? "0" + digits : digits
        }
        let content = CatalogContent(documents, digest: digest.joined(), log: log)
        try log.finish()
        return Catalog(content)
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
