// Carillon · InboxScansTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Synchronization
import Testing

@testable import Storage

/// Turns of statements that may look at a whole inbox.
@Suite(.timeLimit(.minutes(10)))
struct InboxScansTests {
    /// Scans that note their user, and then wait until the test ends the stall.
    private final class StalledScans: Sendable {
        private let scans: InboxScans
        private let ran = Mutex<[String]>([])
        private let end: AsyncStream<Void>
        private let ending: AsyncStream<Void>.Continuation
        private let start: AsyncStream<Void>
        private let starting: AsyncStream<Void>.Continuation

        init(_ scans: InboxScans) {
            self.scans = scans
            (self.end, self.ending) = AsyncStream.makeStream(of: Void.self)
            (self.start, self.starting) = AsyncStream.makeStream(of: Void.self)
        }

        /// The users of the scans that have begun, in order.
        var users: [String] { self.ran.withLock { $0 } }

        /// Scans a user's inbox; returns why it failed.
        func scan(_ user: String) async -> PostgresError.Code? {
            do throws(PostgresError) {
                try await self.scans.run(for: user) { () async throws(PostgresError) in
                    self.ran.withLock { $0.append(user) }
                    self.starting.yield()
                    for await _ in self.end {}
                }
                return nil
            } catch {
                return error.code
            }
        }

        /// Begins a scan and waits until it runs.
        func begin(_ user: String) async -> Task<PostgresError.Code?, Never> {
            let scan = Task { await self.scan(user) }
            var starts = self.start.makeAsyncIterator()
            _ = await starts.next()
            return scan
        }

        /// Begins scans of a user, one more than may wait.
        ///
        /// - Returns: the scans that wait.
        func fill(_ user: String, waiting: Int) async -> [Task<PostgresError.Code?, Never>] {
            let (refused, refusing) = AsyncStream.makeStream(of: Int.self)
            let scans = (0...waiting).map { number in
                Task {
                    let code = await self.scan(user)
                    if code == .overloaded { refusing.yield(number) }
                    return code
                }
            }
            var refusals = refused.makeAsyncIterator()
            // The scan that finds too many waiting ends first, so the others wait.
            let number = await refusals.next()
            return scans.indices.filter { $0 != number }.map { scans[$0] }
        }

        func finish() { self.ending.finish() }
    }

    @Test("a user's scans run one at a time, and leave turns to other users")
    func others() async throws {
        let scans = StalledScans(InboxScans(turns: 2, mostWaiting: 3))
        let first = await scans.begin("ada")
        let waiting = await scans.fill("ada", waiting: 3)
        let other = await scans.begin("eve")
        #expect(scans.users == ["ada", "eve"])
        scans.finish()
        for scan in [first, other] + waiting { #expect(await scan.value == nil) }
        #expect(scans.users.filter { $0 == "ada" }.count == 4)
    }

    @Test("users take turns, however many scans of one of them came first")
    func turns() async throws {
        let scans = StalledScans(InboxScans(turns: 1, mostWaiting: 2))
        let first = await scans.begin("ada")
        let waiting = await scans.fill("ada", waiting: 2) + scans.fill("eve", waiting: 2)
        scans.finish()
        for scan in [first] + waiting { #expect(await scan.value == nil) }
        #expect(scans.users == ["ada", "eve", "ada", "eve", "ada"])
    }

    @Test("refuses a scan if too many users wait, or if its turn comes too late")
    func late() async throws {
        let scans = StalledScans(InboxScans(turns: 1, patience: .zero, mostWaiting: 1, mostUsers: 1))
        let first = await scans.begin("ada")
        let late = await scans.fill("eve", waiting: 1)
        #expect(await scans.scan("bob") == .overloaded)
        scans.finish()
        #expect(await first.value == nil)
        for scan in late { #expect(await scan.value == .overloaded) }
        #expect(await scans.scan("bob") == nil, "the turn is free again")
        #expect(scans.users == ["ada", "bob"])
    }

    @Test("a scan that fails passes its turn on")
    func failure() async throws {
        let scans = InboxScans(turns: 1)
        for _ in 0..<2 {
            await #expect(throws: PostgresError.self) {
                try await scans.run(for: "ada") { () throws(PostgresError) in throw PostgresError(.timeout) }
            }
        }
        let value = try await scans.run(for: "eve") { () throws(PostgresError) in 1 }
        #expect(value == 1)
    }
}
