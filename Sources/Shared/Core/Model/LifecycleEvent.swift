// Carillon · LifecycleEvent.swift
// SPDX-License-Identifier: Apache-2.0

/// A change of a notification's status, as reported to upstream apps.
package struct LifecycleEvent: Sendable, Equatable {
    package enum Kind: String, Sendable, CaseIterable {
        /// A provider accepted it, or it waits in the inbox of an offline user.
        case sent
        /// A client proved that it received it.
        case delivered
        case opened, read, failed, suppressed, expired, cancelled
        /// The user pressed a button; the reason is the button's id.
        case acted
        /// Its push waits for the end of quiet hours, or it waits for its digest.
        case deferred
        /// A newer notification with the same collapse key replaced it.
        case replaced
        /// A digest's summary replaced it.
        case summarised
        /// A provider reported a device's token as dead, and the device was switched off.
        case tokenInvalid = "token_invalid"
        /// A device was switched off because its user has registered others since. Names no
        /// notification.
        case deviceDeactivated = "device_deactivated"

        /// The event for reaching `status`; nil for a status that is not final.
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

    /// How a notification reached its user.
    package struct Endpoint: Sendable, Equatable {
        let channel: DeliveryChannel
        /// The device, if a provider delivered to one.
        let device: DeviceID?
        let platform: Platform?
        let app: String?

        package init(
            _ channel: DeliveryChannel, device: DeviceID? = nil, platform: Platform? = nil, app: String? = nil
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
    /// The channel that the event is about; nil for all.
    package var channel: DeliveryChannel?
    /// The device that the event is about.
    package var device: DeviceID?
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

    /// An action of a user or a client on a notification.
    package init(_ kind: Kind, _ label: NotificationLabel, at: Timestamp, endpoint: Endpoint) {
        self.kind = kind
        self.at = at
        self.label = label
        self.channel = endpoint.channel
        self.device = endpoint.device
        self.platform = endpoint.platform
        self.app = endpoint.app
    }

    /// An event of a device that names no notification.
    package init(_ kind: Kind, _ device: Device, at: Timestamp, reason: String) {
        let label = NotificationLabel(
            id: NotificationID(high: 0, low: 0), user: device.user, type: "", category: nil, org: "", job: nil)
        self.init(kind, label, at: at, channel: .push, device: device, reason: reason)
    }
}
