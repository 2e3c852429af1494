// Carillon · WebhookSecret.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The secrets for the signatures of webhooks.
enum WebhookSecret {
    /// Returns a new secret of 256 random bits.
    static func make() -> String {
        "whsec_" + Base64.url.encode((0..<32).map { _ in UInt8.random(in: .min ... .max) })
    }
}
