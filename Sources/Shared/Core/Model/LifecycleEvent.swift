// Carillon · LifecycleEvent.swift
// SPDX-License-Identifier: Apache-2.0

/// Something that became of a notification, as upstream apps are told.
package struct LifecycleEvent: Sendable, Equatable {
    package enum Kind: String, Sendable, CaseIterable {
        /// A provider accepted it, or it waits in the inbox of a user who is offline.
        case sent
        /// A client has proven that it got it.
        case delivered
        case opened, read, failed, suppressed, expired, cancelled
        /// Its push waits for the end of quiet hours, or it waits for its digest.
        case deferred
        /// A newer one with its collapse key has taken its place.
        case replaced
        /// A summary of several stands for it.
        case summarised
        /// A provider said that a device's token is dead, and it was switched off.
        case tokenInvalid = "token_invalid"
        /// A device was switched off, as its user has registered others since; no notification has
        /// a part in it.
        case deviceDeactivated = "device_deactivated"

        /// What it is called that a notification has come to that status; nil for those that it passes.
        package init?(ending status: NotificationStatus) {
            switch status {
            case .pending, .deferred: return nil
            case .sent: self = .sent
            case .delivered: self = .delivered
            case .failed: self = .failed
            case .expired: self = .expired
            case .suppressed: self = .suppressed
            case .cancelled: self = .cancelled
            }
        }
    }

    /// The way by which a notification reached its user.
    package struct Way: Sendable, Equatable {
        package let channel: DeliveryChannel
        /// The device, if it was one that a provider serves, and what is known of it.
        package let device: NotificationID?
        package let platform: Platform?
        package let app: String?

        package init(
            _ channel: DeliveryChannel, device: NotificationID? = nil, platform: Platform? = nil, app: String? = nil
        ) {
            self.channel = channel
            self.device = device
            self.platform = platform
            self.app = app
        }
    }

    package let kind: Kind
    package let at: Timestamp
    package let label: NotificationLabel
    /// The way that it is about; nil if it is about all.
    package var channel: DeliveryChannel?
    /// The device that it is about.
    package var device: NotificationID?
    package var platform: Platform?
    package var app: String?
    package var reason: String?

    package init(
        _ kind: Kind,
        _ label: NotificationLabel,
        at: Timestamp,
        channel: DeliveryChannel? = nil,
        device: Device? = nil,
        reason: String? = nil
    ) {
        self.kind = kind
        self.at = at
        self.label = label
        self.channel = channel
        self.device = device?.id
        self.platform = device?.platform
        self.app = device?.app
        self.reason = reason
    }

    /// Something that a user or a client did about a notification.
    package init(_ kind: Kind, _ label: NotificationLabel, at: Timestamp, way: Way) {
        self.kind = kind
        self.at = at
        self.label = label
        self.channel = way.channel
        self.device = way.device
        self.platform = way.platform
        self.app = way.app
    }

    /// An event of a device in which no notification has a part.
    package init(_ kind: Kind, _ device: Device, at: Timestamp, reason: String) {
        let label = NotificationLabel(
            id: NotificationID(high: 0, low: 0), user: device.user, type: "", category: nil, org: "", job: nil)
        self.init(kind, label, at: at, channel: .push, device: device, reason: reason)
    }
}
