// Carillon · DecisionFacts.swift
// SPDX-License-Identifier: Apache-2.0

package import Model

/// All that a decision about one notification rests on.
package struct DecisionFacts: Sendable {
    /// How far the notification has come.
    package enum Progress: Sendable, Equatable {
        /// Taken from a stream, not stored.
        case arrived
        /// Stored; presence and devices are known.
        case stored
        /// Handed to sockets, and no proof came in time.
        case unproven
    }

    package var notification: Notification
    package var type: NotificationType
    package var preference = TypePreference()
    package var settings = UserSettings()
    /// How many active devices the user has.
    package var deviceCount = 0
    package var presence = Presence.unknown
    package var progress: Progress
    package var now: Timestamp

    package init(notification: Notification, type: NotificationType, progress: Progress, now: Timestamp) {
        self.notification = notification
        self.type = type
        self.progress = progress
        self.now = now
    }
}
