// Carillon · PreferenceKey.swift
// SPDX-License-Identifier: Apache-2.0

/// Under which name a preference is stored: a type's own, or a category's behind a prefix that no type's name may have.
package enum PreferenceKey {
    /// What a category's key begins with.
    package static let categoryPrefix = "category:"

    /// The key of a category.
    package static func category(_ name: String) -> String { self.categoryPrefix + name }

    /// The category whose key this is; nil for a type's name.
    package static func category(of key: String) -> String? {
        key.hasPrefix(self.categoryPrefix) ? String(key.dropFirst(self.categoryPrefix.count)) : nil
    }
}

extension [String: TypePreference] {
    /// What a user wants of a type: their word for it and, where that leaves a channel open, the one for its category.
    ///
    /// What neither says is as the type has it by default.
    package func wish(for type: NotificationType) -> TypePreference {
        let own = self[type.name] ?? TypePreference()
        guard let category = type.category, let wide = self[PreferenceKey.category(category)] else { return own }
        return own.filled(from: wide)
    }
}
