// Carillon · Startup.swift
// SPDX-License-Identifier: Apache-2.0

import ServiceLifecycle
import Synchronization

/// Orders the start of a program: it binds its port first, then begins its work.
///
/// A program whose port is in use therefore exits before it takes a lease or any work.
package final class Startup: Sendable {
    private let ports: AsyncStream<Int>
    private let continuation: AsyncStream<Int>.Continuation
    private let finished = Mutex(false)

    package init() {
        (self.ports, self.continuation) = AsyncStream.makeStream(of: Int.self)
    }

    /// Lets the work begin.
    package func bound(to port: Int) {
        self.continuation.yield(port)
        self.continuation.finish()
    }

    /// Records that the program is ready.
    package func finish() { self.finished.withLock { $0 = true } }

    /// Whether the program is ready.
    package var isFinished: Bool { self.finished.withLock { $0 } }

    /// Waits until the port is bound; nil if a shutdown comes first.
    private func port() async -> Int? {
        for await port in self.ports.cancelOnGracefulShutdown() { return port }
        return nil
    }

    /// The work of a program, as a service next to its server.
    package struct Work: Service {
        private let startup: Startup
        private let work: @Sendable (_ port: Int) async throws -> Void

        /// - Parameter work: runs until the shutdown, with the port that the server listens on.
        package init(after startup: Startup, _ work: @escaping @Sendable (_ port: Int) async throws -> Void) {
            self.startup = startup
            self.work = work
        }

        package func run() async throws {
            guard let port = await self.startup.port() else { return }
            try await self.work(port)
        }
    }
}
