// Carillon · BroadcastWithdrawal.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import Storage

/// Takes back what a cancelled broadcast stored and nobody has got yet, in pages that hold few locks for a short time.
///
/// The gate lets none of it pass from the moment of the cancellation on, however long this takes.
struct BroadcastWithdrawal: Sendable {
    private static let pageSize = 500

    let dispatcher: Dispatcher

    func work() async throws {
        let store = self.dispatcher.broadcasts
        while goesOn, var broadcast = try await store.claim(.cancelling, by: self.dispatcher.name) {
            while goesOn, try await self.withdrawPage(&broadcast) {}
        }
    }

    /// Withdraws the next page; whether there may be another.
    private func withdrawPage(_ broadcast: inout Broadcast) async throws -> Bool {
        let at = self.dispatcher.now()
        let page = try await self.dispatcher.cancellations.page(
            org: broadcast.org,
            job: broadcast.job,
            after: broadcast.withdrawnTo,
            limit: Self.pageSize
        )
        let seen = try await self.dispatcher.cancellations.endSeen(page)
        await self.dispatcher.tell(seen.compactMap { $0.event(at: at) })
        let withdrawn = try await self.dispatcher.cancellations.cancel(page, at: at)
        await self.tell(withdrawn, at: at)
        let isLast = page.count < Self.pageSize
        broadcast.withdrawnTo = page.last?.user ?? broadcast.withdrawnTo
        try await self.dispatcher.broadcasts.withdrawn(
            broadcast,
            to: broadcast.withdrawnTo,
            count: withdrawn.count,
            isLast: isLast
        )
        return !isLast
    }

    private func tell(_ withdrawals: [CancellationStore.Withdrawal], at: Timestamp) async {
        let publisher = FramePublisher(
            self.dispatcher.live, presence: self.dispatcher.presence
        )
        let frames = withdrawals.compactMap { withdrawal in
            withdrawal.place.map { place in
                NodeFrame(
                    kind: .deleted,
                    user: withdrawal.user,
                    previous: place.version - 1,
                    version: place.version,
                    unread: place.unread,
                    body: InboxChangeShape.encode(.ids([withdrawal.id]), at: at)
                )
            }
        }
        do {
            try await publisher.publish(frames)
        } catch {
            // A socket that misses it finds a hole before its next frame and fills it from the inbox.
            self.dispatcher.logger.warning("cancellation not told to sockets", metadata: ["error": "\(error)"])
        }
        await self.dispatcher.tell(withdrawals.map { LifecycleEvent(.cancelled, $0.label, at: at) })
    }
}
