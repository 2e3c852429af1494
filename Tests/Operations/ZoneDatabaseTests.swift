// Carillon · ZoneDatabaseTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Operations
import Testing

@testable import Core

@Suite struct ZoneDatabaseTests {
    @Test(arguments: [
        "Europe/Berlin", "GB", "America/Argentina/Buenos_Aires", "Etc/GMT+12", "America/Port-au-Prince",
    ])
    func knows(name: String) {
        #expect(ZoneDatabase().rules(name) != nil)
        #expect(ZoneDatabase().current(name) != nil)
    }

    @Test(arguments: [
        "", "Mars/Olympus", "Europe", "/etc/localtime", "../../../etc/passwd", "Europe/../Europe/Berlin", "zone.tab",
        "right/Europe/Berlin", "posix/Europe/Berlin", "posixrules", "localtime", "Europe//Berlin", "Europe/Berlin/",
        "Europe/Berlin\0", "Zürich", String(repeating: "a", count: 65),
    ])
    func refuses(name: String) {
        #expect(ZoneDatabase().rules(name) == nil)
        #expect(ZoneDatabase().current(name) == nil)
    }

    @Test("reads every zone of the machine") func allZones() throws {
        let database = ZoneDatabase()
        let table = try String(contentsOfFile: "/usr/share/zoneinfo/zone1970.tab", encoding: .utf8)
        let names = table.split(separator: "\n").filter { !$0.hasPrefix("#") }.map { $0.split(separator: "\t")[2] }
        #expect(names.count > 300)
        for name in names { #expect(database.rules(String(name)) != nil, "\(name)") }
    }

    @Test("a refresh follows the files on disk") func refreshes() throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: "zones-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        func install(_ zone: String, version: String) throws {
            let file = folder.appending(path: "Home")
            try Data(contentsOf: URL(filePath: "/usr/share/zoneinfo/\(zone)")).write(to: file)
            try Data("# version \(version)\nR x\n".utf8).write(to: folder.appending(path: "tzdata.zi"))
        }
        try install("Asia/Kathmandu", version: "2025b")
        let database = ZoneDatabase(folder: folder.path)
        #expect(database.version == "2025b")
        #expect(database.rules("Home")?.offset(at: Timestamp(seconds: 1_700_000_000)) == 20_700)
        #expect(database.refresh() == nil)

        // New rules stay unused until the refresh.
        try install("Asia/Tokyo", version: "2026a")
        #expect(database.rules("Home")?.offset(at: Timestamp(seconds: 1_700_000_000)) == 20_700)
        #expect(database.refresh() == [])
        #expect(database.version == "2026a")
        #expect(database.rules("Home")?.offset(at: Timestamp(seconds: 1_700_000_000)) == 32_400)
        #expect(database.refresh() == nil)

        // The same version with other contents, as a distribution may patch it.
        try install("Asia/Kathmandu", version: "2026a")
        #expect(database.refresh() == [])

        // A new version with the same rules; Home may have been read after it came.
        #expect(database.rules("Home") != nil)
        try install("Asia/Kathmandu", version: "2026b")
        #expect(database.refresh() == [])
        try install("Asia/Kathmandu", version: "2026c")
        #expect(database.refresh() == ["Home"])

        // A zone that is removed.
        #expect(database.rules("Home") != nil)
        try FileManager.default.removeItem(at: folder.appending(path: "Home"))
        #expect(database.refresh() == [])
        #expect(database.rules("Home") == nil)
    }

    @Test("without a version file the zone files are hashed") func hashes() throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: "zones-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let database = ZoneDatabase(folder: folder.path)
        let empty = database.version
        #expect(empty.hasPrefix("files-"))
        try FileManager.default.copyItem(atPath: "/usr/share/zoneinfo/Asia/Tokyo", toPath: folder.path + "/Home")
        #expect(database.refresh() == [])
        #expect(database.version != empty)
        try Data("2026c\n".utf8).write(to: folder.appending(path: "+VERSION"))
        #expect(database.refresh() == [])
        #expect(database.version == "2026c")
    }
}
