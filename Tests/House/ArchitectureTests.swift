// Carillon · ArchitectureTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@Suite("The house", .timeLimit(.minutes(10)))
struct ArchitectureTests {
    @Test("The rooms and arrows of docs/architecture.md are those of Package.swift")
    func arrows() throws {
        let document = try ArchitectureDocument()
        let rooms = try PackageTargets.rooms()
        #expect(rooms.count > 10)
        #expect(Set(document.entries.map(\.name)) == Set(rooms.map(\.name)))
        #expect(document.entries.count == rooms.count, "a room is listed twice")
        for room in rooms {
            let listed = document.entries.first { $0.name == room.name }?.arrows ?? []
            #expect(Set(listed) == room.arrows, "arrows of \(room.name)")
            #expect(listed.count == room.arrows.count, "an arrow of \(room.name) is listed twice")
        }
    }

    @Test("Arrows only point down the list, and every room says what it holds")
    func down() throws {
        let document = try ArchitectureDocument()
        for (place, entry) in document.entries.enumerated() {
            let below = Set(document.entries.dropFirst(place + 1).map(\.name))
            let upward = entry.arrows.filter { !below.contains($0) }
            #expect(upward.isEmpty, "\(entry.name) points up")
            #expect(!entry.holds.isEmpty, "\(entry.name) says nothing")
        }
    }

    @Test("Gateway and dispatcher never depend on each other, and nothing shared on either")
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

    @Test("What the sources import of ours is what Package.swift declares")
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

    @Test("Each C library is imported by exactly one room")
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
