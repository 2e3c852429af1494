// Carillon · JobControl.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Storage

/// Reports and controls jobs after they were sent.
package struct JobControl: Sendable {
    /// The state of a job.
    package struct Report: Sendable {
        package let name: CancellationStore.Name
        /// Nil if the notifications were not counted, or if the job was a scheduled event that was
        /// cancelled.
        package let tally: CancellationStore.Tally?
        package let cancelledAt: Timestamp?
        /// The progress of a broadcast.
        package let progress: Broadcast.Progress?
        /// The number of rows that are scheduled for later.
        package let scheduled: Int
        /// Whether every recipient has an outcome, as far as they were counted.
        package let isFinal: Bool
    }

    /// A command for a broadcast.
    package enum Order: Sendable {
        case pause, resume, confirm

        fileprivate var state: Broadcast.State { self == .pause ? .paused : .expanding }

        /// The states in which the command applies.
        fileprivate var states: Set<Broadcast.State> {
            switch self {
            case .pause: [.counting, .expanding]
            case .resume: [.paused, .failed]
            case .confirm: [.awaitingConfirmation]
            }
        }

        /// The states in which the command has already been carried out.
        fileprivate var targetStates: Set<Broadcast.State> {
            switch self {
            case .pause: [.paused]
            case .resume: [.counting, .expanding, .done]
            case .confirm: [.expanding, .done]
            }
        }
    }

    /// An entry id that several lanes have, so that it names several jobs.
    package struct AmbiguousEntry: Error, CustomStringConvertible {
        let entries: [String]

        package var description: String {
            "several jobs have this entry; name the stream too: \(self.entries.joined(separator: " or "))"
        }
    }

    private static let pageSize = 500
    /// Counting the millions of a broadcast takes long.
    private static let countingTime: Duration = .seconds(60)
    /// Longer than any provider call: calls in flight at the cancellation have ended after this.
    private static let longestFlight: Duration = .seconds(120)

    private let cancellations: CancellationStore
    private let broadcasts: BroadcastStore
    private let schedules: ScheduleStore
    private let publisher: FramePublisher
    private let events: EventPublisher
    private let keys: Keyspace
    private let now: @Sendable () -> Timestamp
    private let logger: Logger

    package init(
        _ database: Database,
        _ publisher: FramePublisher,
        keys: Keyspace,
        events: EventPublisher,
        now: @escaping @Sendable () -> Timestamp,
        logger: Logger
    ) {
        self.cancellations = database.cancellations
        self.broadcasts = database.broadcasts
        self.schedules = database.schedules
        self.publisher = publisher
        self.events = events
        self.keys = keys
        self.now = now
        self.logger = logger
    }

    /// Returns the name of a job from its own id, or from its entry: `1700000000000-0` or
    /// `stream/entry`.
    ///
    /// Parts may have the same entry id, so an entry without its stream belongs to a stream without
    /// a part: that of the lane in which it is known, or of any lane while it is unknown. The entry
    /// of a broadcast or of a scheduled job stands for the job's own id; a broadcast always has
    /// one.
    ///
    /// - Parameter isForCancelling: if the search times out, true returns the name for all lanes,
    ///   so that the cancellation is recorded; false throws the timeout.
    /// - Throws: ``AmbiguousEntry`` if it is known in several lanes.
    package func name(
        org: String,
        id: String,
        isForCancelling: Bool = false
    ) async throws -> CancellationStore.Name {
        var name = self.parsed(org: org, id: id)
        if name.entries.count > 1 {
            guard let known = try await self.known(name, mayTimeOut: isForCancelling) else { return name }
            // A job's own id may look like an entry.
            if known.contains(id) { return CancellationStore.Name(org: org, id: id) }
            guard known.count < 2 else { throw AmbiguousEntry(entries: known.sorted()) }
            if let entry = known.first { name = name.narrowed(to: entry) }
        }
        if let owner = try await self.schedules.owners(of: name).first { return owner }
        guard !name.entries.isEmpty, let found = try await self.broadcasts.find(name) else { return name }
        return Self.ownName(of: found.broadcast)
    }

    /// Returns the known ids and entries of a name; nil if the search times out and may do so.
    private func known(
        _ name: CancellationStore.Name,
        mayTimeOut: Bool
    ) async throws(PostgresError) -> [String]? {
        do throws(PostgresError) {
            return try await self.cancellations.known(name)
        } catch {
            guard mayTimeOut, error.code == .timeout || error.isStatementTimeout else { throw error }
            return nil
        }
    }

    private func parsed(org: String, id: String) -> CancellationStore.Name {
        let parts = id.split(separator: "/", omittingEmptySubsequences: false)
        let numbers = (parts.last ?? "").split(separator: "-", omittingEmptySubsequences: false)
        let streams = Lane.allCases.map { self.keys.jobs($0) }
        guard parts.count <= 2, numbers.count == 2, let milliseconds = Int64(numbers[0]), UInt64(numbers[1]) != nil,
            Timestamp.writableMilliseconds.contains(milliseconds),
            parts.count == 1 || self.keys.lane(ofJobs: String(parts[0])) != nil
        else { return CancellationStore.Name(org: org, id: id) }
        return CancellationStore.Name(
            org: org,
            id: id,
            entries: parts.count == 2 ? [id] : streams.map { "\($0)/\(id)" },
            addedAt: Timestamp(milliseconds: milliseconds)
        )
    }

    /// Returns the state of a job; nil if it is unknown.
    ///
    /// - Parameters:
    ///   - isCounted: whether to count its notifications, which is slow for a million of them.
    ///   - timeout: how long to count a broadcast's notifications before it is reported without
    ///     counts; nil throws after a minute.
    package func find(
        _ name: CancellationStore.Name,
        isCounted: Bool = true,
        countingFor timeout: Duration? = nil
    ) async throws -> Report? {
        if let progress = try await self.broadcasts.find(name) {
            do {
                return try await self.report(name, progress, isCounted: isCounted, countingFor: timeout)
            } catch let error as PostgresError
                where timeout != nil && (error.code == .timeout || error.isStatementTimeout)
            {
                return try await self.report(name, progress, isCounted: false)
            }
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
        isCounted: Bool,
        countingFor timeout: Duration? = nil
    ) async throws -> Report {
        let broadcast = progress.broadcast
        let own = Self.ownName(of: broadcast)
        let cancelledAt = try await self.cancellations.cancelledAt(own)
        // While cancelling, open notifications are still being withdrawn, not too late.
        let isCancelling = broadcast.state == .cancelling
        let tally =
            isCounted
            ? try await self.cancellations.tally(
                own, countsOpen: isCancelling, timeout: timeout ?? Self.countingTime) : nil
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

    /// Returns the name under which a broadcast's notifications are stored.
    private static func ownName(of broadcast: Broadcast) -> CancellationStore.Name {
        CancellationStore.Name(org: broadcast.org, id: broadcast.job)
    }

    /// Whether every recipient of a job has an outcome.
    ///
    /// Mail that waits for `email_after` and attention calls may follow.
    private func isSettled(_ tally: CancellationStore.Tally, _ cancelledAt: Timestamp?) -> Bool {
        let isSettled = tally.inFlight == 0 || cancelledAt.map { $0 + Self.longestFlight < self.now() } ?? false
        return isSettled && ![.pending, .deferred].contains { tally.counts[$0, default: 0] > 0 }
    }

    /// Pauses, resumes or confirms a broadcast; idempotent.
    ///
    /// - Returns: its state and whether it matches the command; nil if the job is not a broadcast.
    package func order(
        _ order: Order,
        _ name: CancellationStore.Name
    ) async throws -> (report: Report, isApplied: Bool)? {
        guard let found = try await self.broadcasts.find(name) else { return nil }
        let isChanged = try await self.broadcasts.transition(found.broadcast, to: order.state, from: order.states)
        guard let progress = try await self.broadcasts.find(name) else { return nil }
        let report = try await self.report(name, progress, isCounted: false)
        return (report, isChanged || order.targetStates.contains(progress.broadcast.state))
    }

    /// Cancels a job: notifications not stored yet are stored as cancelled, and undelivered ones
    /// are cancelled and leave the inboxes.
    ///
    /// It is idempotent and continues after an interruption. A broadcast has stopped expanding when
    /// this returns; the dispatchers withdraw its stored notifications, which are not counted here.
    package func cancel(_ name: CancellationStore.Name) async throws -> Report? {
        let at = self.now()
        try await self.cancellations.record(name, at: at)
        if let broadcast = try await self.broadcasts.find(name)?.broadcast {
            let own = Self.ownName(of: broadcast)
            try await self.cancellations.record(own, at: at)
            _ = try await self.broadcasts.transition(
                broadcast,
                to: .cancelling,
                from: [.counting, .awaitingConfirmation, .expanding, .paused, .done, .failed]
            )
            // Last, because it may take long, and because pages that were in progress have
            // scheduled their parts by now.
            try await self.schedules.cancelJob(name, at: at)
            try await self.schedules.cancelJob(own, at: at)
            return try await self.find(name, isCounted: false)
        }
        var own: Report?
        // Dispatchers may have stored schedules from this entry since the name was looked up.
        for owner in try await self.schedules.owners(of: name) { own = try await self.cancel(owner) }
        // Cancel scheduled rows themselves: they may outlive the record of the cancellation.
        let events = try await self.schedules.cancelJob(name, at: at)
        for id in name.ids {
            var last = ""
            while true {
                let page = try await self.cancellations.page(org: name.org, job: id, after: last, limit: Self.pageSize)
                guard let end = page.last else { break }
                last = end.user
                try await self.withdraw(page, at: at)
            }
        }
        // Several lanes may have stored this entry for the same users meanwhile. Withdraw one entry
        // at a time, because a withdrawal must not name a user twice.
        for keys in try await self.cancellations.ofEntries(name) { try await self.withdraw(keys, at: at) }
        if let own { return own }
        let report = try await self.find(name)
        guard events > 0, let report, report.scheduled == 0, report.tally?.total == 0 else { return report }
        return Report(
            name: name, tally: nil, cancelledAt: report.cancelledAt, progress: nil, scheduled: 0, isFinal: true)
    }

    private func withdraw(_ keys: [NotificationKey], at: Timestamp) async throws {
        let seen = try await self.cancellations.endSeen(keys)
        await self.events.publish(seen.compactMap { $0.event(at: at) })
        await self.publish(try await self.cancellations.cancel(keys, at: at), at: at)
    }

    /// Publishes the cancellations to upstream apps and to sockets; a socket that misses one
    /// notices the gap at the next frame and resyncs.
    private func publish(_ withdrawals: [CancellationStore.Withdrawal], at: Timestamp) async {
        do {
            try await self.publisher.publish(withdrawals.compactMap { $0.frame(at: at) })
        } catch {
            self.logger.warning(
                "cannot publish cancellation; sockets resync at the next frame", metadata: ["error": "\(error)"])
        }
        await self.events.publish(withdrawals.map { LifecycleEvent(.cancelled, $0.label, at: at) })
    }
}
