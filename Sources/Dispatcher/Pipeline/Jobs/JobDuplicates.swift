// Carillon · JobDuplicates.swift
// SPDX-License-Identifier: Apache-2.0

import Core

extension JobIntake {
    /// Drops duplicates: the later of two with the same user, organisation and job id.
    ///
    /// - Parameter conflicts: receives the users of duplicates with other content, by entry.
    static func distinct(
        _ items: [RoutedNotification],
        conflicts: inout [String: Set<ExactText>]
    ) -> [RoutedNotification] {
        guard items.contains(where: { $0.notification.jobID != nil }) else { return items }
        struct Key: Hashable {
            let user: ExactText
            let org: ExactText
            let job: ExactText
        }
        var seen: [Key: Notification] = [:]
        var distinct: [RoutedNotification] = []
        for item in items {
            let notification = item.notification
            guard let job = notification.jobID else {
                distinct.append(item)
                continue
            }
            let key = Key(
                user: ExactText(notification.user),
                org: ExactText(notification.org),
                job: ExactText(job)
            )
            if let first = seen[key] {
                if !first.hasSameContent(as: notification) {
                    conflicts[notification.jobEntry, default: []].insert(key.user)
                }
            } else {
                seen[key] = notification
                distinct.append(item)
            }
        }
        return distinct
    }
}

extension Notification {
    /// Whether two notifications with the same job id have the same content, as PostgreSQL compares
    /// it.
    fileprivate func hasSameContent(as other: Notification) -> Bool {
        ExactText(self.type) == ExactText(other.type) && ExactText(self.title) == ExactText(other.title)
            && ExactText(self.body) == ExactText(other.body)
            && Self.areSame(self.data, other.data)
    }

    private static func areSame(_ left: [UInt8]?, _ right: [UInt8]?) -> Bool {
        guard let left, let right else { return left == right }
        guard left != right else { return true }
        guard let left = try? JSONParser.parse(left), let right = try? JSONParser.parse(right) else { return false }
        return left.isSameData(as: right)
    }
}
