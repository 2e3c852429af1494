// Carillon · EffectiveWish.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What a settings page shows for a type: the user's word, or else the type's default.
enum EffectiveWish {
    static func inApp(_ wish: TypePreference, _ type: NotificationType) -> Bool {
        type.isRequired || (wish.inApp ?? type.isOnByDefault)
    }

    static func push(_ wish: TypePreference, _ type: NotificationType) -> Bool {
        type.isRequired || (wish.push ?? type.isOnByDefault)
    }

    /// E-mail is what one asks for.
    static func email(_ wish: TypePreference, _ type: NotificationType) -> Bool {
        wish.email ?? (type.channels.contains(.email) && type.isEmailOnByDefault)
    }
}
