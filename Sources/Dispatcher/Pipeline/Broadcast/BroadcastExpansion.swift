// Carillon · BroadcastExpansion.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Providers
import Storage

/// Turns broadcasts into notifications, page by page.
///
/// A page is one transaction: its notifications, its counts and the chain's new place. One that was stored and not handed
/// on, as its dispatcher died, is handed on by the sweeper; one that was not stored is begun anew.
struct BroadcastExpansion: Sendable {
    private static let pageSize = 1_000
    /// After so many pages a chain is given back, so that a more urgent one is taken first.
    private static let turn = 8
    private static let patience: Duration = .seconds(1)

    private enum Step {
        case goesOn
        case ended
    }

    let dispatcher: Dispatcher
    let highWaterMark: Int64

    /// Expands what there is to be expanded.
    func work() async throws {
        while goesOn, let chain = try await self.dispatcher.broadcasts.claimChain(by: self.dispatcher.name) {
            if try await self.isHeld(chain.broadcast) {
                try await self.dispatcher.broadcasts.hold(chain.broadcast)
                try await self.dispatcher.broadcasts.release(chain, by: self.dispatcher.name)
                PipelineMetrics.heldBroadcasts.increment()
                // A full stream tells nobody that it has room again.
                await pause(for: Self.patience)
                continue
            }
            try await self.expand(chain)
        }
    }

    private func expand(_ chain: Broadcast.Chain) async throws {
        var chain = chain
        for _ in 0..<Self.turn {
            guard goesOn, try await self.expandPage(&chain) == .goesOn else { break }
        }
        try await self.dispatcher.broadcasts.release(chain, by: self.dispatcher.name)
    }

    /// Whether the providers have more to do than they can.
    private func isHeld(_ broadcast: Broadcast) async throws -> Bool {
        var batch = RedisBatch()
        for provider in self.dispatcher.channels.providers {
            batch.append("XLEN", .text(self.dispatcher.keys.deliveries(provider, broadcast.lane)))
        }
        guard !batch.isEmpty else { return false }
        var waiting: Int64 = 0
        for reply in try await self.dispatcher.redis.send(batch) { waiting += try reply.integer() }
        return waiting >= self.highWaterMark
    }

    private func expandPage(_ chain: inout Broadcast.Chain) async throws -> Step {
        let broadcast = chain.broadcast
        let users = try await self.dispatcher.broadcasts.users(chain, limit: Self.pageSize)
        var page = Broadcast.Page(
            until: users.last ?? chain.reached,
            selected: 0,
            stored: 0,
            counted: [:],
            isLast: users.count < Self.pageSize
        )
        let intake = JobIntake(dispatcher: self.dispatcher)
        let catalog = self.dispatcher.catalog
        let content: JobIntake.PageContent
        do throws(JobFaults) {
            let job = try catalog.job(broadcast.fields, providers: ProviderKinds.providers)
            let except = Set(job.except.map { ExactText($0) })
            let selected = except.isEmpty ? users : users.filter { !except.contains(ExactText($0)) }
            page.selected = selected.count
            content = try intake.content(of: chain, job, catalog, users: selected)
        } catch {
            // It was understood when it came; the catalog has changed since.
            try await self.giveUp(broadcast, reason: error.description)
            return .ended
        }
        do {
            switch content {
            case .events(let events):
                page.counted = ["event": events.count]
                try await self.dispatcher.broadcasts.store(page, of: chain)
                try await Router(dispatcher: self.dispatcher).publish(events)
            case .later(let waiting):
                let now = self.dispatcher.now()
                // The same rows if it is done again; so they come first.
                let dead = try await ScheduleIntake(dispatcher: self.dispatcher).store([waiting], now: now)
                try await DeadLetterOffice(dispatcher: self.dispatcher).setAside(dead)
                page.counted = ["scheduled": page.selected]
                try await self.dispatcher.broadcasts.store(page, of: chain)
            case .notifications(let job):
                try await self.store(job, catalog, &page, of: chain)
            }
        } catch let error as PostgresError where BroadcastStore.isLost(error) {
            return .ended
        } catch let error as PostgresError where error.isRefusal {
            try await self.giveUp(broadcast, reason: "PostgreSQL refused it: SQLSTATE \(error.sqlState ?? "unknown")")
            return .ended
        }
        PipelineMetrics.pages.increment()
        chain.pages += 1
        chain.reached = page.until
        return page.isLast ? .ended : .goesOn
    }

    /// Stores and hands on what users want of a page, and counts the rest.
    private func store(
        _ job: PreparedJob,
        _ catalog: Catalog,
        _ page: inout Broadcast.Page,
        of chain: Broadcast.Chain
    ) async throws {
        var prepared = [job]
        var dead: [DeadLetter] = []
        var told: [LifecycleEvent] = []
        let wishes = try await JobIntake(dispatcher: self.dispatcher).complete(
            &prepared, catalog, now: self.dispatcher.now(), dead: &dead, told: &told)
        try await DeadLetterOffice(dispatcher: self.dispatcher).setAside(dead)
        let all = prepared.flatMap(\.notifications)
        let wanted = all.filter { $0.status == .pending }
        for notification in all where notification.status != .pending {
            page.counted[notification.statusReason ?? notification.status.rawValue, default: 0] += 1
        }
        // Who is in a letter, and whose waits for a digest.
        let wordless = prepared.reduce(0) { $0 + $1.wordless }
        if wordless > 0 { page.counted["text_failed"] = wordless }
        let repeated = prepared.reduce(0) { $0 + $1.repeated }
        if repeated > 0 { page.counted["duplicate"] = repeated }
        let held = page.selected - all.count - wordless - repeated
        if held > 0 { page.counted["held"] = held }
        if prepared.contains(where: \.isConflicting) { try await self.refuse(chain.broadcast) }
        page.stored = wanted.count
        guard !wanted.isEmpty else {
            try await self.dispatcher.broadcasts.store(page, of: chain)
            return await self.dispatcher.tell(told)
        }
        let complete = page
        let fence = self.dispatcher.fence()
        let batch = try await self.dispatcher.untilDone(
            "store a page",
            isFinal: { ($0 as? PostgresError)?.isRefusal ?? false }
        ) {
            try await self.dispatcher.notifications.store(
                wanted,
                withPage: BroadcastStore.statements(complete, of: chain),
                recount: BroadcastStore.recount(chain, wanted)
            )
        }
        let isConflicting = batch.outcomes.contains { if case .conflict = $0 { true } else { false } }
        if isConflicting { try await self.refuse(chain.broadcast) }
        let nothing = RecipientStore.Wishes()
        var open: [StoredBatch.Open] = []
        for (notification, outcome) in zip(wanted, batch.outcomes) {
            if case .cancelled = outcome { told += self.dispatcher.event(.cancelled, of: notification) }
            // What was there before is the sweeper's, or done.
            guard case .stored = outcome, var item = StoredBatch.Open(notification, outcome) else { continue }
            item.wishes = wishes[notification.id] ?? nothing
            open.append(item)
        }
        let router = Router(dispatcher: self.dispatcher)
        try await router.route(open, catalog: catalog, within: fence)
        try await router.publish(batch.replacements)
        await self.dispatcher.tell(told + self.dispatcher.events(of: batch.replacements))
    }

    /// Says that some users have a broadcast's id with other content: one letter, however many pages find such users.
    private func refuse(_ broadcast: Broadcast) async throws {
        let letter = self.letter(of: broadcast, reason: JobIntake.conflictReason)
        let isKnown = try await self.dispatcher.untilDone("look for a dead letter") {
            try await self.dispatcher.deadLetters.has(stream: letter.stream, entry: letter.entry)
        }
        guard !isKnown else { return }
        try await DeadLetterOffice(dispatcher: self.dispatcher).setAside([letter])
    }

    private func letter(of broadcast: Broadcast, reason: String) -> DeadLetter {
        DeadLetter(
            stream: broadcast.stream,
            entry: broadcast.entry.split(separator: "/").last.map { String($0) } ?? "",
            reason: reason,
            at: self.dispatcher.now(),
            fields: broadcast.fields
        )
    }

    /// Nothing of a broadcast that cannot be stored is tried again: its job becomes a dead letter.
    private func giveUp(_ broadcast: Broadcast, reason: String) async throws {
        let letter = self.letter(of: broadcast, reason: reason)
        try await DeadLetterOffice(dispatcher: self.dispatcher).setAside([letter])
        try await self.dispatcher.broadcasts.fail(broadcast, reason: reason)
        self.dispatcher.logger.error(
            "broadcast given up",
            metadata: ["broadcast.id": "\(broadcast.id)", "reason": "\(reason)"]
        )
    }
}
