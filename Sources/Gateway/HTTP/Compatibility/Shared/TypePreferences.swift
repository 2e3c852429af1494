// Carillon · TypePreferences.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// The preference that a settings page shows: on for a required type, else the user's choice, or
/// the type's default; always off for a channel that the type does not have.
enum EffectivePreference {
    static func inApp(_ preference: TypePreference, _ type: NotificationType) -> Bool {
        Self.isOn(preference.inApp ?? type.isOnByDefault, .inApp, type)
    }

    static func push(_ preference: TypePreference, _ type: NotificationType) -> Bool {
        Self.isOn(preference.push ?? type.isOnByDefault, .push, type)
    }

    /// E-mail is opt-in unless the type says otherwise.
    static func email(_ preference: TypePreference, _ type: NotificationType) -> Bool {
        Self.isOn(preference.email ?? type.isEmailOnByDefault, .email, type)
    }

    /// Whether a change would switch a channel of a required type off.
    static func isRefused(_ change: TypePreference, _ type: NotificationType) -> Bool {
        type.isRequired
            && (change.inApp == false && type.channels.contains(.inApp)
                || change.push == false && type.channels.contains(.push))
    }

    private static func isOn(_ isWanted: Bool, _ channel: Channels, _ type: NotificationType) -> Bool {
        type.channels.contains(channel) && (type.isRequired || isWanted)
    }
}

extension UserServices {
    /// Stores the type preferences that a client sent; others stay.
    ///
    /// These clients know no categories and send everything back. A value that only repeats the
    /// user's choice for the category must not become a choice for the type, which would outlive
    /// it. Neither must the value of a channel that the user cannot choose.
    func changePreferences(user: String, _ preferences: [String: TypePreference]) async throws {
        var chosen = preferences
        var categories: [String: String] = [:]
        for type in self.base.catalog.all where preferences[type.name] != nil {
            categories[type.name] = type.category
            let channels: Channels = type.isRequired ? [] : type.channels
            if !channels.contains(.inApp) { chosen[type.name]?.inApp = nil }
            if !channels.contains(.push) { chosen[type.name]?.push = nil }
            if !channels.contains(.email) { chosen[type.name]?.email = nil }
        }
        try await self.change(chosen, of: user, categories: categories)
    }
}

/// The catalog's types that have an integer code, for clients that use numbers.
struct CodedTypes: Sendable {
    /// Sorted by code.
    let all: [(code: Int, type: NotificationType)]
    private let byCode: [Int: NotificationType]

    init(_ types: [NotificationType]) {
        self.all = types.compactMap { type in type.code.map { ($0, type) } }.sorted { $0.code < $1.code }
        self.byCode = Dictionary(self.all.map { ($0.code, $0.type) }) { first, _ in first }
    }

    subscript(_ code: Int) -> NotificationType? { self.byCode[code] }

    /// Finds a type by its number or name in any case, as ASP.NET parses an enum.
    func find(_ text: some StringProtocol) -> NotificationType? {
        if let code = Int(text) { return self.byCode[code] }
        let name = text.lowercased()
        return self.all.first { $0.type.name.lowercased() == name }?.type
    }
}
