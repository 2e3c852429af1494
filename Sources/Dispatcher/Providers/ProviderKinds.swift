// Carillon · ProviderKinds.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The kinds of providers that are built in.
///
/// A line here is all that names a provider outside its folder: a dispatcher announces those of this list, and whoever has
/// to know which there are goes by what was announced.
package enum ProviderKinds {
    package static var all: [any ProviderKind.Type] {
        [
            FCM.self,
            APNS.self,
            WebPush.self,
            Email.self,
            WebhookProvider.self,
        ]
    }

    /// The providers of these kinds, in the order of ``all``.
    package static let providers = Self.all.map { $0.provider }

    /// The kind of a provider; nil if none is built in.
    package static func kind(of provider: Provider) -> (any ProviderKind.Type)? {
        self.all.first { $0.provider == provider }
    }
}
