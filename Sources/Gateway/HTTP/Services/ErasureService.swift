// Carillon · ErasureService.swift
// SPDX-License-Identifier: Apache-2.0

import Storage

/// Erases all data of a user.
///
/// Tokens are revoked first, so that sockets close and no old token recreates the user. Every step
/// is idempotent: repeat an interrupted erasure to finish it.
struct ErasureService: Sendable {
    /// The number of erased items, by table or kind of key.
    struct Report: Sendable {
        var postgres: [(name: String, count: Int)] = []
        var redis: [(name: String, count: Int)] = []
    }

    private let revocations: RevocationRegister
    private let users: UserStore
    private let deadLetters: DeadLetterStore
    private let schedules: ScheduleStore
    private let broadcasts: BroadcastStore
    private let traces: UserTraces
    private let proofDeadlines: ProofDeadlines

    init(_ base: GatewayBase, users: UserStore, revocations: RevocationRegister) {
        self.revocations = revocations
        self.users = users
        self.deadLetters = base.database.deadLetters
        self.schedules = base.database.schedules
        self.broadcasts = base.database.broadcasts
        self.traces = base.live.userTraces
        self.proofDeadlines = base.live.proofDeadlines
    }

    /// Revokes the user's tokens, and erases the user from PostgreSQL and Redis.
    ///
    /// The user's own rows come first, then Redis, whose leftovers refer to missing rows. Rows that
    /// name several users come last, because there may be many. Schedules and dead letters can turn
    /// into broadcasts, so broadcasts come after them.
    ///
    /// Other gateways close the user's sockets up to seconds later; closing a socket creates no
    /// data.
    ///
    /// - Parameter caps: the names of all caps in the catalog.
    func erase(user: String, caps: [String]) async throws -> Report {
        _ = try await self.revocations.revoke(user: user)
        let erasure = try await self.users.erase(user: user)
        var report = Report()
        var unconfirmed = 0
        for start in stride(from: 0, to: erasure.pending.count, by: 1_000) {
            let part = erasure.pending[start..<min(start + 1_000, erasure.pending.count)]
            unconfirmed += try await self.proofDeadlines.remove(
                part.map { AwaitedProof(id: $0.id, user: user, lane: $0.lane) }
            )
        }
        report.redis = [
            ("presence", try await self.traces.erasePresence(user: user)),
            ("usage", try await self.traces.eraseUsage(user: user, caps: caps)),
            ("unconfirmed", unconfirmed),
            ("retries", try await self.traces.eraseRetries(user: user)),
        ]
        // A schedule for several users names them only in its fields.
        let shared = try await self.schedules.erase(user: user)
        report.postgres = erasure.rows.map { ($0.table, $0.table == "schedules" ? $0.count + shared : $0.count) }
        report.postgres.append(("dead_letters", try await self.deadLetters.erase(user: user)))
        try await self.broadcasts.erase(user: user)
        return report
    }
}
