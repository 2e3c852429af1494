// Carillon · PreparedJob.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// A job and the notifications that it asks for.
struct PreparedJob: Sendable {
    /// A page of a broadcast.
    struct Page: Sendable {
        /// Which of the broadcast's it is.
        let name: String
        /// The id of the broadcast's job.
        let job: String
    }

    /// The fields that name recipients.
    private static let audience: Set<String> = ["user", "users", "topic", "all", "except"]

    let origin: JobOrigin
    var notifications: [Notification]
    /// What the notifications say; nil if they say it already.
    private var wording: JobWording?
    /// The digest that they are gathered for; nil if they come on their own.
    let digest: (key: String, rule: DigestRule)?
    /// Which page of a broadcast it is; nil for a job that names its users.
    var page: Page?
    /// How many have no notification, as their locale has no words.
    private(set) var wordless = 0
    /// How many have no notification, as their digest found that they have its id already.
    var repeated = 0
    /// Whether one of them was told something else by that id.
    var isConflicting = false

    /// - Throws: `JobFaults` if the words are the same for all recipients and cannot be made.
    init(
        origin: JobOrigin,
        notifications: [Notification],
        wording: JobWording?,
        digest: (key: String, rule: DigestRule)? = nil
    ) throws(JobFaults) {
        self.digest = digest
        self.origin = origin
        self.notifications = notifications
        self.wording = wording
        guard let wording, !wording.needsLocale else { return }
        if let refusal = self.word(notifications.map { _ in nil }) { throw refusal.faults }
    }

    /// Whether the recipients' locales are needed.
    var needsLocale: Bool { self.wording != nil }

    /// The entry as which a letter about it is kept: each page of a broadcast has its own.
    var letterEntry: String {
        self.page.map { "\(self.origin.latestEntry).\($0.name)" } ?? self.origin.latestEntry
    }

    /// Puts the words in, and takes out the notifications whose locale has none.
    ///
    /// - Parameter locales: of the notifications, in their order.
    /// - Returns: what is wrong, and the fields of a job for those whom it concerns.
    mutating func word(_ locales: [String?]) -> (faults: JobFaults, fields: [(name: String, value: ArraySlice<UInt8>)])?
    {
        guard var wording = self.wording else { return nil }
        self.wording = nil
        var faults: [JobFault] = []
        var wordless: [Int] = []
        for (index, locale) in zip(self.notifications.indices, locales) {
            do throws(JobFault) {
                try wording.apply(to: &self.notifications[index], locale: locale)
            } catch {
                if !faults.contains(error) { faults.append(error) }
                wordless.append(index)
            }
        }
        guard !faults.isEmpty else { return nil }
        let users = wordless.map { self.notifications[$0].user }
        self.wordless = wordless.count
        for index in wordless.reversed() { self.notifications.remove(at: index) }
        return (JobFaults(faults), self.fields(for: users))
    }

    /// The fields of a job for these users alone: all of them as they came if there are no others.
    ///
    /// Those of a broadcast always name their users, as the broadcast is not expanded again. They have its id, so that nobody
    /// is notified twice whose page is begun anew, and its first place, as the letter's name is no entry's.
    private func fields(for users: [String]) -> [(name: String, value: ArraySlice<UInt8>)] {
        let fields = self.origin.latestFields
        if self.page == nil, self.notifications.isEmpty { return fields }
        let list = JSONWriter.bytes(of: .array(users.map { .string($0) }))
        var named = fields.filter { !Self.audience.contains($0.name) }
        named.append((name: "users", value: list[...]))
        guard let page else { return named }
        if !named.contains(where: { $0.name == "id" }) {
            named.append((name: "id", value: Array(page.job.utf8)[...]))
        }
        named.append((name: JobOrigin.replayField, value: Array(self.origin.text.utf8)[...]))
        return named
    }
}
