// Carillon · BroadcastExpansion.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Providers
import Storage

/// Expands broadcasts into notifications, page by page.
///
/// A page is one transaction: its notifications, its counts and the chain's new position. After a
/// crash, the sweeper routes a page that was stored; another dispatcher starts over a page that was
/// not.
struct BroadcastExpansion: Sendable {
    private static let pageSize = 1_000
    /// After this many pages a chain is released, so that a more urgent one can be claimed.
    private static let turn = 8
    private static let patience: Duration = .seconds(1)

    private enum Step {
        case hasMore
        case ended
    }

    let dispatcher: Dispatcher
    let highWaterMark: Int64

    /// Expands until no chain is left; a full lane holds back only its own notifications.
    ///
    /// Every second turn goes to the next organisation, for its least-served broadcast. So neither
    /// a large broadcast nor many of one organisation delay later ones.
    func work() async throws {
        let store = self.dispatcher.database.broadcasts
        var full: Set<Lane> = []
        var isShared = false
        var lastOrg = ""
        while isRunning {
            let next = try await store.claimChain(
                by: self.dispatcher.name, outside: full, after: isShared ? lastOrg : nil)
            guard let chain = next else {
                if isShared {
                    // Only some broadcasts share turns, and these may all have just ended.
                    isShared = false
                    continue
                }
                guard !full.isEmpty else { return }
                // Redis does not signal room in a stream, so poll.
                await pause(for: Self.patience)
                full = []
                continue
            }
            if isShared { lastOrg = chain.broadcast.org }
            let lane = chain.broadcast.lane
            if !chain.broadcast.isEvent, try await self.dispatcher.isFull(lane, above: self.highWaterMark) {
                try await store.markHeld(lane)
                try await store.release(chain, by: self.dispatcher.name)
                PipelineMetrics.heldBroadcasts.increment()
                full.insert(lane)
                continue
            }
            try await self.expand(chain)
            full = []
            isShared.toggle()
        }
    }

    private func expand(_ chain: Broadcast.Chain) async throws {
        var chain = chain
        for _ in 0..<Self.turn {
            guard isRunning, try await self.expandPage(&chain) == .hasMore else { break }
        }
        try await self.dispatcher.database.broadcasts.release(chain, by: self.dispatcher.name)
    }

    private func expandPage(_ chain: inout Broadcast.Chain) async throws -> Step {
        let broadcast = chain.broadcast
        let users = try await self.dispatcher.database.broadcasts.users(chain, limit: Self.pageSize)
        var page = Broadcast.Page(
            until: users.last ?? chain.reached,
            selected: 0,
            stored: 0,
            counted: [:],
            isLast: users.count < Self.pageSize
        )
        let intake = JobIntake(dispatcher: self.dispatcher)
        let catalog = await self.dispatcher.catalog(for: broadcast.fields)
        let content: JobIntake.PageContent
        do throws(JobFaults) {
            let job = try catalog.job(broadcast.fields)
            let except = Set(job.except.map { ExactText($0) })
            let selected = except.isEmpty ? users : users.filter { !except.contains(ExactText($0)) }
            page.selected = selected.count
            content = try intake.content(of: chain, job, catalog, users: selected)
        } catch {
            // The job was valid when it came; the catalog has changed since.
            try await self.giveUp(broadcast, reason: error.description)
            return .ended
        }
        do {
            switch content {
            case _ where page.isEmptyEnd:
                try await self.dispatcher.database.broadcasts.store(page, of: chain)
            case .events(let frames):
                page.counted.add(frames.count, .event)
                try await self.dispatcher.database.broadcasts.store(page, of: chain)
                try await Router(dispatcher: self.dispatcher).publish(frames)
            case .later(let waiting):
                let (uncounted, current) = (page, chain)
                let dead = try await ScheduleIntake(dispatcher: self.dispatcher).store(
                    [waiting], now: self.dispatcher.now()
                ) { late in
                    var page = uncounted
                    page.counted.add(page.selected - late, .scheduled)
                    page.counted.add(late, .missed)
                    return BroadcastStore.statements(page, of: current)
                }
                try await DeadLetterQueue(dispatcher: self.dispatcher).setAside(dead)
            case .notifications(let job):
                try await self.store(job, catalog, page, of: chain)
            }
        } catch let error as PostgresError where BroadcastStore.isLost(error) {
            return .ended
        } catch let error as PostgresError where error.isRefusal {
            try await self.giveUp(broadcast, reason: error.refusalReason)
            return .ended
        }
        if !page.isEmptyEnd { PipelineMetrics.pages.increment() }
        chain.pages += 1
        chain.reached = page.until
        return page.isLast ? .ended : .hasMore
    }

    /// Stores and routes the notifications that users want, and counts the others.
    private func store(
        _ job: PreparedJob,
        _ catalog: Catalog,
        _ page: Broadcast.Page,
        of chain: Broadcast.Chain
    ) async throws {
        var page = page
        var lifecycle: [LifecycleEvent] = []
        let wanted = try await self.countUnwanted(job, catalog, &page, of: chain, lifecycle: &lifecycle)
        if wanted.isEmpty {
            try await self.dispatcher.database.broadcasts.store(page, of: chain)
        } else {
            lifecycle += try await self.storeWanted(wanted, catalog, page, of: chain)
        }
        await self.dispatcher.report(lifecycle)
    }

    /// Completes a page's job, and counts the users who do not want its notification.
    ///
    /// - Returns: the notifications to store.
    private func countUnwanted(
        _ job: PreparedJob,
        _ catalog: Catalog,
        _ page: inout Broadcast.Page,
        of chain: Broadcast.Chain,
        lifecycle: inout [LifecycleEvent]
    ) async throws -> [RoutedNotification] {
        var prepared = [job]
        var dead: [DeadLetter] = []
        try await JobIntake(dispatcher: self.dispatcher).complete(
            &prepared, catalog, now: self.dispatcher.now(), dead: &dead, lifecycle: &lifecycle)
        try await DeadLetterQueue(dispatcher: self.dispatcher).setAside(dead)
        page.counted = prepared[0].removeUnwanted()
        page.stored = prepared[0].notifications.count
        if !prepared[0].conflicting.isEmpty { try await self.refuse(chain.broadcast) }
        return prepared[0].notifications
    }

    /// Stores a page with its notifications, and routes them.
    ///
    /// - Returns: the events for upstream apps.
    private func storeWanted(
        _ open: [RoutedNotification],
        _ catalog: Catalog,
        _ page: Broadcast.Page,
        of chain: Broadcast.Chain
    ) async throws -> [LifecycleEvent] {
        let wanted = open.map(\.notification)
        let fence = self.dispatcher.fence()
        var tries = 0
        let batch: NotificationStore.Batch
        do {
            batch = try await self.dispatcher.retrying(
                "store a page",
                isFinal: JobIntake.isRefusal
            ) {
                tries += 1
                return try await self.dispatcher.database.notifications.storeBroadcastPage(
                    wanted,
                    page: BroadcastStore.statements(page, of: chain),
                    recount: BroadcastStore.recount(chain, wanted)
                )
            }
        } catch {
            if tries > 1, let error = error as? PostgresError, BroadcastStore.isLost(error) {
                try await self.routeStored(wanted, catalog)
            }
            throw error
        }
        let isConflicting = batch.outcomes.contains { if case .conflict = $0 { true } else { false } }
        if isConflicting { try await self.refuse(chain.broadcast) }
        var lifecycle: [LifecycleEvent] = []
        var fresh: [RoutedNotification] = []
        for (item, outcome) in zip(open, batch.outcomes) {
            lifecycle += self.dispatcher.events(of: item.notification, stored: outcome)
            // The sweeper routes what was stored before.
            if let item = item.toRoute(after: outcome) { fresh.append(item) }
        }
        let router = Router(dispatcher: self.dispatcher)
        try await router.route(fresh, catalog: catalog, within: fence)
        try await router.publish(batch.replacements)
        return lifecycle + self.dispatcher.events(of: batch.replacements)
    }

    /// Routes the stored notifications of a page that have no owner.
    ///
    /// An earlier try may have committed the page although its answer was lost. If another
    /// dispatcher committed it, both route it, and each user still gets one notification.
    private func routeStored(_ notifications: [Notification], _ catalog: Catalog) async throws {
        let router = Router(dispatcher: self.dispatcher)
        try await router.route(try await router.unowned(among: notifications), catalog: catalog)
    }

    /// Stores one dead letter for a broadcast whose id some users already have with other content.
    private func refuse(_ broadcast: Broadcast) async throws {
        let letter = broadcast.deadLetter(JobIntake.conflictReason, at: self.dispatcher.now())
        let known = try await self.dispatcher.retrying("look for a dead letter") {
            try await self.dispatcher.database.deadLetters.reason(stream: letter.stream, entry: letter.entry)
        }
        guard known == nil else { return }
        try await DeadLetterQueue(dispatcher: self.dispatcher).setAside([letter])
    }

    /// Ends a broadcast that cannot be stored: adds a dead letter, and does not retry.
    private func giveUp(_ broadcast: Broadcast, reason: String) async throws {
        let letter = broadcast.deadLetter(reason, at: self.dispatcher.now())
        try await DeadLetterQueue(dispatcher: self.dispatcher).setAside([letter], replacesKnown: true)
        try await self.dispatcher.database.broadcasts.fail(broadcast, reason: reason)
        self.dispatcher.logger.error(
            "broadcast failed; fix the reason, then resume it",
            metadata: ["broadcast.id": "\(broadcast.id)", "job.id": "\(broadcast.job)", "reason": "\(reason)"]
        )
    }
}

extension Dispatcher {
    /// Whether so many deliveries wait in a lane that its broadcasts must wait.
    ///
    /// Deliveries that a rate or an open breaker holds back count too, because Redis must have room
    /// for them.
    ///
    /// - Parameter isPatient: whether to wait for a server of a cluster that is away.
    func isFull(_ lane: Lane, above highWaterMark: Int64, isPatient: Bool = true) async throws -> Bool {
        let providers = self.channels.providers
        guard !providers.isEmpty else { return false }
        let count = try await self.live.waitingDeliveries(of: providers, lane: lane, isPatient: isPatient)
        return count >= highWaterMark
    }
}
