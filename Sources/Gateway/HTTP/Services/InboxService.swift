// Carillon · InboxService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import Operations
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

    private let base: GatewayBase
    private let store: InboxStore
    private let retries: FrameRetries
    private let retractions: RetractionService
    private let uptime: @Sendable () -> ContinuousClock.Instant

    init(
        _ base: GatewayBase,
        _ store: InboxStore,
        retries: FrameRetries,
        uptime: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.base = base
        self.store = store
        self.retries = retries
        self.retractions = RetractionService(base)
        self.uptime = uptime
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
        let now = self.base.now()
        let end = self.uptime() + Self.patience
        return try await self.inPages(of: user) {
            try await self.store.markRead(user: user, ids: ids, at: now, upTo: $0)
        } publish: { change, previous, upTo in
            let all: (member: StaticString, upTo: Int64)? = ids == nil ? ("all", upTo) : nil
            await self.publish(
                user, .read, change, previous: previous, all: all, isBulk: isBulk,
                isPatient: isPatient && self.uptime() < end)
        } finish: { page in
            await self.base.events.publish(
                zip(page.labels, page.endpoints).map { LifecycleEvent(.read, $0, at: now, endpoint: $1) },
                isPatient: isPatient && self.uptime() < end)
            await self.retractions.retract(page.labels, isPatient: isPatient && self.uptime() < end)
        }
    }

    /// Deletes a notification of the inbox or the archive, or all read ones of the inbox if `id` is
    /// nil.
    func delete(user: String, id: NotificationID?) async throws -> InboxStore.Change {
        let now = self.base.now()
        guard let id else {
            return try await self.inPages(of: user) {
                try await self.store.delete(user: user, id: nil, at: now, upTo: $0)
            } publish: { change, previous, upTo in
                await self.publish(user, .deleted, change, previous: previous, all: ("all_read", upTo))
            }
        }
        var change = try await self.store.delete(user: user, id: id, at: now)
        if change.isEmpty { change = try await self.store.deleteArchived(user: user, id: id, at: now) }
        await self.publish(user, .deleted, change, all: nil)
        return change
    }

    /// Stores a change page by page and publishes it as one.
    ///
    /// Each page raises the version by one. Later pages leave out notifications that are newer than
    /// the first page. If a page fails, sockets read the pages before it from the inbox.
    ///
    /// - Parameter publish: gets the version before the change, and the version of the first page.
    private func inPages(
        of user: String,
        _ store: (_ upTo: Int64) async throws -> InboxStore.Change,
        publish: (_ change: InboxStore.Change, _ previous: Int64, _ upTo: Int64) async -> Void,
        finish: (_ page: InboxStore.Change) async -> Void = { _ in }
    ) async throws -> InboxStore.Change {
        var page = try await store(.max)
        var change = page
        let first = page.version
        // The version that the pages reach if no other change comes between them.
        var version = first
        do {
            while page.ids.count >= InboxStore.mostChanged {
                await finish(page)
                page = try await store(first)
                change.add(page)
                if !page.isEmpty { version += 1 }
            }
        } catch {
            await self.publishGap(user, change, isPatient: false)
            throw error
        }
        // A socket that lacks a change between two pages must notice the gap.
        await publish(change, change.version == version ? first - 1 : change.version - 1, first)
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
        let change = try await self.store.archive(user: user, id: id, at: self.base.now())
        await self.publish(user, .deleted, change, all: nil)
        return change
    }

    /// Brings an archived, snoozed or deleted notification back into the inbox.
    func restore(user: String, id: NotificationID) async throws -> InboxStore.Change {
        let change = try await self.store.restore(user: user, id: id)
        await self.publishAgain(user, change)
        return change
    }

    /// Deletes a notification and schedules the job that sends it again.
    ///
    /// - Throws: errors of the stores; `JobFaults` if the notification cannot be sent again.
    func snooze(_ notification: Notification, until: Timestamp) async throws -> InboxStore.Change {
        let now = self.base.now()
        let schedule = try RepeatedJob.schedule(of: notification, until: until, now: now, catalog: self.base.catalog)
        let change = try await self.store.snooze(
            user: notification.user, id: notification.id, by: schedule, at: now)
        await self.publish(notification.user, .deleted, change, all: nil)
        return change
    }

    /// Records the first time that a notification was opened.
    ///
    /// - Returns: whether the user has the notification.
    func markOpened(user: String, id: NotificationID) async throws -> Bool {
        let now = self.base.now()
        guard let receipt = try await self.store.markOpened(user: user, id: id, at: now) else { return false }
        await self.publish(.opened, receipt, at: now)
        return true
    }

    /// Reports to apps that the user pressed a button of a notification, and records that it was
    /// opened.
    ///
    /// - Returns: whether the notification has the button; nil if the user does not have it.
    func act(user: String, id: NotificationID, action: String) async throws -> Bool? {
        guard let (label, isThere) = try await self.store.button(action, user: user, id: id) else { return nil }
        guard isThere, try await self.markOpened(user: user, id: id) else { return false }
        await self.base.events.publish([LifecycleEvent(.acted, label, at: self.base.now(), reason: action)])
        return true
    }

    /// Records a client's confirmation of a notification, so that no fallback follows.
    ///
    /// - Returns: whether the user has the notification.
    func markDelivered(user: String, id: NotificationID) async throws -> Bool {
        // Update the row first: after a crash the deadline expires and the gate finds the delivery.
        let now = self.base.now()
        let via = SentVia.client.rawValue
        guard let receipt = try await self.store.markDelivered(user: user, id: id, at: now, via: via) else {
            return false
        }
        await self.publish(.delivered, receipt, at: now)
        try await self.base.live.proofDeadlines.remove([AwaitedProof(id: id, user: user, lane: receipt.lane)])
        return true
    }

    private func publish(_ kind: LifecycleEvent.Kind, _ receipt: InboxStore.Receipt, at: Timestamp) async {
        guard let (label, endpoint) = receipt.changed else { return }
        await self.base.events.publish([LifecycleEvent(kind, label, at: at, endpoint: endpoint)])
    }

    /// Publishes a change to the user's sockets.
    ///
    /// A change that Redis refuses is retried. If all retries fail, sockets notice the gap at the
    /// next change and read the inbox.
    ///
    /// - Parameters:
    ///   - previous: the version before the change; nil if it raised the version by one.
    ///   - all: replaces a list of more than ``mostNamed`` ids: the member that means "all", and
    ///     the version up to which they changed. Nil if the client named the ids.
    private func publish(
        _ user: String,
        _ kind: NodeFrame.Kind,
        _ change: InboxStore.Change,
        previous: Int64? = nil,
        all: (member: StaticString, upTo: Int64)?,
        isBulk: Bool = false,
        isPatient: Bool = true
    ) async {
        guard !change.isEmpty else { return }
        var subject = InboxChangeShape.Subject.ids(change.ids)
        if let all, change.ids.count > Self.mostNamed { subject = .all(all.member, upTo: all.upTo) }
        var frame = NodeFrame.change(
            kind, user: user, version: change.version, unread: change.unread, subject, isBulk: isBulk,
            at: self.base.now())
        if let previous { frame.previous = previous }
        await self.publish(frame, isPatient: isPatient)
    }

    /// Publishes a changed notification in its current state; silent, because the user has seen it.
    private func publishAgain(_ user: String, _ change: InboxStore.Change) async {
        guard let id = change.ids.first else { return }
        let found: Notification?
        do {
            found = try await self.store.find(user: user, id: id)
        } catch {
            self.base.logger.warning(
                "cannot read a changed notification; sockets will read it", metadata: ["error": "\(error)"])
            return await self.publishGap(user, change)
        }
        // It was deleted meanwhile, and that change has its own frame.
        guard let found else { return }
        await self.publish(
            NodeFrame(
                kind: .notification, user: user, previous: change.version - 1, version: change.version,
                unread: change.unread, id: id, body: CanonicalShape.encode(found, isSilent: true, isAgain: true),
                camelCaseBody: CamelCaseShape.encode(
                    found, code: self.base.catalog[found.type]?.code, now: self.base.now())))
    }

    /// Publishes a change without its content, so that sockets read it from the inbox.
    private func publishGap(_ user: String, _ change: InboxStore.Change, isPatient: Bool = true) async {
        var frame = NodeFrame.change(
            .read, user: user, version: change.version, unread: change.unread, .ids([]), at: self.base.now())
        // The frame follows on itself: every socket sees a gap, and reads the inbox instead.
        frame.previous = change.version
        await self.publish(frame, isPatient: isPatient)
    }

    private func publish(_ frame: NodeFrame, isPatient: Bool = true) async {
        do {
            try await self.base.publisher.publish(frame, isPatient: isPatient)
        } catch {
            self.base.logger.warning("cannot publish inbox change; retrying", metadata: ["error": "\(error)"])
            self.retries.add(frame)
        }
    }
}
