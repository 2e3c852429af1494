// Carillon · PreparedJob.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// A job and its notifications, before they are stored.
struct PreparedJob: Sendable {
    let origin: JobOrigin
    let type: NotificationType
    /// The job's users, before any notification was removed.
    let users: [String]
    var notifications: [RoutedNotification]
    /// Renders the texts; nil once they are rendered, or if the job has its own.
    ///
    /// Boxed, because most jobs have no wording, and it would be most of a job's size.
    private var wording: Boxed<JobWording>?
    /// The digest that gathers the notifications; nil for none.
    let digest: (key: String, rule: DigestRule)?
    /// The chain of a broadcast whose next page this is; nil for a job that names its users.
    var chain: Broadcast.Chain?
    /// The users in whose locale a text could not be rendered.
    private(set) var unrendered: Set<ExactText> = []
    /// The number of users whose digest already holds a notification with the job's id.
    var repeated = 0
    /// The users whose digest holds a notification with the job's id and other content.
    var conflicting: Set<ExactText> = []

    /// - Throws: `JobFaults` if the texts do not depend on the locale and cannot be rendered.
    init(
        origin: JobOrigin,
        type: NotificationType,
        notifications: [RoutedNotification],
        wording: JobWording?,
        digest: (key: String, rule: DigestRule)? = nil
    ) throws(JobFaults) {
        self.digest = digest
        self.origin = origin
        self.type = type
        self.users = notifications.map(\.notification.user)
        self.notifications = notifications
        self.wording = wording.map { Boxed($0) }
        do throws(JobFault) {
            try self.wording?.value.renderUnlocalized()
        } catch {
            throw JobFaults([error])
        }
    }

    /// Whether the recipients' locales are needed.
    var needsLocale: Bool { self.wording?.value.needsLocale == true }

    /// Returns the entry id of a dead letter about it.
    ///
    /// Each page of a broadcast has an id of its own. A repeated page whose letter names other
    /// users gets another id, so that both letters are kept.
    ///
    /// - Parameter fields: the fields of the letter.
    func letterEntry(_ fields: [(name: String, value: ArraySlice<UInt8>)]) -> String {
        guard let chain = self.chain else { return self.origin.latestEntry }
        let content = NotificationID(origin: EntryDigest(stream: "", entry: "", fields: fields), user: "")
        return "\(self.origin.latestEntry).\(chain.index).\(chain.pages).\(content)"
    }

    /// Renders the texts, and removes the notifications whose text cannot be rendered.
    ///
    /// Call it after the channels are decided, so that only notifications with e-mail get e-mail
    /// texts.
    ///
    /// - Returns: the faults, and the fields of a job for the users concerned; nil for none.
    mutating func render() -> (faults: JobFaults, fields: [(name: String, value: ArraySlice<UInt8>)])? {
        guard var wording = self.wording else { return nil }
        self.wording = nil
        var faults: [JobFault] = []
        var unrendered: [Int] = []
        for index in self.notifications.indices {
            let locale = wording.value.needsLocale ? self.notifications[index].preferences?.settings.locale : nil
            do throws(JobFault) {
                try wording.value.apply(to: &self.notifications[index].notification, locale: locale)
            } catch {
                if !faults.contains(error) { faults.append(error) }
                unrendered.append(index)
            }
        }
        guard !faults.isEmpty else { return nil }
        let users = unrendered.map { self.notifications[$0].notification.user }
        self.unrendered = Set(users.map { ExactText($0) })
        for index in unrendered.reversed() { self.notifications.remove(at: index) }
        return (JobFaults(faults), self.fields(for: users))
    }

    /// Removes the notifications that are not to be sent, and counts the users without one by
    /// reason.
    ///
    /// - Parameter alreadyCounted: the number of users whose notifications were removed and counted
    ///   before.
    mutating func removeUnwanted(alreadyCounted: Int = 0) -> PageCounts {
        var counts: PageCounts = [:]
        // Users whose text failed have a dead letter; others wait for a digest.
        counts.add(self.unrendered.count, .textFailed)
        counts.add(self.repeated, .duplicate)
        let gone = alreadyCounted + self.unrendered.count + self.repeated
        counts.add(self.users.count - gone - self.notifications.count, .held)
        for item in self.notifications where item.notification.status != .pending {
            counts[item.notification.statusReason ?? item.notification.status.rawValue, default: 0] += 1
        }
        self.notifications.removeAll { $0.notification.status != .pending }
        return counts
    }

    /// Returns the fields of a job for these users alone; the original fields if these are all of
    /// the job's users.
    ///
    /// The fields of a broadcast's page name its users, because the broadcast is not expanded
    /// again. They also have the broadcast's origin, and its id, so that a repeated page notifies
    /// no user twice.
    func fields(for users: [String]) -> [(name: String, value: ArraySlice<UInt8>)] {
        let fields = self.origin.latestFields
        if self.chain == nil, users.count == self.users.count { return fields }
        let list = JSONWriter.bytes(of: .array(users.map { .string($0) }))
        var named = fields.filter { !JobFields.audience.contains($0.name) }
        named.append((name: "users", value: list[...]))
        guard let chain else { return named }
        if !named.contains(where: { $0.name == "id" }) {
            named.append((name: "id", value: Array(chain.broadcast.job.utf8)[...]))
        }
        named.append((name: JobOrigin.replayField, value: Array(self.origin.text.utf8)[...]))
        return named
    }
}
