// Carillon · JobControl.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import Storage

/// Jobs after they were sent: how they stand, and calling them off.
package struct JobControl: Sendable {
    /// How a job stands.
    package struct Report: Sendable {
        package let name: CancellationStore.Name
        /// Nil if nobody wanted them counted.
        package let tally: CancellationStore.Tally?
        package let cancelledAt: Timestamp?
        /// How far it has come, if it is for a topic's subscribers or for everyone.
        package let progress: Broadcast.Progress?
        /// How many rows of it wait for their moment.
        package let scheduled: Int
        /// Whether nothing of it is under way any more, so far as it was counted.
        package let isFinal: Bool
    }

    /// What services say about a broadcast.
    package enum Order: Sendable {
        case pause, resume, confirm

        fileprivate var state: Broadcast.State { self == .pause ? .paused : .expanding }

        /// From which states it leads there.
        fileprivate var states: Set<Broadcast.State> {
            switch self {
            case .pause: [.counting, .expanding]
            case .resume: [.paused]
            case .confirm: [.awaitingConfirmation]
            }
        }

        /// In which states it has been obeyed before.
        fileprivate var obeyed: Set<Broadcast.State> {
            switch self {
            case .pause: [.paused]
            case .resume, .confirm: [.counting, .expanding, .done]
            }
        }
    }

    private static let pageSize = 500
    /// The last millisecond of the year 9999.
    private static let latest: Int64 = 253_402_300_799_999
    /// Longer than any call to a provider takes: what was with one when its job was cancelled is settled after this.
    private static let longestFlight: Duration = .seconds(120)

    private let cancellations: CancellationStore
    private let broadcasts: BroadcastStore
    private let schedules: ScheduleStore
    private let publisher: FramePublisher
    private let events: EventTeller
    private let keys: Keyspace
    private let now: @Sendable () -> Timestamp
    private let logger: Logger

    package init(
        cancellations: CancellationStore,
        broadcasts: BroadcastStore,
        schedules: ScheduleStore,
        publisher: FramePublisher,
        events: EventTeller = EventTeller(),
        keys: Keyspace,
        now: @escaping @Sendable () -> Timestamp,
        logger: Logger
    ) {
        self.cancellations = cancellations
        self.broadcasts = broadcasts
        self.schedules = schedules
        self.publisher = publisher
        self.events = events
        self.keys = keys
        self.now = now
        self.logger = logger
    }

    /// What a job is called: its own id, or its entry's (`1700000000000-0`), with the stream before it (`stream/entry`) or
    /// without.
    package func name(org: String, id: String) -> CancellationStore.Name {
        let parts = id.split(separator: "/", omittingEmptySubsequences: false)
        let numbers = (parts.last ?? "").split(separator: "-", omittingEmptySubsequences: false)
        let streams = Lane.allCases.map { self.keys.jobs($0) }
        guard parts.count <= 2, numbers.count == 2, let milliseconds = Int64(numbers[0]), UInt64(numbers[1]) != nil,
            (0...Self.latest).contains(milliseconds),
            parts.count == 1 || streams.contains(String(parts[0]))
        else { return CancellationStore.Name(org: org, id: id) }
        return CancellationStore.Name(
            org: org,
            id: id,
            entries: parts.count == 2 ? [id] : streams.map { "\($0)/\(id)" },
            addedAt: Timestamp(milliseconds: milliseconds)
        )
    }

    /// How a job stands; nil if nothing is known of it.
    ///
    /// - Parameter isCounted: whether its notifications are counted, which takes a while where they are a million.
    package func find(_ name: CancellationStore.Name, isCounted: Bool = true) async throws -> Report? {
        if let progress = try await self.broadcasts.find(name) {
            return try await self.report(name, progress, isCounted: isCounted)
        }
        let tally = try await self.cancellations.tally(name)
        let cancelledAt = try await self.cancellations.cancelledAt(name)
        let scheduled = try await self.schedules.count(name)
        guard tally.total > 0 || cancelledAt != nil || scheduled > 0 else { return nil }
        let isSettled = tally.total > 0 && scheduled == 0 && self.isSettled(tally, cancelledAt)
        return Report(
            name: name, tally: tally, cancelledAt: cancelledAt, progress: nil, scheduled: scheduled, isFinal: isSettled)
    }

    private func report(
        _ name: CancellationStore.Name,
        _ progress: Broadcast.Progress,
        isCounted: Bool
    ) async throws -> Report {
        let broadcast = progress.broadcast
        let own = Self.ownName(of: broadcast)
        let cancelledAt = try await self.cancellations.cancelledAt(own)
        // What is being withdrawn is told apart from what is too late.
        let isCancelling = broadcast.state == .cancelling
        let tally = isCounted ? try await self.cancellations.tally(own, tellsOpen: isCancelling) : nil
        let isSettled = tally.map { self.isSettled($0, cancelledAt) } ?? false
        let scheduled = try await self.schedules.count(own)
        return Report(
            name: name,
            tally: tally,
            cancelledAt: cancelledAt,
            progress: progress,
            scheduled: scheduled,
            isFinal: broadcast.state.isFinal && scheduled == 0 && isSettled
        )
    }

    /// What a broadcast's own notifications are found by.
    private static func ownName(of broadcast: Broadcast) -> CancellationStore.Name {
        CancellationStore.Name(org: broadcast.org, id: broadcast.job)
    }

    /// Whether nothing of a job is under way.
    private func isSettled(_ tally: CancellationStore.Tally, _ cancelledAt: Timestamp?) -> Bool {
        let isSettled = tally.inFlight == 0 || cancelledAt.map { $0 + Self.longestFlight < self.now() } ?? false
        return isSettled && ![.pending, .deferred].contains { tally.counts[$0, default: 0] > 0 }
    }

    /// Pauses, resumes or confirms a broadcast; may be repeated.
    ///
    /// - Returns: how it stands, and whether it is as it was ordered; nil if the job is no broadcast.
    package func order(
        _ order: Order,
        _ name: CancellationStore.Name
    ) async throws -> (report: Report, isObeyed: Bool)? {
        guard let found = try await self.broadcasts.find(name) else { return nil }
        let isChanged = try await self.broadcasts.steer(found.broadcast, to: order.state, from: order.states)
        guard let progress = try await self.broadcasts.find(name) else { return nil }
        let report = try await self.report(name, progress, isCounted: false)
        return (report, isChanged || order.obeyed.contains(progress.broadcast.state))
    }

    /// Calls a job off: what of it comes later is stored as cancelled, what nobody has got yet is cancelled and leaves the
    /// inboxes.
    ///
    /// May be repeated. One that was cut short has done a part of it, and goes on from there. A broadcast expands no more when
    /// this returns; what it stored is withdrawn by the dispatchers.
    package func cancel(_ name: CancellationStore.Name) async throws -> Report? {
        let at = self.now()
        try await self.cancellations.record(name, at: at)
        // What waits for its moment may wait longer than cancellations are kept.
        try await self.schedules.callOff(name, at: at)
        if let broadcast = try await self.broadcasts.find(name)?.broadcast {
            let own = Self.ownName(of: broadcast)
            try await self.cancellations.record(own, at: at)
            _ = try await self.broadcasts.steer(
                broadcast,
                to: .cancelling,
                from: [.counting, .awaitingConfirmation, .expanding, .paused, .done, .failed]
            )
            // Pages that were being stored had their parts wait first.
            try await self.schedules.callOff(own, at: at)
            return try await self.find(name)
        }
        for id in name.ids {
            var last = ""
            while true {
                let page = try await self.cancellations.page(org: name.org, job: id, after: last, limit: Self.pageSize)
                guard let end = page.last else { break }
                last = end.user
                try await self.withdraw(page, at: at)
            }
        }
        try await self.withdraw(try await self.cancellations.ofEntry(name), at: at)
        return try await self.find(name)
    }

    private func withdraw(_ keys: [(user: String, id: NotificationID)], at: Timestamp) async throws {
        let seen = try await self.cancellations.endSeen(keys)
        await self.events.tell(seen.compactMap { $0.event(at: at) })
        await self.tell(try await self.cancellations.cancel(keys, at: at), at: at)
    }

    /// Tells the upstream apps, and the sockets as of any deletion: one that misses it finds a hole before its next frame
    /// and fills it.
    private func tell(_ withdrawals: [CancellationStore.Withdrawal], at: Timestamp) async {
        let frames = withdrawals.compactMap { withdrawal -> NodeFrame? in
            guard let place = withdrawal.place else { return nil }
            return NodeFrame(
                kind: .deleted,
                user: withdrawal.user,
                previous: place.version - 1,
                version: place.version,
                unread: place.unread,
                body: InboxChangeShape.encode(.ids([withdrawal.id]), at: at)
            )
        }
        do {
            try await self.publisher.publish(frames)
        } catch {
            self.logger.warning("cancellation not told to sockets", metadata: ["error": "\(error)"])
        }
        await self.events.tell(withdrawals.map { LifecycleEvent(.cancelled, $0.label, at: at) })
    }
}
