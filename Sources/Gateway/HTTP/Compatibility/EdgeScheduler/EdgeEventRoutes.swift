// Carillon · EdgeEventRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Storage

/// The scheduler's `/rest/v1/notification_events`: what clients tell of their own notifications.
struct EdgeEventRoutes {
    let services: APIServices

    func add(to groups: CompatibilityGroups) {
        groups.group("rest/v1/notification_events").post(use: self.record)
    }

    /// Records events, all of them or none.
    ///
    /// The first of a kind counts; what was opened was delivered.
    private func record(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let events = try EdgeRequests.events(try await RequestFields.readValue(request))
        let known = try await self.services.inbox.known(user: user, ids: events.map(\.id))
        guard events.allSatisfy({ known.contains($0.id) }) else { throw Answer.notFound }
        for id in known.sorted() { _ = try await self.services.inboxService.markDelivered(user: user, id: id) }
        for event in events where event.kind == .opened {
            _ = try await self.services.inboxService.markOpened(user: user, id: event.id)
        }
        return Response(status: .created)
    }
}
