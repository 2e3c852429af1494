// Carillon · NotificationType.swift
// SPDX-License-Identifier: Apache-2.0

/// An entry of the catalog: what holds for all notifications of a kind unless a job says otherwise.
package struct NotificationType: Sendable, Equatable {
    package let name: String
    package var code: Int?
    package var severity = Severity.info
    package var delivery = DeliveryClass.inApp
    package var lane = Lane.normal
    package var category: String?
    package var channels: Channels = [.inApp, .push]
    /// Whether users get it without asking for it.
    package var isOnByDefault = true
    /// Whether users cannot refuse it.
    package var isRequired = false
    package var isEnabled = true
    /// How long after its creation it may still be sent.
    package var timeToLive: Duration = .seconds(24 * 3_600)
    package var sound: String?

    package init(name: String) {
        self.name = name
    }
}
