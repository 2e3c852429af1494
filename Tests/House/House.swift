// Carillon · House.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Testing

/// The checkout that the tests were built from.
enum House {
    static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    static func text(_ path: String) throws -> String {
        try String(contentsOf: Self.root.appending(path: path), encoding: .utf8)
    }

    /// All Swift files in a folder and its subfolders, relative to the root.
    static func swiftFiles(in folder: String) throws -> [String] {
        let names = try #require(FileManager.default.enumerator(atPath: Self.root.appending(path: folder).path))
        return names.compactMap { $0 as? String }.filter { $0.hasSuffix(".swift") }.map { "\(folder)/\($0)" }.sorted()
    }

    /// The modules that a Swift file imports.
    static func imports(of path: String) throws -> Set<String> {
        let pattern = #/^\s*(?:(?:@\w+(?:\([^)]*\))?|package|public|internal|private|fileprivate)\s+)*import\s+(.+)$/#
        let kinds: Set<Substring> = ["struct", "class", "enum", "protocol", "typealias", "func", "let", "var", "actor"]
        var modules: Set<String> = []
        for line in try Self.text(path).split(separator: "\n") {
            guard let match = line.wholeMatch(of: pattern) else { continue }
            let words = match.output.1.split { $0 == " " || $0 == "." || $0 == ";" }
            guard let module = words.first(where: { !kinds.contains($0) }) else { continue }
            modules.insert(String(module))
        }
        return modules
    }
}
