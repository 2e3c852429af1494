// Carillon · PushMessage.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto

/// A notification for a device, before a provider formats it.
package struct PushMessage: Sendable {
    /// The effect of a message on the device.
    package enum Purpose: Sendable, Equatable {
        /// Shows the notification.
        case show
        /// Removes the notification, which was read elsewhere.
        case retract
    }

    /// The notification; its title and body are plain text.
    package var notification: Notification {
        _read { yield self.content.notification }
        set { self.content = Content(newValue) }
    }
    private var content: Content
    /// The app's badge; nil leaves it unchanged.
    package var badge: Int64?
    /// The inbox version of the badge, which lets a client find the newer of two badges; nil if the
    /// badge is not our count.
    package var badgeVersion: Int64?
    /// The type's integer code for clients.
    var code: Int?
    /// The category of the app's registered buttons; nil shows none.
    package var buttonCategory: String?
    /// The action on the device.
    package var purpose = Purpose.show
    /// The lane, which orders messages that wait for a connection.
    package var lane = Lane.normal
    /// The provider's priority for sleeping devices.
    package var priority: PushPriority
    /// Whether the user may unsubscribe from such notifications.
    package var isRefusable = true
    /// The user's locale, for e-mail; nil if it is unknown.
    package var locale: String?
    /// The type's title in that locale, for e-mail; nil if the catalog has none.
    package var typeTitle: String?
    /// Whether the provider may still be called, checked when the call's turn in our queue comes;
    /// nil means always.
    ///
    /// Runs on the sending thread, so it must not block.
    package var mayStart: (@Sendable () -> Bool)?
    var now: Timestamp

    /// Creates a message without a badge.
    ///
    /// - Parameter now: the start of the remaining time to live.
    package init(notification: Notification, code: Int? = nil, now: Timestamp) {
        var plain = notification
        plain.title = InlineMarks.plain(notification.title)
        plain.body = InlineMarks.plain(notification.body)
        self.content = Content(plain)
        self.code = code
        self.buttonCategory = notification.category
        // Providers throttle normal priority, so only bulk messages use it.
        self.priority = notification.extras.pushPriority ?? (notification.lane == .bulk ? .normal : .high)
        self.now = now
    }

    /// The notification on the heap, because each step of a call copies the message.
    private final class Content: Sendable {
        let notification: Notification

        init(_ notification: Notification) {
            self.notification = notification
        }
    }

    /// The remaining time to live in whole seconds; nil if the message never expires.
    var secondsToLive: Int64? {
        self.deliverableUntil.map { max(0, ($0 - self.now).components.seconds) }
    }

    /// Whether the message may break through a phone's focus mode.
    var isTimeSensitive: Bool { self.notification.severity == .alert }

    /// The members of `data` in order, without nulls; empty if there are none.
    ///
    /// FCM has only strings, and clients would take the text `null` for a value.
    var dataMembers: [JSONMember] {
        guard let data = self.notification.data else { return [] }
        // Validated when the job was taken, maybe by earlier limits.
        let members = (try? JSONParser.parse(stored: data))?.object ?? []
        return members.filter { $0.value != .null }
    }

    /// Returns the job's settings for one provider, a member of its `platform`.
    func overrides(_ provider: Provider) -> JSONValue? {
        guard let platform = self.notification.extras.platform else { return nil }
        // Validated when the job was taken, maybe by earlier limits.
        let value = (try? JSONParser.parse(stored: platform))?[provider.rawValue]
        return value?.object == nil ? nil : value
    }

    /// Returns the delivery's id: the same for each attempt, different for each device and for
    /// retractions.
    func deliveryID(to device: Device) -> Identifier {
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
        return Identifier(high: high.bigEndian, low: low.bigEndian).asHashUUID
    }

    /// The key by which a device replaces an older message, or a repeat.
    ///
    /// An organisation's collapse key is hashed with the organisation's name, because a device may
    /// serve several organisations.
    var replacementKey: String {
        guard let key = self.notification.collapseKey else { return self.notification.id.description }
        let org = self.notification.org
        return org.isEmpty ? key : KeyHash.text("\(org)\u{0}\(key)")
    }

    /// The limit of Apple's header, in bytes.
    private static let longestScreenName = 64

    /// The name under which a phone shows the message: the replacement key, or its hash if a header
    /// cannot hold it.
    var screenName: String {
        let key = self.replacementKey
        let isHeader =
            key.utf8.count <= Self.longestScreenName && key.utf8.allSatisfy { (0x20...0x7E).contains($0) }
            && !key.isEmpty && key.first != " " && key.last != " "
        return isHeader ? key : KeyHash.text(key)
    }

    /// The time to live of retractions.
    static let retractionLifetime: Duration = .seconds(86_400)

    /// The end of the time to live; nil means forever.
    var deliverableUntil: Timestamp? {
        switch self.purpose {
        case .show: self.notification.endsAt
        // An expired notification may still be on the screen.
        case .retract: self.now + Self.retractionLifetime
        }
    }

    /// Returns the expiry for `apns-expiration`, in seconds since 1970; nil means forever, and 0
    /// that Apple tries once and stores nothing.
    ///
    /// - Parameter longest: the maximum time ahead; Apple rejects values over 32 bits.
    func expiration(within longest: Duration) -> String? {
        // Apple stores one message per app for a phone out of reach. A retraction would take the
        // place of an alert that the phone has not shown.
        if self.purpose == .retract { return "0" }
        return self.deliverableUntil.map { String(max(0, min($0, self.now + longest).seconds)) }
    }
}

/// Turns a collapse key into a short, opaque, stable name.
enum KeyHash {
    /// Fills the 32 characters of a Web Push topic (RFC 8030 section 5.4).
    private static let bytes = 24

    /// Returns 32 base64url characters.
    static func text(_ key: String) -> String {
        Base64.url.encode(SHA256.hash(data: Array(key.utf8)).prefix(Self.bytes))
    }
}
