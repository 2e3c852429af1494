// Carillon · Repair.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import Storage

/// Enqueues again what Redis or PostgreSQL may have lost.
struct Repair: Sendable {
    /// A span of time by PostgreSQL's clock, with both ends.
    struct Span: Sendable {
        let since: Timestamp
        let until: Timestamp
    }

    private static let batchSize = 256
    /// The notifications that a statement inspects for lost deliveries; few have any.
    private static let lostBatchSize = 512
    /// How far back a push may still be retried for a device; bulk gives up after a day.
    private static let tries: Duration = .seconds(2 * 24 * 3_600)

    private let dispatcher: Dispatcher
    private let turn: SweepTurn
    private let waiting: WaitingRetries
    private let router: Router
    private let absent: AbsentParts
    private let now: Timestamp
    private let sliceSize: Int

    /// - Parameters:
    ///   - absent: the parts to leave out.
    ///   - sliceSize: the rows of either kind that a statement reads at most.
    init(dispatcher: Dispatcher, turn: SweepTurn, absent: AbsentParts, now: Timestamp, sliceSize: Int) {
        self.dispatcher = dispatcher
        self.turn = turn
        // Shared, so that all pages together read the waiting deliveries once.
        self.waiting = WaitingRetries(dispatcher.live, most: SweepService.mostWaiting)
        self.router = Router(dispatcher: dispatcher, waiting: self.waiting)
        self.absent = absent
        self.now = now
        self.sliceSize = sliceSize
    }

    /// Enqueues again what may have been lost in these spans.
    ///
    /// - Parameter ahead: a span after now; nil unless PostgreSQL's clock has stepped back.
    func run(_ lost: Span, ahead: Span?) async throws {
        self.dispatcher.logger.notice(
            "Redis or PostgreSQL restarted, failed over or was restored; enqueueing possibly lost work again",
            metadata: ["since": "\(lost.since.rfc3339)"]
        )
        // First: the rows of `lost` get a moment after `now` when they are enqueued again. That is
        // inside `ahead`, which would find them a second time.
        if let ahead { try await self.enqueueAgain(ahead) }
        try await self.enqueueAgain(lost)
        let unread = await self.waiting.unread
        if unread > 0 {
            self.dispatcher.logger.warning(
                "too many deliveries wait for a retry or are held back; the repair may have sent some of them early",
                metadata: ["count": "\(unread)"])
        }
    }

    private func enqueueAgain(_ span: Span) async throws {
        try await self.recallFollowUps(span)
        try await self.pushQueued(span)
        try await self.repeatLost(span)
    }

    /// Makes follow-ups due again that were handed to a provider, page by page, oldest first.
    private func recallFollowUps(_ span: Span) async throws {
        let followUps = self.dispatcher.database.followUps
        try await followUps.recallExpected(now: self.now)
        var cursor: Timestamp? = span.since
        while let from = cursor {
            // The next sweep starts over.
            guard isRunning else { throw CancellationError() }
            cursor = try await followUps.recall(handedOnSince: from, until: span.until, now: self.now)
            try await self.turn.renew()
        }
    }

    /// Enqueues pushes again that wait for a provider, page by page, oldest first.
    private func pushQueued(_ span: Span) async throws {
        try await self.inSlices(span) { start, end, cursor in
            let (page, last) = try await self.dispatcher.database.sweep.queued(
                handedOnSince: start, until: end, after: cursor, limit: Self.batchSize)
            let reachable = page.filter { !self.absent.contains($0.user) }
            try await self.router.pushAgain(reachable)
            self.dispatcher.recordSwept("found queued notifications; enqueued them again", reachable.count)
            return last
        }
    }

    /// Enqueues deliveries again that waited for one device, although another device's delivery had
    /// ended the notification.
    private func repeatLost(_ span: Span) async throws {
        let tried = Span(since: max(span.since, self.now - Self.tries), until: span.until)
        try await self.inSlices(tried) { start, end, cursor in
            let (lost, last) = try await self.dispatcher.database.deliveries.lost(
                handedOnSince: start, until: end, after: cursor, now: self.now, limit: Self.lostBatchSize)
            let reachable = lost.filter { !self.absent.contains($0.user) }
            try await self.router.deliverAgain(reachable)
            self.dispatcher.recordSwept("found lost deliveries; enqueued them again", reachable.count)
            return last
        }
    }

    /// Reads pages of one slice after the other.
    ///
    /// One statement can read all rows of a slice. All slices together may take long, so the turn
    /// is renewed. If it is lost, another dispatcher appends the same deliveries again; claims and
    /// attempts reveal the repeats.
    private func inSlices(
        _ span: Span,
        _ page: (_ start: Timestamp, _ end: Timestamp, _ after: RepairCursor) async throws -> RepairCursor?
    ) async throws {
        var start = span.since
        while start <= span.until {
            let end = try await self.dispatcher.database.sweep.repairEnd(
                from: start, until: span.until, size: self.sliceSize)
            var cursor: RepairCursor? = RepairCursor(start)
            while let after = cursor {
                // The next sweep starts over.
                guard isRunning else { throw CancellationError() }
                cursor = try await page(start, end, after)
                try await self.turn.renew()
            }
            start = end + .microseconds(1)
        }
    }
}
