// Carillon · StandbyReads.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Synchronization

/// Pages of inboxes from a standby of PostgreSQL.
///
/// The primary says which state the page must have, so a standby that lags never shows an old one.
package final class StandbyReads: Sendable {
    /// How a page was answered.
    package enum Outcome: String, Sendable, CaseIterable {
        /// The standby was up to date.
        case served
        /// The standby lagged, and the primary was asked.
        case older
        /// The standby did not answer, or failed just before, and the primary was asked.
        case failed
    }

    /// How long a standby is left alone that failed: a page waits for its time limit first.
    private static let rest: Duration = .seconds(5)

    private let reads: InboxReads
    private let note: @Sendable (Outcome) -> Void
    private let failedAt = Mutex<ContinuousClock.Instant?>(nil)

    /// - Parameter note: counts the outcomes.
    package init(_ pool: PostgresPool, note: @escaping @Sendable (Outcome) -> Void) {
        self.reads = InboxReads(pool: pool)
        self.note = note
    }

    /// Returns the page; nil if the primary must be asked.
    ///
    /// - Parameter state: what the primary has.
    func page(_ request: InboxReads.PageRequest, of state: InboxStore.State) async -> InboxStore.Page? {
        let (page, outcome) = await self.read(request, of: state)
        self.note(outcome)
        return page
    }

    private func read(
        _ request: InboxReads.PageRequest,
        of state: InboxStore.State
    ) async -> (InboxStore.Page?, Outcome) {
        if let failedAt = self.failedAt.withLock({ $0 }), .now - failedAt < Self.rest { return (nil, .failed) }
        guard let page = try? await self.reads.pages.value(request) else {
            self.failedAt.withLock { $0 = .now }
            return (nil, .failed)
        }
        return page.state.isAtLeast(state) ? (page, .served) : (nil, .older)
    }
}

extension InboxStore.State {
    /// Whether a page of this state shows all that one of the other would.
    fileprivate func isAtLeast(_ other: InboxStore.State) -> Bool {
        self.begun == other.begun && self.version >= other.version && self.notes >= other.notes
    }
}
