// Carillon · SessionService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import ServiceLifecycle
import Storage

/// Ends the database sessions of stalled processes, whose locks hold up the others.
///
/// Every dispatcher does so, without a turn in Redis; two at once do no harm. The sweep cannot do
/// it, because it may itself wait for the locks of such a session.
package struct SessionService: Service {
    private static let interval: Duration = .seconds(10)

    private let dispatcher: Dispatcher
    private let limit: Duration

    /// - Parameter limit: how long a session may wait for its process in a transaction.
    package init(dispatcher: Dispatcher, limit: Duration = SessionStore.longestWait) {
        self.dispatcher = dispatcher
        self.limit = limit
    }

    package func run() async throws {
        await self.dispatcher.untilShutdown(
            "cannot end the database sessions of stalled processes; retrying every 10 s"
        ) {
            do throws(PostgresError) {
                try await self.endStalled()
            } catch {
                // Other services report a PostgreSQL that does not answer.
                if !error.isTransient { throw error }
            }
        } wait: {
            // PostgreSQL does not signal that a client has stalled, so poll.
            await pause(for: Self.interval)
        }
    }

    /// Ends the sessions that have stalled, and logs each.
    func endStalled() async throws(PostgresError) {
        for session in try await self.dispatcher.database.sessions.endStalled(after: self.limit) {
            self.dispatcher.logger.warning(
                "a process stalled in a transaction; ended its database session",
                metadata: [
                    "session": "\(session.program), process \(session.process)",
                    "session.seconds": "\(session.seconds)",
                ])
        }
    }
}
