// Carillon · Provider.swift
// SPDX-License-Identifier: Apache-2.0

/// A service that delivers to devices.
package enum Provider: String, Sendable, CaseIterable {
    case fcm, apns, webpush, email, webhook

    /// Those that devices are registered with; an e-mail address is none.
    package static let ofDevices = Self.allCases.filter { $0 != .email }
}

/// What a device runs.
package enum Platform: String, Sendable, CaseIterable {
    case ios, android, web
    /// A program of somebody's own, which is told by HTTP.
    case webhook

    /// The provider of a device that names none.
    package var provider: Provider {
        switch self {
        case .ios: .apns
        case .android: .fcm
        case .web: .webpush
        case .webhook: .webhook
        }
    }
}

/// Which of Apple's two services a token belongs to.
package enum ProviderEnvironment: String, Sendable, CaseIterable {
    case production, sandbox
}
