// Carillon · APIServices+Preferences.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

extension APIServices {
    /// Stores what an existing client's settings page says about types; of what it leaves out nothing changes.
    ///
    /// Such pages know no categories, and send back all that they show: what only repeats the user's word for a category must not
    /// become one for the type, which would outlast that of the category.
    func changePreferences(user: String, _ preferences: [String: TypePreference]) async throws {
        try await self.preferences.set(
            user: user,
            preferences: preferences,
            keepsUnsaid: true,
            categories: self.catalog.all.reduce(into: [:]) { categories, type in
                if let category = type.category, preferences[type.name] != nil { categories[type.name] = category }
            }
        )
    }
}
