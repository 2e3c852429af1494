// Carillon · JobIntake+Twins.swift
// SPDX-License-Identifier: Apache-2.0

import Core

extension JobIntake {
    /// Leaves out what a batch holds twice: the later of two with the same user, org and job id.
    static func distinct(_ notifications: [Notification], conflicts: inout Set<String>) -> [Notification] {
        guard notifications.contains(where: { $0.jobID != nil }) else { return notifications }
        struct Key: Hashable {
            let user: ExactText
            let org: ExactText
            let job: ExactText
        }
        var seen: [Key: Notification] = [:]
        var distinct: [Notification] = []
        for notification in notifications {
            guard let job = notification.jobID else {
                distinct.append(notification)
                continue
            }
            let key = Key(
                user: ExactText(notification.user),
                org: ExactText(notification.org),
                job: ExactText(job)
            )
            if let first = seen[key] {
                if !first.says(whatIsSaidBy: notification) { conflicts.insert(notification.jobEntry) }
            } else {
                seen[key] = notification
                distinct.append(notification)
            }
        }
        return distinct
    }
}

extension Notification {
    /// Whether two notifications of the same job id agree, as PostgreSQL compares them.
    fileprivate func says(whatIsSaidBy other: Notification) -> Bool {
        ExactText(self.type) == ExactText(other.type) && ExactText(self.title) == ExactText(other.title)
            && ExactText(self.body) == ExactText(other.body)
            && self.data.flatMap { try? JSONParser.parse($0) } == other.data.flatMap { try? JSONParser.parse($0) }
    }
}
