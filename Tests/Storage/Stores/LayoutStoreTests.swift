// Carillon · LayoutStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@testable import Storage

/// The number of parts, which all processes read when they start.
@Suite(.timeLimit(.minutes(10)))
struct LayoutStoreTests {
    @Test(
        "the number of parts stays while a program is connected, also through a pooler that adds its client's host",
        arguments: ["carillon-dispatcher", "carillon-dispatcher - 10.0.0.1:6432"])
    func running(name: String) async throws {
        try await TestDatabase.with { database in
            let store = Database(database.pool).layout
            _ = try await store.layout(first: 16)
            let programs = ["carillon-gateway", "carillon-dispatcher"]
            let process = try PostgresPool(database.configuration(applicationName: name), logger: TestLog.logger)
            defer { process.close() }
            try await process.query("SELECT 1")
            await #expect(throws: LayoutStore.Refusal.isRunning(["carillon-dispatcher"])) {
                _ = try await store.grow(to: 64, programs: programs)
            }
            process.close()
            let before = try await eventualValue("the session has ended") {
                try? await store.grow(to: 64, programs: programs)
            }
            #expect(before == .init(parts: 16, former: []))
        }
    }
}
