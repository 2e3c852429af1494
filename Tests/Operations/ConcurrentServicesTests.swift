// Carillon · ConcurrentServicesTests.swift
// SPDX-License-Identifier: Apache-2.0

import ServiceLifecycle
import Support
import Synchronization
import Testing

@testable import Operations

@Suite(.timeLimit(.minutes(10)))
struct ConcurrentServicesTests {
    private final class Counts: Sendable {
        let started = Atomic(0)
        let told = Atomic(0)
    }

    /// Ends once all `count` services know of the shutdown.
    private struct Slow: Service {
        let counts: Counts
        let count: Int

        func run() async throws {
            self.counts.started.add(1, ordering: .sequentiallyConsistent)
            try await gracefulShutdown()
            self.counts.told.add(1, ordering: .sequentiallyConsistent)
            try await eventually("all know of the shutdown") {
                self.counts.told.load(ordering: .sequentiallyConsistent) == self.count
            }
        }
    }

    private struct Failing: Service {
        func run() async throws { throw FixtureError("failed") }
    }

    @Test("a shutdown reaches all services at once")
    func shutdown() async throws {
        let counts = Counts()
        let services = ConcurrentServices((0..<3).map { _ in Slow(counts: counts, count: 3) })
        let group = ServiceGroup(
            configuration: ServiceGroupConfiguration(services: [.init(service: services)], logger: TestLog.logger))
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            tasks.addTask { try await group.run() }
            try await eventually("all run") { counts.started.load(ordering: .sequentiallyConsistent) == 3 }
            await group.triggerGracefulShutdown()
            try await tasks.waitForAll()
        }
        #expect(counts.told.load(ordering: .sequentiallyConsistent) == 3)
    }

    @Test("the failure of one service ends the others")
    func failure() async throws {
        let counts = Counts()
        await #expect(throws: FixtureError.self) {
            try await ConcurrentServices([Slow(counts: counts, count: 2), Failing()]).run()
        }
        #expect(counts.told.load(ordering: .sequentiallyConsistent) == 0)
    }
}
