// Carillon · WebhookOptions.swift
// SPDX-License-Identifier: Apache-2.0

/// What the operator lets webhooks do.
package struct WebhookOptions: Sendable {
    /// Whether there are events to be told of.
    package var areEventsWritten = true
    /// Whether receivers may be in private networks, and speak plain HTTP.
    package var allowsPrivate = false

    package init(areEventsWritten: Bool = true, allowsPrivate: Bool = false) {
        self.areEventsWritten = areEventsWritten
        self.allowsPrivate = allowsPrivate
    }
}
