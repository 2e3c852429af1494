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
