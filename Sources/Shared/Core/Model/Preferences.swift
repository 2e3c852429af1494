// Carillon · Preferences.swift
// SPDX-License-Identifier: Apache-2.0

/// What a user wants of one type; nil where the user has not said.
package struct TypePreference: Sendable, Equatable {
    package var inApp: Bool?
    package var push: Bool?
    package var email: Bool?
    /// In place of the user's quiet hours; nil if nothing was said.
    package var quietHours: QuietOverride?

    package init(inApp: Bool? = nil, push: Bool? = nil, email: Bool? = nil, quietHours: QuietOverride? = nil) {
        self.inApp = inApp
        self.push = push
        self.email = email
        self.quietHours = quietHours
    }

    /// The same with what it leaves open taken from another, channel by channel.
    package func filled(from other: TypePreference) -> TypePreference {
        TypePreference(
            inApp: self.inApp ?? other.inApp,
            push: self.push ?? other.push,
            email: self.email ?? other.email,
            quietHours: self.quietHours ?? other.quietHours
        )
    }
}

/// What holds for a type in place of the user's quiet hours.
package enum QuietOverride: Sendable, Equatable {
    /// The user's own hold.
    case inherited
    /// It has none.
    case none
    case hours(QuietHours)
}

/// Wall-clock times in the user's zone, minutes after midnight; start is inclusive, end exclusive.
package struct QuietHours: Sendable, Equatable {
    package var start: Int
    package var end: Int
    /// Bit 0 is Monday; the day on which the window starts.
    package var weekdays: UInt8

    package init(start: Int, end: Int, weekdays: UInt8 = 0x7F) {
        self.start = start
        self.end = end
        self.weekdays = weekdays
    }
}

/// What holds for a user in general.
package struct UserSettings: Sendable, Equatable {
    package var zone: String?
    package var locale: String?
    package var email: String?
    package var quietHours: QuietHours?
    /// Quiet hours that the user has switched off; they do not hold.
    package var pausedQuietHours: QuietHours?
    /// Refuses everything that is not required.
    package var isOptedOut = false
    /// Refuses e-mail of everything that is not required.
    package var isEmailOptedOut = false

    package init() {}
}
