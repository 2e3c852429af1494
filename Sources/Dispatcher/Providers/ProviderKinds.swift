// Carillon · ProviderKinds.swift
// SPDX-License-Identifier: Apache-2.0

package import Model

/// The kinds of providers that there are.
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

    /// The kind of a provider; nil if none is built in.
    package static func kind(of provider: Provider) -> (any ProviderKind.Type)? {
        self.all.first { $0.provider == provider }
    }
}
