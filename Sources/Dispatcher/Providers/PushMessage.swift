// Carillon · PushMessage.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto

/// What a device is to be told, before a provider's form is put on it.
package struct PushMessage: Sendable {
    package enum Purpose: Sendable, Equatable {
        /// To show the notification.
        case show
        /// To take it off the screen, as it was read elsewhere.
        case retract
    }

    package var notification: Notification
    /// What the app's icon shows; nil leaves what it shows.
    package var badge: Int64?
    /// The inbox version at which the badge was counted, by which a client tells which of two is newer; nil if the badge is
    /// no count of ours.
    package var badgeVersion: Int64?
    /// The integer that clients know the type by.
    package var code: Int?
    /// The category for which the app has registered buttons; nil shows none.
    package var buttonCategory: String?
    /// What is asked of the device.
    package var purpose = Purpose.show
    /// By which it goes before others that wait for a connection.
    package var lane = Lane.normal
    /// How fast the provider passes it on to a device that sleeps.
    package var priority: PushPriority
    /// Whether its user may refuse its like.
    package var isRefusable = true
    package var now: Timestamp

    /// - Parameters:
    ///   - unread: how many the user has not seen, unless the notification names a badge itself.
    ///   - now: from which the rest of its time to live counts.
    package init(notification: Notification, unread: Int64, code: Int? = nil, now: Timestamp) {
        self.notification = notification
        self.code = code
        self.buttonCategory = notification.category
        self.badge = notification.extras.badge ?? unread
        // Providers throttle the other, so only what is for many at leisure takes it.
        self.priority = notification.extras.pushPriority ?? (notification.lane == .bulk ? .normal : .high)
        self.now = now
    }

    /// How long it may still be delivered, in whole seconds; nil if it never expires.
    var secondsToLive: Int64? {
        self.deliverableUntil.map { max(0, ($0 - self.now).components.seconds) }
    }

    /// Whether it may break through a phone's focus.
    var isTimeSensitive: Bool { self.notification.severity == .alert }

    /// The members of `data`, in their order; empty if there are none.
    var dataMembers: [JSONMember] {
        guard let data = self.notification.data else { return [] }
        // It was checked when the job was taken.
        return (try? JSONParser.parse(data))?.object ?? []
    }

    /// What the job asks of one provider beyond the common fields: a member of its `platform`.
    func overrides(_ provider: Provider) -> JSONValue? {
        guard let platform = self.notification.extras.platform else { return nil }
        // It was checked when the job was taken.
        let value = (try? JSONParser.parse(platform))?[provider.rawValue]
        return value?.object == nil ? nil : value
    }

    /// The delivery's own id: the same at each try, and another for each device and for what takes the message away.
    func deliveryID(to device: Device) -> NotificationID {
        var hash = SHA256()
        for half in [
            self.notification.id.high, self.notification.id.low, device.id.high, device.id.low,
            self.purpose == .show ? 0 : 1,
        ] {
            withUnsafeBytes(of: half.bigEndian) { hash.update(bufferPointer: $0) }
        }
        let (high, low) = hash.finalize().withUnsafeBytes { bytes in
            (
                bytes.loadUnaligned(as: UInt64.self), bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
            )
        }
        return NotificationID(high: high.bigEndian, low: low.bigEndian).asHashUUID
    }

    /// By what a device shows the newer in place of the older, and a repeat in place of the first.
    var replacementKey: String { self.notification.collapseKey ?? self.notification.id.description }

    /// What Apple's header takes.
    private static let longestScreenName = 64

    /// The name under which a phone shows it: its replacement key, or a hash of that where a header cannot hold it.
    var screenName: String {
        let key = self.replacementKey
        let isHeader =
            key.utf8.count <= Self.longestScreenName && key.utf8.allSatisfy { (0x20...0x7E).contains($0) }
            && !key.isEmpty && key.first != " " && key.last != " "
        return isHeader ? key : KeyHash.text(key)
    }

    /// How long what takes a message away is kept for a device that is out of reach.
    static let retractionLifetime: Duration = .seconds(86_400)

    /// Until when it may be delivered; nil for ever.
    var deliverableUntil: Timestamp? {
        switch self.purpose {
        case .show: self.notification.expiresAt
        // What has expired may still be on the screen.
        case .retract: self.now + Self.retractionLifetime
        }
    }

    /// Until when it may be delivered as `apns-expiration` has it, in seconds since 1970; nil for ever.
    ///
    /// - Parameter longest: how far ahead it may be; the header has 32 bits, and what is beyond them is refused.
    func expiration(within longest: Duration) -> String? {
        self.deliverableUntil.map { String(max(0, min($0, self.now + longest).seconds)) }
    }
}
