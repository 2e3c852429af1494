// Carillon · CatalogFileTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Testing

@Suite("Catalog files", .timeLimit(.minutes(10)))
struct CatalogFileTests {
    private static func withFolder(_ files: [String: Data], _ body: (String) throws -> Void) throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: "carillon-catalog-\(RandomName.make())")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        for (name, content) in files { try content.write(to: folder.appending(path: name)) }
        try body(folder.path)
    }

    private static func fault(_ path: String) -> String? {
        do throws(CatalogFaults) {
            _ = try CatalogLoader.load(path: path)
            return nil
        } catch {
            return error.description
        }
    }

    @Test("A folder's files make one catalog; other files are left alone")
    func folder() throws {
        let files = [
            "a.yaml": Data("types: {a: {}}".utf8), "b.yml": Data("types: {b: {}, c: {}}".utf8),
            "notes.txt": Data("no yaml: [".utf8),
        ]
        try Self.withFolder(files) { (folder: String) throws in
            #expect(try CatalogLoader.load(path: folder).all.map(\.name) == ["a", "b", "c"])
            #expect(try CatalogLoader.load(path: folder + "/b.yml").all.map(\.name) == ["b", "c"])
        }
    }

    @Test("What cannot be read is named")
    func faults() throws {
        #expect(Self.fault("/nowhere/catalog.yaml") == "/nowhere/catalog.yaml: no such file or folder")
        try Self.withFolder([:]) { (folder: String) throws in
            #expect(Self.fault(folder) == "\(folder): holds no .yaml file")
        }
        try Self.withFolder(["c.yaml": Data([0x74, 0xFF])]) { (folder: String) throws in
            #expect(Self.fault(folder) == "\(folder)/c.yaml: cannot be read as UTF-8 text")
        }
        let files = ["a.yaml": Data("types: {t: {}}".utf8), "b.yaml": Data("types:\n  u:\n    lane: x".utf8)]
        try Self.withFolder(files) { (folder: String) throws in
            let rule = "lane must be one of critical, normal, bulk"
            #expect(Self.fault(folder) == "\(folder)/b.yaml:3: type u: \(rule)")
        }
        let twice = ["a.yaml": Data("types: {t: {}}".utf8), "b.yaml": Data("types: {t: {}}".utf8)]
        try Self.withFolder(twice) { (folder: String) throws in
            let places = "\(folder)/a.yaml:1 and \(folder)/b.yaml:1"
            #expect(Self.fault(folder) == "\(places): type t is defined twice")
        }
    }
}
