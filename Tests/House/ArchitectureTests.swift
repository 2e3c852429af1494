// Carillon · ArchitectureTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@Suite("Architecture", .timeLimit(.minutes(10)))
struct ArchitectureTests {
    @Test("docs/architecture.md lists the modules and imports of Package.swift")
    func arrows() throws {
        let document = try ArchitectureDocument()
        let rooms = try PackageTargets.rooms()
        #expect(rooms.count > 10)
        #expect(Set(document.entries.map(\.name)) == Set(rooms.map(\.name)))
        #expect(document.entries.count == rooms.count, "a module is listed twice")
        for room in rooms {
            let listed = document.entries.first { $0.name == room.name }?.arrows ?? []
            #expect(Set(listed) == room.arrows, "imports of \(room.name)")
            #expect(listed.count == room.arrows.count, "an import of \(room.name) is listed twice")
        }
    }

    @Test("modules only import modules further down the list, and each has a description")
    func down() throws {
        let document = try ArchitectureDocument()
        for (place, entry) in document.entries.enumerated() {
            let below = Set(document.entries.dropFirst(place + 1).map(\.name))
            let upward = entry.arrows.filter { !below.contains($0) }
            #expect(upward.isEmpty, "\(entry.name) imports \(upward) above it")
            #expect(!entry.holds.isEmpty, "\(entry.name) has no description")
        }
    }

    @Test("gateway and dispatcher never depend on each other, and shared modules on neither")
    func wings() throws {
        let rooms = try PackageTargets.rooms()
        var wings: [String: String] = [:]
        for room in rooms { wings[room.name] = room.wing }
        #expect(Set(wings.values) == ["Gateway", "Dispatcher", "Shared"])
        for room in rooms {
            for arrow in room.arrows {
                #expect(wings[arrow] == "Shared" || wings[arrow] == room.wing, "\(room.name) → \(arrow)")
            }
        }
    }

    @Test("sources import only modules that Package.swift declares")
    func imports() throws {
        let rooms = try PackageTargets.rooms()
        let ours = Set(rooms.map(\.name))
        for room in rooms where !room.isCLibrary {
            var imported: Set<String> = []
            for file in try House.swiftFiles(in: room.path) { imported.formUnion(try House.imports(of: file)) }
            imported.formIntersection(ours)
            #expect(imported.isSubset(of: room.arrows), "imports of \(room.name)")
        }
    }

    @Test("each C library is imported by exactly one module")
    func cLibraries() throws {
        let rooms = try PackageTargets.rooms()
        let libraries = rooms.filter(\.isCLibrary)
        #expect(libraries.count >= 3)
        for library in libraries {
            let importers = try rooms.filter { room in
                guard !room.isCLibrary else { return false }
                return try House.swiftFiles(in: room.path).contains { try House.imports(of: $0).contains(library.name) }
            }
            #expect(importers.count == 1, "\(library.name) is imported by \(importers.map(\.name))")
            #expect(library.name.hasPrefix("C"))
        }
    }
}
