// Carillon · WebhookSecret.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The keys of webhooks' signatures.
package enum WebhookSecret {
    /// A new one, of 256 random bits.
    package static func make() -> String {
        "whsec_" + Base64URL.encode((0..<32).map { _ in UInt8.random(in: .min ... .max) })
    }
}
