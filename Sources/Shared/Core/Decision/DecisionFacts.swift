// Carillon · DecisionFacts.swift
// SPDX-License-Identifier: Apache-2.0

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
        /// Put off, and its time has come.
        case due(FollowUp)
    }

    package var notification: Notification
    package var type: NotificationType
    package var preference = TypePreference()
    package var settings = UserSettings()
    /// The rules of the user's zone.
    package var zone = ZoneRules.utc
    /// How many devices the user has that may be sent to.
    package var deviceCount = 0
    package var presence = Presence.unknown
    /// Which cap the user has reached; nil for none.
    package var cap: CapScope?
    package var progress: Progress
    /// Whether it may have been handed to sockets before, and no proof came since.
    package var isRepeat = false
    package var now: Timestamp

    package init(notification: Notification, type: NotificationType, progress: Progress, now: Timestamp) {
        self.notification = notification
        self.type = type
        self.progress = progress
        self.now = now
    }

    /// Whether a socket may still prove receipt of what it is handed.
    package var mayBeProven: Bool {
        guard case .online(let connections) = self.presence else { return false }
        return connections.contains { $0.dialect.canProve }
    }

    /// The quiet hours that this notification keeps; nil if there are none, or the type ignores them.
    private var quietHours: QuietHours? {
        let mayIgnore = self.notification.severity == .alert || self.type.severity == .alert
        if self.type.quietHours == .ignore, mayIgnore { return nil }
        switch self.preference.quietHours {
        case .some(QuietOverride.none): return nil
        case .hours(let own): return own
        case .inherited, nil: return self.settings.quietHours
        }
    }

    /// Whether the time of day matters for this notification.
    package var hasQuietHours: Bool { self.quietHours != nil }

    /// The end of the quiet hours that hold now for this notification; nil if none do.
    package var quietEnd: Timestamp? {
        self.quietHours.flatMap { QuietCalendar($0, zone: self.zone).end(at: self.now) }
    }

    /// When what the quiet hours of now hold back goes out; nil outside of them.
    package var releaseAt: Timestamp? { self.quietEnd.map { self.release(after: $0) } }

    /// When what quiet hours hold back until `end` goes out.
    ///
    /// Some time after their end, by ``ReleaseSpread``; at their end if it would expire meanwhile, or others would have begun.
    func release(after end: Timestamp) -> Timestamp {
        let later =
            end + ReleaseSpread.delay(user: self.notification.user, end: end, lane: self.notification.lane)
        if let expiresAt = self.notification.expiresAt, expiresAt <= later { return end }
        guard let hours = self.quietHours else { return later }
        let calendar = QuietCalendar(hours, zone: self.zone)
        // To look at the calendar again takes as long as all the rest.
        return calendar.leavesFree(minutes: ReleaseSpread.mostMinutes) || calendar.end(at: later) == nil ? later : end
    }
}
