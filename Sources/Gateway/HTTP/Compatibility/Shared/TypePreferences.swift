// Carillon · TypePreferences.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// The preference that a settings page shows: the user's choice, or the type's default.
enum EffectivePreference {
    static func inApp(_ preference: TypePreference, _ type: NotificationType) -> Bool {
        type.isRequired || (preference.inApp ?? type.isOnByDefault)
    }

    static func push(_ preference: TypePreference, _ type: NotificationType) -> Bool {
        type.isRequired || (preference.push ?? type.isOnByDefault)
    }

    /// E-mail is opt-in unless the type says otherwise.
    static func email(_ preference: TypePreference, _ type: NotificationType) -> Bool {
        preference.email ?? (type.channels.contains(.email) && type.isEmailOnByDefault)
    }
}

extension UserServices {
    /// Stores the type preferences that a client sent; others stay.
    ///
    /// These clients know no categories and send everything back. A value that only repeats the
    /// user's choice for the category must not become a choice for the type, which would outlive
    /// it.
    func changePreferences(user: String, _ preferences: [String: TypePreference]) async throws {
        try await self.preferences.set(
            user: user,
            preferences: preferences,
            keepsOmitted: true,
            categories: self.base.catalog.all.reduce(into: [:]) { categories, type in
                if let category = type.category, preferences[type.name] != nil { categories[type.name] = category }
            }
        )
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
