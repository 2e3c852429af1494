// Carillon · StandbyReads.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Synchronization

/// Pages of inboxes from a standby of PostgreSQL.
///
/// The primary supplies the state that the page must have, so a standby that lags never serves an
/// old page.
package final class StandbyReads: Sendable {
    /// How a page was answered.
    package enum Outcome: String, Sendable, CaseIterable {
        /// The standby was up to date.
        case served
        /// The standby lagged, and the primary was asked.
        case older
        /// The standby did not answer in time, or failed just before, and the primary was asked.
        case failed
    }

    /// How long a page may wait for its turn on the standby; the primary is asked afterwards.
    private static let patience: Duration = .seconds(1)
    private static let mostWaiting = 1_000

    private let pages: ReadQueue<InboxReads.PageRequest, InboxStore.Page>
    private let note: @Sendable (Outcome) -> Void

    /// - Parameter note: counts the outcomes.
    package init(_ pool: PostgresPool, note: @escaping @Sendable (Outcome) -> Void) {
        self.note = note
        let rest = StandbyRest()
        // Checked in the queue, so requests behind a failed read do not each try the standby.
        self.pages = InboxReads.pageQueue(patience: Self.patience, mostWaiting: Self.mostWaiting) {
            (requests) throws(PostgresError) in
            guard rest.mayTry() else { throw PostgresError(.unavailable, "the standby failed just before") }
            do throws(PostgresError) {
                let pages = try await InboxReads.pages(requests, pool)
                rest.end()
                return pages
            } catch {
                if error.isStatementTimeout {
                    rest.timedOut()
                } else if !error.isRefusal, error.code != .cancelled {
                    rest.begin()
                }
                throw error
            }
        }
    }

    /// Returns the page; nil if the primary must be asked.
    ///
    /// - Parameter state: the state on the primary.
    func page(_ request: InboxReads.PageRequest, of state: InboxStore.State) async -> InboxStore.Page? {
        guard let page = try? await self.pages.value(request) else {
            self.note(.failed)
            return nil
        }
        let isCurrent = page.state.isAtLeast(state)
        self.note(isCurrent ? .served : .older)
        return isCurrent ? page : nil
    }
}

/// Pauses reads from a standby that failed, because each would first wait for its time limit.
private final class StandbyRest: Sendable {
    private static let length: Duration = .seconds(5)
    /// So many reads in a row that take too long mean that the standby is slow for all, and not
    /// that one user's page is.
    private static let mostTimeouts = 3

    private struct State {
        /// When the rest began; nil while there is none.
        var since: ContinuousClock.Instant?
        /// The reads in a row that took too long.
        var timeouts = 0
    }

    private let state = Mutex(State())

    /// Whether the standby may be asked; after a rest, only one read tries.
    func mayTry() -> Bool {
        self.state.withLock { state in
            guard let begun = state.since else { return true }
            guard .now - begun >= Self.length else { return false }
            state.since = .now
            return true
        }
    }

    func begin() { self.state.withLock { $0.since = .now } }

    func timedOut() {
        self.state.withLock { state in
            state.timeouts += 1
            if state.timeouts >= Self.mostTimeouts { state.since = .now }
        }
    }

    func end() { self.state.withLock { $0 = State() } }
}

extension InboxStore.State {
    /// Whether a page read at this state is at least as new as one of the other.
    fileprivate func isAtLeast(_ other: InboxStore.State) -> Bool {
        self.begun == other.begun && self.version >= other.version && self.notes >= other.notes
    }
}
