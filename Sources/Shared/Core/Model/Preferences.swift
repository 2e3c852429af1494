// Carillon · Preferences.swift
// SPDX-License-Identifier: Apache-2.0

/// A user's preference for one type; nil where the user has not decided.
package struct TypePreference: Sendable, Equatable {
    package var inApp: Bool?
    package var push: Bool?
    package var email: Bool?
    /// Replaces the user's quiet hours; nil if not set.
    package var quietHours: QuietOverride?
    /// The channels that a change resets to the default; other channels without a value do not
    /// change.
    package var cleared: Channels = []

    package init(inApp: Bool? = nil, push: Bool? = nil, email: Bool? = nil, quietHours: QuietOverride? = nil) {
        self.inApp = inApp
        self.push = push
        self.email = email
        self.quietHours = quietHours
    }

    /// Returns this preference with undecided settings taken from another.
    func filled(from other: TypePreference) -> TypePreference {
        TypePreference(
            inApp: self.inApp ?? other.inApp,
            push: self.push ?? other.push,
            email: self.email ?? other.email,
            quietHours: self.quietHours ?? other.quietHours
        )
    }
}

/// The quiet hours of a type, in place of the user's.
package enum QuietOverride: Sendable, Equatable {
    /// The user's own apply.
    case inherited
    /// The type has none.
    case none
    case hours(QuietHours)
}

/// Wall-clock times in the user's zone, minutes after midnight; start is inclusive, end exclusive.
package struct QuietHours: Sendable, Equatable {
    package var start: Int
    package var end: Int
    /// Days on which the window starts; bit 0 is Monday.
    package var weekdays: UInt8

    package init(start: Int, end: Int, weekdays: UInt8 = 0x7F) {
        self.start = start
        self.end = end
        self.weekdays = weekdays
    }
}

/// A user's settings across all types.
package struct UserSettings: Sendable, Equatable {
    package var zone: String?
    package var locale: String?
    package var email: String?
    package var quietHours: QuietHours?
    /// Quiet hours that the user has switched off.
    package var pausedQuietHours: QuietHours?
    /// Refuses everything that is not required.
    package var isOptedOut = false
    /// Refuses every e-mail that is not required.
    package var isEmailOptedOut = false

    package init() {}
}

/// The key of a stored preference: a type's name, or a category's with a prefix that no type may
/// have.
package enum PreferenceKey {
    /// Prefix of category keys.
    package static let categoryPrefix = "category:"

    /// Returns the key of a category.
    package static func category(_ name: String) -> String { self.categoryPrefix + name }

    /// Returns the category of a key; nil if the key is a type's name.
    static func category(of key: String) -> String? {
        key.hasPrefix(self.categoryPrefix) ? String(key.dropFirst(self.categoryPrefix.count)) : nil
    }
}

extension [String: TypePreference] {
    /// Returns the user's preference for a type, completed by the one for its category.
    ///
    /// Channels that neither sets follow the type's defaults.
    package func preference(for type: NotificationType) -> TypePreference {
        let own = self[type.name] ?? TypePreference()
        guard let category = type.category, let wide = self[PreferenceKey.category(category)] else { return own }
        return own.filled(from: wide)
    }
}
