// Carillon · BroadcastStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Broadcasts, their progress and operators' decisions about them.
package struct BroadcastStore: Sendable {
    /// The table whose key keeps a page from being stored twice.
    static let pagesTable = "broadcast_pages"

    let pool: PostgresPool

    /// Stores broadcasts and their chains in one transaction, in order.
    ///
    /// A broadcast that was cancelled before is stored as cancelled.
    ///
    /// - Returns: an outcome for each, in order.
    package func add(_ broadcasts: [Broadcast]) async throws(PostgresError) -> [Broadcast.Outcome] {
        guard !broadcasts.isEmpty else { return [] }
        let results = try await self.pool.runDurably(Self.statements(for: broadcasts)).dropFirst()
        var outcomes: [Broadcast.Outcome] = []
        for (broadcast, result) in zip(broadcasts, results) {
            // Without a row, another transaction stored the entry or the job's id meanwhile; the
            // next call sees which.
            guard let row = result.first else {
                outcomes += try await self.add([broadcast])
                continue
            }
            let isStored = try row.id(0) == broadcast.id
            outcomes.append(isStored ? .stored : try row.bool(2) ? .conflict : .duplicate)
        }
        return outcomes
    }

    /// The statements of ``add(_:)``, in order, for one transaction.
    static func statements(for broadcasts: [Broadcast]) -> [PostgresStatement] {
        [CancellationSQL.beforeStoring]
            + broadcasts.map { broadcast in
                PostgresStatement(
                    BroadcastSQL.add,
                    [
                        .id(broadcast.id), .text(broadcast.org), .text(broadcast.job), .text(broadcast.entry),
                        .text(broadcast.stream), .jsonb(FieldsColumn.json(broadcast.fields)),
                        .text(broadcast.topic), .text(broadcast.lane.rawValue),
                        .int4(clamping: broadcast.lane.rank), .timestamp(broadcast.createdAt),
                    ]
                )
            }
    }

    // MARK: Expanding

    /// Claims a chain for this dispatcher; returns nil if there is none.
    ///
    /// - Parameters:
    ///   - lanes: lanes to leave out, except for events.
    ///   - org: the organisation that had the last turn: within a lane the next one gets the chain
    ///     that had the fewest turns among its oldest 200 broadcasts; nil for a chain of the oldest
    ///     broadcast of all.
    package func claimChain(
        by name: String,
        outside lanes: Set<Lane> = [],
        after org: String? = nil
    ) async throws(PostgresError) -> Broadcast.Chain? {
        let parameters: [PostgresValue] = [.text(name), .texts(lanes.map(\.rawValue))]
        let statement =
            if let org {
                PostgresStatement(BroadcastSQL.claimInTurn, parameters + [.text(org)])
            } else {
                PostgresStatement(BroadcastSQL.claimOldest, parameters)
            }
        let result = try await self.pool.query(statement)
        guard let row = result.first else { return nil }
        return Broadcast.Chain(
            broadcast: try BroadcastColumns.read(row, at: 3),
            index: Int(try row.int4(0)),
            pages: Int(try row.int4(1)),
            reached: try row.text(2)
        )
    }

    /// Releases a chain for the next claim.
    package func release(_ chain: Broadcast.Chain, by name: String) async throws(PostgresError) {
        try await self.pool.query(
            BroadcastSQL.releaseChain, .id(chain.broadcast.id), .int4(clamping: chain.index), .text(name)
        )
    }

    /// The next users of a chain.
    package func users(_ chain: Broadcast.Chain, limit: Int) async throws(PostgresError) -> [String] {
        let parameters: [PostgresValue] = [.int8(Int64(chain.index)), .text(chain.reached), .int4(clamping: limit)]
        let statement =
            if let topic = chain.broadcast.topic {
                PostgresStatement(BroadcastSQL.subscribers, parameters + [.text(topic)])
            } else {
                PostgresStatement(BroadcastSQL.users, parameters)
            }
        return try await self.pool.query(statement).texts()
    }

    /// Locks a broadcast until the commit: shared for a page, alone for a change of its state.
    ///
    /// An advisory lock queues fairly. With the row lock alone, later pages would overtake a
    /// waiting pause without end.
    private static func lock(_ broadcast: BroadcastID, isShared: Bool) -> PostgresStatement {
        PostgresStatement(
            "SELECT pg_advisory_xact_lock\(isShared ? "_shared" : "")(hashtextextended($1, 7))",
            [.text("carillon.broadcasts \(broadcast)")])
    }

    /// The statements that store a page in the transaction of its notifications; they come first.
    package static func statements(_ page: Broadcast.Page, of chain: Broadcast.Chain) -> [PostgresStatement] {
        let key: [PostgresValue] = [
            .id(chain.broadcast.id), .int4(clamping: chain.index), .int4(clamping: chain.pages),
        ]
        if page.isEmptyEnd { return [PostgresStatement(BroadcastSQL.end, key)] }
        var writer = JSONWriter()
        writer.beginObject()
        for (reason, count) in page.counted.sorted(by: { $0.key < $1.key }) {
            writer.key(escaping: reason)
            writer.integer(count)
        }
        writer.endObject()
        return [
            Self.lock(chain.broadcast.id, isShared: true),
            PostgresStatement(
                BroadcastSQL.page,
                key + [
                    .int4(clamping: page.selected), .int4(clamping: page.stored), .jsonb(writer.bytes),
                ]
            ),
            PostgresStatement(BroadcastSQL.advance, key + [.text(page.until), .bool(page.isLast)]),
        ]
    }

    /// Recounts a page after its notifications are stored, because some users may have had a
    /// notification of the same job before.
    package static func recount(_ chain: Broadcast.Chain, _ notifications: [Notification]) -> PostgresStatement {
        PostgresStatement(
            BroadcastSQL.recount,
            [
                .id(chain.broadcast.id), .int4(clamping: chain.index), .int4(clamping: chain.pages),
                .texts(notifications.map(\.user)), .ids(notifications.map(\.id)),
            ]
        )
    }

    /// Stores a page without notifications.
    package func store(_ page: Broadcast.Page, of chain: Broadcast.Chain) async throws(PostgresError) {
        try await self.pool.run(Self.statements(page, of: chain))
    }

    /// Whether a page was refused because its broadcast no longer expands or the page is already
    /// stored.
    package static func isLost(_ error: PostgresError) -> Bool {
        error.table == Self.pagesTable && (error.sqlState == "23502" || error.sqlState == "23505")
    }

    /// Ends the broadcasts whose chains are finished, and deletes the chains.
    package func finish() async throws(PostgresError) {
        try await self.pool.query(BroadcastSQL.finish)
    }

    /// Records that the expansion of a lane's broadcasts, except for events, waits for room.
    package func markHeld(_ lane: Lane) async throws(PostgresError) {
        try await self.pool.query(BroadcastSQL.markHeld, .text(lane.rawValue))
    }

    /// Fails a broadcast that cannot be stored.
    package func fail(_ broadcast: Broadcast, reason: String) async throws(PostgresError) {
        try await self.pool.run([
            Self.lock(broadcast.id, isShared: false),
            PostgresStatement(BroadcastSQL.fail, [.id(broadcast.id), .text(reason)]),
        ])
    }

    /// Removes a user from all broadcasts: from their exclusions, and from the cursors that
    /// their chains have reached.
    ///
    /// - Parameter limit: the most rows that a statement changes.
    package func erase(user: String, limit: Int = 500) async throws(PostgresError) {
        let parameters: [PostgresValue] = [.text(user), .int4(clamping: limit)]
        for sql in BroadcastSQL.forgetUser {
            var changed: Int
            repeat {
                changed = try await self.pool.query(PostgresStatement(sql, parameters), timeout: .seconds(60))
                    .affectedRows
            } while changed > 0
        }
    }

    // MARK: Counting and withdrawing

    /// Claims a broadcast for one dispatcher; returns nil if there is none.
    ///
    /// - Parameter ids: broadcasts to leave out.
    package func claim(
        _ state: Broadcast.State,
        by name: String,
        except ids: [BroadcastID] = []
    ) async throws(PostgresError) -> Broadcast? {
        let result = try await self.pool.query(
            BroadcastSQL.claimBroadcast, .text(name), .text(state.rawValue), .ids(ids))
        guard let row = result.first else { return nil }
        return try BroadcastColumns.read(row)
    }

    /// The size of an audience, at most `bound`; fails with the SQLSTATE 57014 after 54 s.
    package func size(topic: String?, bound: Int64) async throws(PostgresError) -> Int64 {
        let result = try await self.pool.query(BroadcastSQL.size, .text(topic), .int8(bound), timeout: .seconds(60))
        guard let row = result.first else { return 0 }
        return try row.int8(0)
    }

    /// Records the size of an audience and whether the expansion starts.
    package func counted(
        _ broadcast: Broadcast,
        size: Int64,
        isConfirmed: Bool
    ) async throws(PostgresError) {
        let next = isConfirmed ? Broadcast.State.expanding : .awaitingConfirmation
        try await self.pool.query(
            BroadcastSQL.counted, .id(broadcast.id), .int8(size), .text(next.rawValue)
        )
    }

    /// Deletes up to `limit` ended broadcasts that were created before a moment.
    ///
    /// - Parameter pages: the most pages of them together; a single broadcast may have more.
    /// - Returns: the number of broadcasts; 0 if none is left.
    package func forget(before: Timestamp, limit: Int, pages: Int) async throws(PostgresError) -> Int {
        try await self.pool.query(
            BroadcastSQL.forget, .timestamp(before), .int4(clamping: limit), .int8(Int64(pages))
        ).affectedRows
    }

    // MARK: Reading and steering

    /// The broadcast of a job and its progress; nil if the job is no broadcast.
    package func find(_ name: CancellationStore.Name) async throws(PostgresError) -> Broadcast.Progress? {
        let result = try await self.pool.query(
            BroadcastSQL.find, .text(name.org), .texts(name.ids), .texts(name.entries))
        guard let row = result.first else { return nil }
        return try BroadcastColumns.progress(row)
    }

    /// Whether an entry, `stream/entry`, is the first one of a broadcast.
    package func isKnown(entry: String) async throws(PostgresError) -> Bool {
        try await !self.pool.query(BroadcastSQL.ofEntry, .text(entry)).isEmpty
    }

    /// Broadcasts, newest first.
    package func list(
        before: BroadcastID?,
        state: Broadcast.State?,
        limit: Int
    ) async throws(PostgresError) -> [Broadcast.Progress] {
        let before = before ?? .greatest
        let result = try await self.pool.query(BroadcastSQL.list(state), .id(before), .int4(clamping: limit))
        return try result.map { (row) throws(PostgresError) in try BroadcastColumns.progress(row) }
    }

    /// The number of broadcasts that wait for an operator, by state: awaiting confirmation, paused,
    /// and failed; at most 10,000 in all.
    package func waiting() async throws(PostgresError) -> [Broadcast.State: Int64] {
        var counts: [Broadcast.State: Int64] = [.awaitingConfirmation: 0, .paused: 0, .failed: 0]
        for row in try await self.pool.query(BroadcastSQL.waiting, .int4(clamping: 10_000)) {
            if let state = Broadcast.State(rawValue: try row.text(0)) { counts[state] = try row.int8(1) }
        }
        return counts
    }

    /// Changes the state of a broadcast if it is one of `states`; an uncounted audience is counted
    /// before the expansion.
    ///
    /// Waits for pages that are being stored; none follows a pause or a cancellation.
    ///
    /// - Returns: whether the state changed.
    package func transition(
        _ broadcast: Broadcast,
        to state: Broadcast.State,
        from states: Set<Broadcast.State>
    ) async throws(PostgresError) -> Bool {
        let results = try await self.pool.runDurably([
            Self.lock(broadcast.id, isShared: false),
            PostgresStatement(
                BroadcastSQL.transition,
                [.id(broadcast.id), .text(state.rawValue), .texts(states.map(\.rawValue))]
            ),
        ])
        return (results.last?.affectedRows ?? 0) > 0
    }
}
