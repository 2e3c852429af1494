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
    /// What happens to its push in the user's quiet hours.
    package var quietHours = QuietPolicy.defer
    /// How long a user who is connected and idle has to read it before push goes out.
    package var attentionDelay: Duration = .seconds(60)
    /// After how long an e-mail goes out if it is still unread; nil for none.
    package var emailDelay: Duration?
    /// How many a user gets with an interruption; nil for any number.
    package var cap: FrequencyCap?
    /// How notifications with a digest key are gathered; nil if they are not.
    package var digest: DigestRule?
    /// The number that its pushes show on the app's icon.
    package var badge = BadgeRule.unseen
    /// In place of the lane's; nil for that.
    package var pushPriority: PushPriority?
    /// Whether reading it on one device takes it off the others' screens.
    package var isRetractedOnRead = false

    package init(name: String) {
        self.name = name
    }

    /// Whether e-mail goes to users who have not said anything about it: where nothing else is, or the type insists.
    package var isEmailOnByDefault: Bool {
        self.isOnByDefault && (self.isRequired || self.emailDelay != nil || self.channels == [.email])
    }
}

/// A rule for the number that a push shows on the app's icon.
package enum BadgeRule: Sendable, Equatable {
    /// How many notifications of the inbox the user has neither read nor opened.
    case unseen
    /// Always the same number.
    case number(Int64)
    /// Nothing: the icon stays as it is.
    case absent
}

/// What happens in a user's quiet hours to what would interrupt.
package enum QuietPolicy: String, Sendable, CaseIterable {
    /// It waits for their end.
    case `defer`
    /// It waits in the inbox, and nothing more.
    case inAppOnly = "in_app_only"
    /// It is not kept at all.
    case drop
    /// It goes out at once; for alerts.
    case ignore
}

/// At most `count` notifications in any span of `window`.
package struct FrequencyCap: Sendable, Equatable {
    package var count: Int
    package var window: Duration

    package init(count: Int, window: Duration) {
        self.count = count
        self.window = window
    }
}

/// How notifications with the same digest key become one.
package struct DigestRule: Sendable, Equatable {
    /// How long is gathered; from the first item on, or anew from each item if it is sliding.
    package var window: Duration
    package var isSliding = false
    /// How long a sliding window may last in all.
    package var maximum: Duration
    /// How many come as single ones before the rest is held for the summary.
    package var singles = 0

    package init(window: Duration, maximum: Duration? = nil) {
        self.window = window
        self.maximum = maximum ?? window
    }
}
