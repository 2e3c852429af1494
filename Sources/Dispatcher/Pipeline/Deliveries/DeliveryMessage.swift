// Carillon · DeliveryMessage.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Providers
import Storage
import Synchronization

extension PushMessage {
    /// Creates the message of a delivery.
    ///
    /// If it carries the unread count, records that in `badges`; so create it only to send it.
    init(
        _ facts: DeliveryStore.Facts,
        _ work: DeliveryWork,
        _ lane: Lane,
        by channel: any ProviderChannel,
        _ catalog: Catalog,
        _ badges: BadgeBoard,
        now: Timestamp
    ) {
        let type = catalog[facts.notification.type]
        self.init(notification: facts.notification, code: type?.code, now: now)
        self.lane = lane
        self.isRefusable = type?.isRequired != true
        switch channel.provider {
        case .email:
            let locale = facts.device.locale ?? catalog.defaultLocale.key
            self.locale = locale
            self.typeTitle = catalog.presentation(ofType: facts.notification.type).title
                .text(for: [locale], default: catalog.defaultLocale)
        // These have no registered buttons, so skip the parse of the notification's data.
        case .webpush, .webhook: break
        default: self.buttonCategory = catalog.buttonCategory(of: facts.notification)
        }
        if work.isRetraction { self.purpose = .retract }
        if let priority = type?.pushPriority, facts.notification.extras.pushPriority == nil {
            self.priority = priority
        }
        // A retraction has no badge of its own.
        let own = work.isRetraction ? nil : facts.notification.extras.badge
        self.badge = own
        switch type?.badge ?? .unseen {
        case .absent: break
        case .number(let number): if !work.isRetraction { self.badge = own ?? number }
        case .unseen:
            // Send the count only if no newer one was sent. A topic has none, because each of its
            // subscribers has their own.
            let hasCount = (!work.isRetraction || channel.retractionsHaveBadge) && !facts.device.isTopic
            let user = facts.notification.user
            let isNewest = hasCount && badges.record(facts.inboxVersion, of: user, for: facts.device.id)
            if isNewest, own == nil {
                self.badge = Int64(facts.unseen)
                self.badgeVersion = facts.inboxVersion
            }
        }
    }
}

/// The newest inbox version whose unread count this process sent to each device.
///
/// A device that another user registers starts over, because inboxes count their own versions. The
/// board is bounded; a dropped device may once get an older count.
final class BadgeBoard: Sendable {
    private static let capacity = 100_000

    private let sent = Mutex<[DeviceID: (user: ExactText, version: Int64)]>([:])

    /// Records a count, unless a newer one was sent.
    ///
    /// - Returns: whether it was recorded.
    func record(_ version: Int64, of user: String, for device: DeviceID) -> Bool {
        let user = ExactText(user)
        return self.sent.withLock { sent in
            if let last = sent[device], last.user == user, last.version > version { return false }
            if sent.count >= Self.capacity, sent[device] == nil { sent.removeAll(keepingCapacity: true) }
            sent[device] = (user, version)
            return true
        }
    }
}
