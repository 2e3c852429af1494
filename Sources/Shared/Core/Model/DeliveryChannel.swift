// Carillon · DeliveryChannel.swift
// SPDX-License-Identifier: Apache-2.0

/// A way to a user.
package enum DeliveryChannel: String, Sendable, CaseIterable {
    case inApp = "in_app"
    case push
    case email
}

/// A set of ways.
package struct Channels: OptionSet, Sendable, Hashable {
    package let rawValue: UInt8

    package init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    package static let inApp = Channels(rawValue: 1)
    package static let push = Channels(rawValue: 2)
    package static let email = Channels(rawValue: 4)
    package static let all: Channels = [.inApp, .push, .email]

    package init(_ channel: DeliveryChannel) {
        switch channel {
        case .inApp: self = .inApp
        case .push: self = .push
        case .email: self = .email
        }
    }
}
