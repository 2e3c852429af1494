// Carillon · InboxKeeper.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Storage

/// What several systems do with an inbox.
struct InboxKeeper {
    let services: APIServices

    /// The id in the path.
    ///
    /// - Throws: `Problem` 404 if it is none.
    static func id(_ context: APIContext) throws -> NotificationID {
        guard let id = NotificationID(try context.parameters.require("id")) else { throw Answer.notFound }
        return id
    }

    /// - Throws: `Problem` 404 if the user has no such notification.
    func find(user: String, id: NotificationID) async throws -> Notification {
        guard let notification = try await self.services.inbox.find(user: user, id: id) else { throw Answer.notFound }
        return notification
    }

    /// Marks one read, and says how it stands then.
    ///
    /// - Throws: `Problem` 404 if the user has no such notification.
    func markRead(user: String, id: NotificationID) async throws -> Notification {
        let before = try await self.find(user: user, id: id)
        guard before.readAt == nil else { return before }
        _ = try await self.services.inboxService.markRead(user: user, ids: [id])
        return try await self.find(user: user, id: id)
    }

    /// - Throws: `Problem` 404 if the user has no such notification.
    func delete(user: String, id: NotificationID) async throws -> InboxStore.Change {
        let change = try await self.services.inboxService.delete(user: user, id: id)
        guard !change.isEmpty else { throw Answer.notFound }
        return change
    }

    func unread(user: String) async throws -> Int32 {
        try await self.services.inbox.state(of: user).unread
    }
}
