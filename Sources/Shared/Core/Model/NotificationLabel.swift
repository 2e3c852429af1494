// Carillon · NotificationLabel.swift
// SPDX-License-Identifier: Apache-2.0

/// What names a notification to apps: its id, whose it is, and what it is about.
package struct NotificationLabel: Sendable, Equatable {
    package let id: NotificationID
    package let user: String
    package let type: String
    package let category: String?
    package let org: String
    /// The id of its job.
    package let job: String?

    package init(id: NotificationID, user: String, type: String, category: String?, org: String, job: String?) {
        self.id = id
        self.user = user
        self.type = type
        self.category = category
        self.org = org
        self.job = job
    }
}

extension Notification {
    /// What names it to apps.
    package var label: NotificationLabel {
        NotificationLabel(
            id: self.id,
            user: self.user,
            type: self.type,
            category: self.category,
            org: self.org,
            job: self.jobID
        )
    }
}
