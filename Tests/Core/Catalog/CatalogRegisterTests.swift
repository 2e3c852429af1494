// Carillon · CatalogRegisterTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Testing

@Suite("The catalog in force", .timeLimit(.minutes(10)))
struct CatalogRegisterTests {
    @Test("a good one replaces it, the same one changes nothing, a faulty one is refused and shown")
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
        // Whoever took the one before keeps it.
        #expect(first.all.map(\.name) == ["a"])
    }

    @Test("one that came from no file stays as it is")
    func memory() throws {
        let register = CatalogRegister(try Catalog([NotificationType(name: "a")])) { Timestamp(seconds: 1) }
        #expect(try register.reload() == .unchanged)
        #expect(register.entry.loadedAt == Timestamp(seconds: 1))
    }
}
