// Carillon · DecisionFacts.swift
// SPDX-License-Identifier: Apache-2.0

/// Everything that a decision about one notification depends on.
package struct DecisionFacts: Sendable {
    /// How far the notification has come.
    package enum Progress: Sendable, Equatable {
        /// Taken from a stream, not stored.
        case arrived
        /// Stored; presence and devices are known.
        case stored
        /// Handed to sockets, without proof in time.
        case unproven
        /// Postponed, and due now.
        case due(FollowUp)
    }

    /// The fields of a notification that decisions read.
    ///
    /// Facts are copied often, and a whole notification is large.
    package struct Subject: Sendable {
        package var user: String
        var severity: Severity
        var delivery: DeliveryClass
        var lane: Lane
        var channels: Channels
        var status: NotificationStatus
        /// Whether its delivery is in a provider's stream.
        var isQueued: Bool
        /// When it expires or is no longer kept, whichever comes first; nil if never.
        var endsAt: Timestamp?

        init(_ notification: Notification) {
            self.user = notification.user
            self.severity = notification.severity
            self.delivery = notification.delivery
            self.lane = notification.lane
            self.channels = notification.channels
            self.status = notification.status
            self.isQueued = notification.isQueued
            self.endsAt = notification.endsAt
        }
    }

    package var notification: Subject
    package var type: NotificationType
    package var preference = TypePreference()
    package var settings = UserSettings()
    /// The rules of the user's time zone.
    package var zone = ZoneRules.utc
    /// The number of the user's devices that a provider serves.
    package var deviceCount = 0
    /// Whether the user has a device that no provider serves.
    package var hasUnservedDevice = false
    /// Whether any app has a mail relay.
    package var hasMailRelay = true
    package var presence = Presence.unknown
    /// The cap that the user has reached; nil for none.
    package var cap: CapScope?
    var progress: Progress
    /// Whether it may have been handed to sockets before.
    package var isRepeat = false
    package var now: Timestamp

    package init(notification: Notification, type: NotificationType, progress: Progress, now: Timestamp) {
        self.notification = Subject(notification)
        self.type = type
        self.progress = progress
        self.now = now
    }

    /// Creates the facts of a notification and its user's preferences; the caller sets presence,
    /// devices and cap.
    ///
    /// - Parameters:
    ///   - type: nil if the catalog no longer has it; its notifications keep their stored values.
    ///   - zone: returns the rules of the user's zone; called only if quiet hours may apply to the
    ///     notification.
    package init(
        _ notification: Notification,
        type: NotificationType?,
        preference: TypePreference,
        settings: UserSettings,
        progress: Progress,
        now: Timestamp,
        zone: (_ name: String?) -> ZoneRules
    ) {
        self.init(
            notification: notification, type: type ?? NotificationType(name: notification.type), progress: progress,
            now: now)
        self.preference = preference
        self.settings = settings
        if self.hasQuietHours { self.zone = zone(settings.zone) }
    }

    /// Whether the notification has expired at `moment`, or its `keep_until` has passed.
    package func isExpired(at moment: Timestamp) -> Bool {
        self.notification.endsAt.map { $0 <= moment } ?? false
    }

    /// Whether a socket or a device can interrupt the user, so that caps count the notification.
    package var canInterrupt: Bool {
        if case .online = self.presence, self.notification.channels.contains(.inApp) { return true }
        return self.deviceCount > 0
    }

    /// Why no mail can go out; nil if it can.
    var mailObstacle: RecordedReason? {
        if !self.hasMailRelay { return .noProvider }
        return self.settings.email == nil ? .noAddress : nil
    }

    /// Whether a socket may still prove receipt.
    var mayBeProven: Bool {
        guard case .online(let connections) = self.presence else { return false }
        return connections.contains { $0.dialect.canProve }
    }

    /// The quiet hours that apply to this notification; nil for none.
    private var quietHours: QuietHours? {
        if self.type.quietHours == .ignore, self.notification.severity == .alert { return nil }
        // Ignore hours set for this type before it became required: users can no longer remove
        // them.
        if self.type.isRequired { return self.settings.quietHours }
        switch self.preference.quietHours {
        case .some(QuietOverride.none): return nil
        case .hours(let own): return own
        case .inherited, nil: return self.settings.quietHours
        }
    }

    /// Whether the time of day matters for this notification.
    var hasQuietHours: Bool { self.quietHours != nil }

    /// The end of the quiet hours that hold now; nil if none do.
    package var quietEnd: Timestamp? {
        self.quietHours.flatMap { QuietCalendar($0, zone: self.zone).end(at: self.now) }
    }

    /// When the quiet hours that hold now release the notification; nil if none do.
    package var releaseAt: Timestamp? { self.quietEnd.map { self.release(after: $0) } }

    /// When quiet hours that end at `end` release the notification.
    ///
    /// Adds the delay of ``ReleaseSpread``, unless the notification would expire or other quiet
    /// hours would begin in that time.
    func release(after end: Timestamp) -> Timestamp {
        let later =
            end + ReleaseSpread.delay(user: self.notification.user, end: end, lane: self.notification.lane)
        if self.isExpired(at: later) { return end }
        guard let hours = self.quietHours else { return later }
        let calendar = QuietCalendar(hours, zone: self.zone)
        // The cheap check first: searching the calendar costs as much as the rest of the decision.
        return calendar.leavesFree(minutes: ReleaseSpread.mostMinutes) || calendar.end(at: later) == nil ? later : end
    }
}
