// Carillon · InboxService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import Storage

/// Changes of inboxes as users make them: stored first, then told to every socket of the user.
package struct InboxService: Sendable {
    /// Notifications that a change of all names; of more, it says up to which version.
    package static let mostNamed = 500

    private let store: InboxStore
    private let publisher: FramePublisher
    private let unconfirmed: UnconfirmedSet
    private let events: EventTeller
    private let retractions: RetractionService?
    private let now: @Sendable () -> Timestamp
    private let logger: Logger

    package init(
        store: InboxStore,
        publisher: FramePublisher,
        unconfirmed: UnconfirmedSet,
        events: EventTeller = EventTeller(),
        retractions: RetractionService? = nil,
        now: @escaping @Sendable () -> Timestamp,
        logger: Logger
    ) {
        self.store = store
        self.publisher = publisher
        self.unconfirmed = unconfirmed
        self.events = events
        self.retractions = retractions
        self.now = now
        self.logger = logger
    }

    /// Marks notifications read, all of them if `ids` is nil.
    ///
    /// - Parameter isBulk: Whether the client named them as a list, and not one by itself.
    package func markRead(
        user: String,
        ids: [NotificationID]?,
        isBulk: Bool = false
    ) async throws -> InboxStore.Change {
        let now = self.now()
        let change = try await self.store.markRead(user: user, ids: ids, at: now)
        await self.tell(user, .read, change, all: ids == nil ? "all" : nil, isBulk: isBulk)
        await self.events.tell(zip(change.labels, change.ways).map { LifecycleEvent(.read, $0, at: now, way: $1) })
        await self.retractions?.retract(change.labels)
        return change
    }

    /// Deletes one notification, or all that are read if `id` is nil.
    package func delete(user: String, id: NotificationID?) async throws -> InboxStore.Change {
        let change = try await self.store.delete(user: user, id: id, at: self.now())
        await self.tell(user, .deleted, change, all: id == nil ? "all_read" : nil)
        return change
    }

    /// Records that a notification was opened; the first time counts.
    ///
    /// - Returns: whether the user has such a notification.
    package func markOpened(user: String, id: NotificationID) async throws -> Bool {
        let now = self.now()
        guard let receipt = try await self.store.markOpened(user: user, id: id, at: now) else { return false }
        await self.tell(.opened, receipt, at: now)
        return true
    }

    /// Takes a client's word that it has a notification, and ends the wait for its proof.
    ///
    /// - Returns: whether the user has such a notification.
    package func markDelivered(user: String, id: NotificationID) async throws -> Bool {
        // The row first: if this process dies in between, the deadline lapses and the gate finds it delivered.
        let now = self.now()
        guard let receipt = try await self.store.markDelivered(user: user, id: id, at: now, via: "client") else {
            return false
        }
        await self.tell(.delivered, receipt, at: now)
        try await self.unconfirmed.remove([UnconfirmedNotification(id: id, user: user, lane: receipt.lane)])
        return true
    }

    private func tell(_ kind: LifecycleEvent.Kind, _ receipt: InboxStore.Receipt, at: Timestamp) async {
        guard let (label, way) = receipt.changed else { return }
        await self.events.tell([LifecycleEvent(kind, label, at: at, way: way)])
    }

    /// Tells the sockets.
    ///
    /// The change stands whether or not this arrives: a socket that misses it finds a hole before the next frame and
    /// fills it from the inbox.
    ///
    /// - Parameter all: the member that stands for all where they are too many to name; nil if the
    ///   user named them.
    private func tell(
        _ user: String,
        _ kind: NodeFrame.Kind,
        _ change: InboxStore.Change,
        all: StaticString?,
        isBulk: Bool = false
    ) async {
        guard !change.isEmpty else { return }
        var subject = InboxChangeShape.Subject.ids(change.ids)
        if let all, change.ids.count > Self.mostNamed { subject = .all(all, upTo: change.version) }
        let body = InboxChangeShape.encode(subject, isBulk: isBulk, at: self.now())
        do {
            try await self.publisher.publish(
                NodeFrame(
                    kind: kind,
                    user: user,
                    previous: change.version - 1,
                    version: change.version,
                    unread: change.unread,
                    body: body
                )
            )
        } catch {
            self.logger.warning("change not told to sockets", metadata: ["error": "\(error)"])
        }
    }
}
