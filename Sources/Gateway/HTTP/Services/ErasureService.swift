// Carillon · ErasureService.swift
// SPDX-License-Identifier: Apache-2.0

import Storage

/// Erases a user everywhere.
///
/// The user's tokens are revoked first, so that no socket stays open and no call with an old token makes the user anew. Each
/// step may be repeated: an erasure that broke off is finished by the next one.
package struct ErasureService: Sendable {
    /// How much was taken away, by table or kind of key.
    package struct Report: Sendable {
        package var postgres: [(name: String, count: Int)] = []
        package var redis: [(name: String, count: Int)] = []
    }

    private let revocations: RevocationRegister
    private let users: UserStore
    private let deadLetters: DeadLetterStore
    private let schedules: ScheduleStore
    private let traces: UserTraces
    private let unconfirmed: UnconfirmedSet

    package init(
        revocations: RevocationRegister,
        users: UserStore,
        deadLetters: DeadLetterStore,
        schedules: ScheduleStore,
        traces: UserTraces,
        unconfirmed: UnconfirmedSet
    ) {
        self.revocations = revocations
        self.users = users
        self.deadLetters = deadLetters
        self.schedules = schedules
        self.traces = traces
        self.unconfirmed = unconfirmed
    }

    /// Revokes the user's tokens, erases the user from PostgreSQL, and then from Redis, where what is left would find no row.
    ///
    /// Other gateways close the user's sockets when they hear of it, up to seconds later; a socket that closes makes no user.
    ///
    /// - Parameter caps: The names of all caps of the catalog.
    package func erase(user: String, caps: [String]) async throws -> Report {
        _ = try await self.revocations.revoke(user: user)
        let erasure = try await self.users.erase(user: user)
        var report = Report()
        // Schedules for several users name them in their fields only.
        let shared = try await self.schedules.erase(user: user)
        report.postgres = erasure.rows.map { ($0.table, $0.table == "schedules" ? $0.count + shared : $0.count) }
        report.postgres.append(("dead_letters", try await self.deadLetters.erase(user: user)))
        var unconfirmed = 0
        for start in stride(from: 0, to: erasure.pending.count, by: 1_000) {
            let part = erasure.pending[start..<min(start + 1_000, erasure.pending.count)]
            unconfirmed += try await self.unconfirmed.remove(
                part.map { UnconfirmedNotification(id: $0.id, user: user, lane: $0.lane) }
            )
        }
        let rates = UserRate.Kind.allCases.map(\.rawValue)
        report.redis = [
            ("presence", try await self.traces.erasePresence(user: user)),
            ("usage", try await self.traces.eraseUsage(user: user, caps: caps, rates: rates)),
            ("unconfirmed", unconfirmed),
            ("retries", try await self.traces.eraseRetries(user: user)),
            ("dead_letters", try await self.traces.eraseDeadLetters(user: user)),
        ]
        return report
    }
}
