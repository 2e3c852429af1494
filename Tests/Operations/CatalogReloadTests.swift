// Carillon · CatalogReloadTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Logging
import Support
import Synchronization
import Testing

@testable import Core
@testable import Operations

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

    @Test("a folder's YAML files form one catalog; other files are ignored")
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

    @Test("reports files that cannot be read")
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

@Suite("Catalog reload", .timeLimit(.minutes(10)))
struct CatalogRegisterTests {
    /// A clock that advances by a second with each call.
    private final class Seconds: Sendable {
        private let last = Atomic<Int64>(0)

        func next() -> Timestamp {
            Timestamp(seconds: self.last.wrappingAdd(1, ordering: .relaxed).newValue)
        }
    }

    @Test("a valid catalog replaces the current one, the same one changes nothing, a faulty one is rejected")
    func reload() throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "carillon-\(RandomName.make()).yaml")
        defer { try? FileManager.default.removeItem(at: file) }
        func write(_ text: String) throws { try Data(text.utf8).write(to: file) }
        try write("types: {a: {}}")
        let register = CatalogRegister(try CatalogLoader.load(path: file.path), path: file.path) {
            Timestamp(seconds: 1_795_000_000)
        }
        let first = register.current
        #expect(try register.reload() == .unchanged)
        try write("types: {a: {lane: slow}, b: {code: x}}")
        for _ in 0..<2 {
            let faults = #expect(throws: CatalogFaults.self) { try register.reload() }
            #expect(faults?.faults.count == 2)
            #expect(register.refusal?.faults == faults)
            #expect(register.current.digest == first.digest)
        }
        try FileManager.default.removeItem(at: file)
        #expect(throws: CatalogFaults.self) { try register.reload() }
        #expect(register.current["a"] != nil)
        try write("types: {b: {}}")
        #expect(try register.reload() == .replaced)
        #expect(register.refusal == nil)
        #expect(register.current.all.map(\.name) == ["b"])
        // An earlier value is unchanged.
        #expect(first.all.map(\.name) == ["a"])
    }

    @Test("a job makes the catalog read its files once a second, and they count only if they have its type")
    func newer() async throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "carillon-\(RandomName.make()).yaml")
        defer { try? FileManager.default.removeItem(at: file) }
        func write(_ text: String) throws { try Data(text.utf8).write(to: file, options: .atomic) }
        func job(_ type: String) -> [(name: String, value: ArraySlice<UInt8>)] {
            [("user", "ada"), ("type", type), ("title", "x")].map { ($0.0, Array($0.1.utf8)[...]) }
        }
        func look(_ register: CatalogRegister, than catalog: Catalog, for type: String) async -> Catalog? {
            await register.newer(than: catalog, for: [job(type)], logger: TestLog.logger)
        }
        try write("types: {a: {}}")
        let first = try CatalogLoader.load(path: file.path)
        let make = { CatalogRegister(first, path: file.path) { Timestamp(seconds: 1) } }

        let register = make()
        try write("types: {a: {}, b: {}}")
        #expect(await look(register, than: first, for: "c") == nil)
        #expect(register.current.digest == first.digest)
        #expect(await look(register, than: first, for: "b") == nil, "within a second")

        let other = make()
        let found = try #require(await look(other, than: first, for: "b"))
        #expect(found.all.map(\.name) == ["a", "b"])
        #expect(other.current.digest == found.digest)
        // A batch that was decoded before finds it without another look.
        #expect(await look(other, than: first, for: "b")?.digest == found.digest)

        // A type that is gone may be in a file that is being copied.
        for (text, fault) in [
            ("types: {b: {}}", "type a is missing; a reload removes it"),
            (
                "types: {a: {}, b: {lane: slow}}",
                "\(file.path):1: type b: lane must be one of critical, normal, bulk"
            ),
        ] {
            let faulty = make()
            try write(text)
            let lines = LogRecorder(from: .warning) { $0.metadata?["fault"]?.description ?? "-" }
            #expect(await faulty.newer(than: first, for: [job("b")], logger: lines.logger) == nil)
            #expect(faulty.refusal?.faults.faults.map(\.description) == [fault])
            #expect(lines.all == [fault])
            try write("types: {a: {}}")
            #expect(try faulty.reload() == .unchanged)
            #expect(faulty.refusal == nil)
        }
        // The first of several faults is logged with their number, until it changes.
        let seconds = Seconds()
        let waiting = CatalogRegister(first, path: file.path) { seconds.next() }
        let warnings = LogRecorder(from: .warning) { event in
            ["fault", "count"].map { event.metadata?[$0]?.description ?? "-" }.joined(separator: " of ")
        }
        let lane = "lane must be one of critical, normal, bulk"
        for text in ["types: {a: {lane: x}, b: {lane: x}}", "types: {a: {}, b: {lane: x}}"] {
            try write(text)
            for _ in 0..<2 {
                #expect(await waiting.newer(than: first, for: [job("b")], logger: warnings.logger) == nil)
            }
        }
        #expect(
            warnings.all == ["\(file.path):1: type a: \(lane) of 2", "\(file.path):1: type b: \(lane) of 1"])
        try write("types: {a: {}, b: {}}")
        #expect(await look(waiting, than: first, for: "b") != nil)
        #expect(waiting.refusal == nil)
        // A job that the files do not serve either is no news.
        try write("types: {b: {}}")
        let lines = LogRecorder { "\($0.message)" }
        #expect(await make().newer(than: first, for: [job("c")], logger: lines.logger) == nil)
        #expect(lines.all.isEmpty)
    }

    @Test("notifications make the catalog read its files every 10 s, which defers no look for a job")
    func newerForTypes() async throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "carillon-\(RandomName.make()).yaml")
        defer { try? FileManager.default.removeItem(at: file) }
        func write(_ text: String) throws { try Data(text.utf8).write(to: file, options: .atomic) }
        try write("types: {a: {}}")
        let first = try CatalogLoader.load(path: file.path)
        let seconds = Mutex<Int64>(1)
        let register = CatalogRegister(first, path: file.path) { Timestamp(seconds: seconds.withLock { $0 }) }
        func look(than catalog: Catalog, for type: String) async -> [String]? {
            await register.newer(than: catalog, forTypes: [type], logger: TestLog.logger)?.all.map(\.name)
        }
        #expect(await look(than: first, for: "removed") == nil)
        try write("types: {a: {}, b: {}}")
        let job: [(name: String, value: ArraySlice<UInt8>)] = [("user", "ada"), ("type", "b"), ("title", "x")]
            .map { ($0.0, Array($0.1.utf8)[...]) }
        let second = try #require(await register.newer(than: first, for: [job], logger: TestLog.logger))
        #expect(second.all.map(\.name) == ["a", "b"])
        try write("types: {a: {}, b: {}, c: {}}")
        seconds.withLock { $0 = 10 }
        #expect(await look(than: second, for: "c") == nil)
        seconds.withLock { $0 = 11 }
        #expect(await look(than: second, for: "c") == ["a", "b", "c"])
    }

    @Test("a catalog without a file cannot be reloaded")
    func memory() throws {
        let catalog = try CatalogParser.parse([("c.yaml", "types: {a: {}}")])
        let register = CatalogRegister(catalog) { Timestamp(seconds: 1) }
        #expect(try register.reload() == .unchanged)
        #expect(register.entry.loadedAt == Timestamp(seconds: 1))
    }
}
