// Carillon · WebhookRoster.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Synchronization

/// The webhooks that are told of events, as they stood a moment ago.
final class WebhookRoster: Sendable {
    private let webhooks = Mutex<[NotificationID: Webhook]>([:])

    func set(_ webhooks: [Webhook]) {
        let byID = Dictionary(webhooks.map { ($0.id, $0) }) { $1 }
        self.webhooks.withLock { $0 = byID }
    }

    var all: [Webhook] { self.webhooks.withLock { Array($0.values) } }
}
