// Carillon · CompatibilityInbox.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Storage

/// Inbox operations that several systems share.
struct CompatibilityInbox {
    let services: APIServices

    /// - Throws: `Problem` 404 if the user has no such notification.
    func find(user: String, id: NotificationID) async throws -> Notification {
        guard let notification = try await self.services.inbox.store.find(user: user, id: id) else {
            throw Problem.noSuch("notification")
        }
        return notification
    }

    /// Marks a notification as read and returns its new state.
    ///
    /// - Throws: `Problem` 404 if the user has no such notification.
    func markRead(user: String, id: NotificationID) async throws -> Notification {
        let before = try await self.find(user: user, id: id)
        guard before.readAt == nil else { return before }
        _ = try await self.services.inbox.service.markRead(user: user, ids: [id])
        return try await self.find(user: user, id: id)
    }

    /// - Throws: `Problem` 404 if the user has no such notification.
    func delete(user: String, id: NotificationID) async throws -> InboxStore.Change {
        let change = try await self.services.inbox.service.delete(user: user, id: id)
        guard !change.isEmpty else { throw Problem.noSuch("notification") }
        return change
    }

    func unread(user: String) async throws -> Int32 {
        try await self.services.inbox.store.state(of: user).unread
    }
}

/// Appends single jobs, for the test sends of several systems.
struct JobSender {
    let services: APIServices

    /// Checks a job as the dispatcher does and appends it to the lane of its type.
    ///
    /// - Parameter fields: the job's fields without `type` and `id`.
    /// - Returns: the job's id.
    /// - Throws: `Problem` 422 with every fault, or 503 if the lane is full.
    func send(_ type: NotificationType, _ fields: [(name: String, value: String)]) async throws -> String {
        let id = NotificationID.random()
        let named = [("type", type.name), ("id", id.description)] + fields
        let bytes = named.map { (name: $0.0, value: Array($0.1.utf8)) }
        do throws(JobFaults) {
            _ = try self.services.base.catalog.checkedJob(bytes)
        } catch {
            throw Problem(faults: error.faults)
        }
        try await self.services.jobs.requireRoom(for: [(type.lane, "", bytes)])
        _ = try await self.services.jobs.stream.append([(type.lane, bytes)])
        return id.description
    }
}
