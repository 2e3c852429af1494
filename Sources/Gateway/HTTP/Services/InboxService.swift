// Carillon · InboxService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Metrics
import Operations
import ServiceLifecycle
import Storage

/// Applies users' changes to inboxes: stores them, then publishes them to all sockets of the user.
///
/// Marking as read over a socket does not wait for an unreachable Redis server, because all sockets
/// of a node share a few tasks. A change over REST waits out a short outage.
struct InboxService: Sendable {
    /// The most notifications that a change lists; a larger one gives only its version.
    static let mostNamed = 500
    /// After this time, a call no longer waits for an unreachable Redis server.
    private static let patience: Duration = .seconds(5)

    private let store: InboxStore
    private let schedules: ScheduleStore
    private let catalogs: CatalogRegister
    private let publisher: FramePublisher
    private let retries: FrameRetries
    private let proofDeadlines: ProofDeadlines
    private let events: EventPublisher
    private let retractions: RetractionService
    private let now: @Sendable () -> Timestamp
    private let uptime: @Sendable () -> ContinuousClock.Instant
    private let logger: Logger

    init(
        _ base: GatewayBase,
        _ store: InboxStore,
        retries: FrameRetries,
        uptime: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.store = store
        self.schedules = base.database.schedules
        self.catalogs = base.catalogs
        self.publisher = base.publisher
        self.retries = retries
        self.proofDeadlines = base.live.proofDeadlines
        self.events = base.events
        self.retractions = RetractionService(base)
        self.now = base.now
        self.uptime = uptime
        self.logger = base.logger
    }

    /// Marks notifications as read; all if `ids` is nil.
    ///
    /// - Parameters:
    ///   - isBulk: whether the client sent a list rather than a single id.
    ///   - isPatient: whether to wait a short time for an unreachable Redis server.
    func markRead(
        user: String,
        ids: [NotificationID]?,
        isBulk: Bool = false,
        isPatient: Bool = true
    ) async throws -> InboxStore.Change {
        let now = self.now()
        let end = self.uptime() + Self.patience
        return try await self.inPages {
            try await self.store.markRead(user: user, ids: ids, at: now, upTo: $0)
        } publish: { change, upTo in
            let all: (member: StaticString, upTo: Int64)? = ids == nil ? ("all", upTo) : nil
            await self.publish(
                user, .read, change, all: all, isBulk: isBulk, isPatient: isPatient && self.uptime() < end)
        } finish: { page in
            await self.events.publish(
                zip(page.labels, page.endpoints).map { LifecycleEvent(.read, $0, at: now, endpoint: $1) },
                isPatient: isPatient && self.uptime() < end)
            await self.retractions.retract(page.labels, isPatient: isPatient && self.uptime() < end)
        }
    }

    /// Deletes a notification of the inbox or the archive, or all read ones of the inbox if `id` is
    /// nil.
    func delete(user: String, id: NotificationID?) async throws -> InboxStore.Change {
        let now = self.now()
        guard let id else {
            return try await self.inPages {
                try await self.store.delete(user: user, id: nil, at: now, upTo: $0)
            } publish: { change, upTo in
                await self.publish(user, .deleted, change, all: ("all_read", upTo))
            }
        }
        var change = try await self.store.delete(user: user, id: id, at: now)
        if change.isEmpty { change = try await self.store.deleteArchived(user: user, id: id, at: now) }
        await self.publish(user, .deleted, change, all: nil)
        return change
    }

    /// Stores a change page by page and publishes it as one, even if a page fails.
    ///
    /// Later pages leave out notifications that are newer than the first page. A socket notices the
    /// missing versions of the other pages and resyncs from the inbox.
    private func inPages(
        _ store: (_ upTo: Int64) async throws -> InboxStore.Change,
        publish: (_ change: InboxStore.Change, _ upTo: Int64) async -> Void,
        finish: (_ page: InboxStore.Change) async -> Void = { _ in }
    ) async throws -> InboxStore.Change {
        var page = try await store(.max)
        var change = page
        let first = page.version
        do {
            while page.ids.count >= InboxStore.mostChanged {
                await finish(page)
                page = try await store(first)
                change.add(page)
            }
        } catch {
            await publish(change, first)
            throw error
        }
        await publish(change, first)
        await finish(page)
        return change
    }

    /// Marks a notification as unread again.
    func markUnread(user: String, id: NotificationID) async throws -> InboxStore.Change {
        let change = try await self.store.markUnread(user: user, id: id)
        await self.publishAgain(user, change)
        return change
    }

    /// Moves a notification to the archive.
    func archive(user: String, id: NotificationID) async throws -> InboxStore.Change {
        let change = try await self.store.archive(user: user, id: id, at: self.now())
        await self.publish(user, .deleted, change, all: nil)
        return change
    }

    /// Brings an archived, snoozed or deleted notification back into the inbox.
    func restore(user: String, id: NotificationID) async throws -> InboxStore.Change {
        let change = try await self.store.restore(user: user, id: id)
        await self.publishAgain(user, change)
        return change
    }

    /// Schedules a notification for a later moment, and deletes it.
    ///
    /// - Throws: errors of the stores; `JobFaults` if it cannot be sent again.
    func snooze(_ notification: Notification, until: Timestamp) async throws -> InboxStore.Change {
        // The schedule comes first, and stays even if another call has deleted the notification
        // meanwhile: the user sees it twice rather than never again.
        let schedule = try RepeatedJob.schedule(
            of: notification, until: until, now: self.now(), catalog: self.catalogs.current)
        let outcomes = try await self.schedules.add([schedule])
        let change = try await self.store.delete(user: notification.user, id: notification.id, at: self.now())
        if change.isEmpty, outcomes == [.stored] {
            try await self.schedules.cancelNeedless(schedule.id, of: notification.id, user: notification.user)
        }
        await self.publish(notification.user, .deleted, change, all: nil)
        return change
    }

    /// Records the first time that a notification was opened.
    ///
    /// - Returns: whether the user has the notification.
    func markOpened(user: String, id: NotificationID) async throws -> Bool {
        let now = self.now()
        guard let receipt = try await self.store.markOpened(user: user, id: id, at: now) else { return false }
        await self.publish(.opened, receipt, at: now)
        return true
    }

    /// Tells upstream apps that the user pressed a button of a notification, and records that it
    /// was opened.
    ///
    /// - Returns: whether the notification has the button; nil if the user does not have it.
    func act(user: String, id: NotificationID, action: String) async throws -> Bool? {
        guard let (label, isThere) = try await self.store.button(action, user: user, id: id) else { return nil }
        guard isThere, try await self.markOpened(user: user, id: id) else { return false }
        await self.events.publish([LifecycleEvent(.acted, label, at: self.now(), reason: action)])
        return true
    }

    /// Records a client's confirmation of a notification, so that no fallback follows.
    ///
    /// - Returns: whether the user has the notification.
    func markDelivered(user: String, id: NotificationID) async throws -> Bool {
        // Update the row first: after a crash the deadline expires and the gate finds the delivery.
        let now = self.now()
        guard let receipt = try await self.store.markDelivered(user: user, id: id, at: now, via: "client") else {
            return false
        }
        await self.publish(.delivered, receipt, at: now)
        try await self.proofDeadlines.remove([AwaitedProof(id: id, user: user, lane: receipt.lane)])
        return true
    }

    private func publish(_ kind: LifecycleEvent.Kind, _ receipt: InboxStore.Receipt, at: Timestamp) async {
        guard let (label, endpoint) = receipt.changed else { return }
        await self.events.publish([LifecycleEvent(kind, label, at: at, endpoint: endpoint)])
    }

    /// Publishes a change to the user's sockets.
    ///
    /// A change that Redis refuses is retried. If it is lost, the socket notices the gap at the
    /// next frame and resyncs from the inbox.
    ///
    /// - Parameter all: replaces a list of more than ``mostNamed`` ids: the member that means
    ///   "all", and the version up to which they changed. Nil if the client named the ids.
    private func publish(
        _ user: String,
        _ kind: NodeFrame.Kind,
        _ change: InboxStore.Change,
        all: (member: StaticString, upTo: Int64)?,
        isBulk: Bool = false,
        isPatient: Bool = true
    ) async {
        guard !change.isEmpty else { return }
        var subject = InboxChangeShape.Subject.ids(change.ids)
        if let all, change.ids.count > Self.mostNamed { subject = .all(all.member, upTo: all.upTo) }
        await self.publish(
            NodeFrame.change(
                kind, user: user, version: change.version, unread: change.unread, subject, isBulk: isBulk,
                at: self.now()),
            isPatient: isPatient)
    }

    /// Publishes a changed notification in its current state; silent, because the user has seen it.
    private func publishAgain(_ user: String, _ change: InboxStore.Change) async {
        guard let id = change.ids.first else { return }
        let found: Notification?
        do {
            found = try await self.store.find(user: user, id: id)
        } catch {
            self.logger.warning(
                "cannot read a changed notification; sockets resync at the next frame", metadata: ["error": "\(error)"])
            return
        }
        // It was deleted meanwhile, and that change has its own frame.
        guard let found else { return }
        await self.publish(
            NodeFrame(
                kind: .notification, user: user, previous: change.version - 1, version: change.version,
                unread: change.unread, id: id, body: CanonicalShape.encode(found, isSilent: true, isAgain: true),
                camelCaseBody: CamelCaseShape.encode(
                    found, code: self.catalogs.current[found.type]?.code, now: self.now())))
    }

    private func publish(_ frame: NodeFrame, isPatient: Bool = true) async {
        do {
            try await self.publisher.publish(frame, isPatient: isPatient)
        } catch {
            self.logger.warning("cannot publish inbox change; retrying", metadata: ["error": "\(error)"])
            self.retries.add(frame)
        }
    }
}

/// Retries inbox changes that could not be published.
///
/// Sockets recognise a repeated change by its version and drop it.
package final class FrameRetries: Service {
    /// The most changes that wait, each of up to some tens of kilobytes; a retry publishes all at
    /// once.
    private static let capacity = 1_024
    /// How long a change is retried.
    private static let patience: Duration = .seconds(30)
    private static let backoff = Backoff(base: .milliseconds(50), limit: .seconds(2))

    private let frames = BatchQueue<NodeFrame>(capacity: FrameRetries.capacity)
    private let publisher: FramePublisher
    private let lost: Counter
    private let now: @Sendable () -> ContinuousClock.Instant
    private let logger: Logger

    init(
        _ base: GatewayBase,
        metrics: any MetricsFactory = MetricsSystem.factory,
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.publisher = base.publisher
        self.lost = Counter(label: "carillon.frames.lost", factory: metrics)
        self.now = now
        self.logger = base.logger
    }

    /// Adds a change; counts it as lost if too many wait.
    func add(_ frame: NodeFrame) {
        if !self.frames.offer(frame) { self.lost.increment() }
    }

    package func run() async throws {
        await cancelWhenGracefulShutdown {
            await withTaskCancellationHandler {
                while let batch = await self.frames.next(limit: Self.capacity) { await self.publish(batch) }
            } onCancel: {
                self.frames.finish()
            }
        }
    }

    private func publish(_ frames: [NodeFrame]) async {
        var rest = frames
        let end = self.now() + Self.patience
        var attempt = 0
        repeat {
            // Redis does not signal its return, so retry with backoff.
            try? await Task.sleep(for: Self.backoff.delay(attempt: attempt))
            attempt += 1
            // A separate task is not cancelled at shutdown, so each change gets at least one
            // attempt.
            let refused = rest
            rest = await Task { await self.refused(refused) }.value
        } while !rest.isEmpty && !Task.isCancelled && self.now() < end
        guard !rest.isEmpty else { return }
        self.lost.increment(by: rest.count)
        self.logger.warning(
            "lost inbox changes; sockets resync at the next frame", metadata: ["count": "\(rest.count)"])
    }

    /// Publishes each frame separately, because only some users' servers may be unreachable.
    ///
    /// - Returns: the frames that failed.
    private func refused(_ frames: [NodeFrame]) async -> [NodeFrame] {
        let publisher = self.publisher
        return await withTaskGroup(of: NodeFrame?.self) { group in
            for frame in frames {
                group.addTask { (try? await publisher.publish(frame)) == nil ? frame : nil }
            }
            var refused: [NodeFrame] = []
            for await frame in group {
                if let frame { refused.append(frame) }
            }
            return refused
        }
    }
}

/// Removes read notifications from the user's other devices if their type asks for it.
///
/// This is best effort and rate-limited per user.
struct RetractionService: Sendable {
    private static let perSecond = 2
    private static let burst = 20
    /// A provider with this many queued deliveries, over all parts, gets no retractions: it is far
    /// behind, or no dispatcher serves it any more.
    private static let mostDeliveries = 1_000_000
    private static let omitted = Counter(label: "carillon.retractions.omitted")

    private let catalogs: CatalogRegister
    private let deliveries: DeliveryStore
    private let live: Live
    private let logger: Logger

    init(_ base: GatewayBase) {
        self.catalogs = base.catalogs
        self.deliveries = base.database.deliveries
        self.live = base.live
        self.logger = base.logger
    }

    /// Queues the removal of notifications from the devices that received them, newest first.
    ///
    /// Removals beyond the user's rate limit, or for a provider with too many queued deliveries,
    /// are dropped.
    ///
    /// - Parameter isPatient: whether to wait for an unreachable Redis server.
    func retract(_ labels: [NotificationLabel], isPatient: Bool) async {
        let catalog = self.catalogs.current
        let wanted = labels.filter { catalog[$0.type]?.isRetractedOnRead == true }
        guard let user = wanted.first?.user else { return }
        do {
            if !isPatient { try self.live.connection.failIfAway() }
            let holders = try await self.deliveries.holders(user: user, of: wanted.map(\.id))
            guard !holders.isEmpty else { return }
            let keys = self.live.keys.part(of: user)
            let open = try await self.open(Set(holders.map(\.provider)), keys)
            let reachable = holders.filter { open.contains($0.provider) }
            let count = try await self.live.buckets.takeAvailable(
                reachable.count, kind: "retract", user: user, perSecond: Self.perSecond, burst: Self.burst
            ).taken
            if count < holders.count { Self.omitted.increment(by: holders.count - count) }
            guard count > 0 else { return }
            var batch = RedisBatch()
            for holder in reachable.prefix(count) {
                let work = DeliveryWork(
                    notification: holder.notification, device: holder.device, user: user, attempt: 0, isRepeat: false,
                    isRetraction: true)
                batch.append(work, to: keys.deliveries(holder.provider, .bulk))
            }
            try await self.live.connection.run(batch, isPatient: isPatient)
        } catch {
            self.logger.warning("cannot retract read notifications from other devices", metadata: ["error": "\(error)"])
        }
    }

    /// Returns the providers whose streams have room.
    private func open(_ providers: Set<Provider>, _ keys: Keyspace) async throws(RedisError) -> Set<Provider> {
        var batch = RedisBatch()
        for provider in providers { batch.append("XLEN", .text(keys.deliveries(provider, .bulk))) }
        let most = Self.mostDeliveries / self.live.keys.parts.count
        var open: Set<Provider> = []
        for (provider, reply) in zip(providers, try await self.live.connection.send(batch, isPatient: false)) {
            // A server that does not answer counts as open; the append to it then fails.
            if (try? reply.integer()) ?? 0 < most { open.insert(provider) }
        }
        return open
    }
}
