// Carillon · Provider.swift
// SPDX-License-Identifier: Apache-2.0

/// A service that delivers to devices.
package enum Provider: String, Sendable, CaseIterable {
    case fcm, apns, webpush, email
}

/// What a device runs.
package enum Platform: String, Sendable, CaseIterable {
    case ios, android, web
}

/// Which of Apple's two services a token belongs to.
package enum ProviderEnvironment: String, Sendable, CaseIterable {
    case production, sandbox
}
