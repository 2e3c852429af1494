// Carillon · NotificationType.swift
// SPDX-License-Identifier: Apache-2.0

/// A type of the catalog: the defaults for its notifications, which a job may override.
package struct NotificationType: Sendable, Equatable {
    package let name: String
    package var code: Int?
    package var severity = Severity.info
    package var delivery = DeliveryClass.inApp
    package var lane = Lane.normal
    package var category: String?
    package var channels: Channels = [.inApp, .push]
    /// Whether users get it without opting in.
    package var isOnByDefault = true
    /// Whether users cannot refuse it.
    package var isRequired = false
    package var isEnabled = true
    /// How long after its creation it may still be sent.
    package var timeToLive: Duration = .seconds(24 * 3_600)
    package var sound: String?
    /// The rule for its push in the user's quiet hours.
    package var quietHours = QuietPolicy.defer
    /// How long a connected user has to read it before it is pushed, if the user is idle or
    /// ``isPushedWhenOnline``.
    package var attentionDelay: Duration = .seconds(60)
    /// Whether it is also pushed to users with an active connection.
    package var isPushedWhenOnline = false
    /// How long it stays unread before an e-mail goes out; nil to send mail at once.
    ///
    /// Without it, mail is mostly opt-in: see ``isEmailOnByDefault``.
    package var emailDelay: Duration?
    /// The limit on notifications that interrupt a user; nil for no limit.
    package var cap: FrequencyCap?
    /// How notifications with a digest key are combined; nil if they are not.
    package var digest: DigestRule?
    /// The number that its pushes show on the app's icon.
    package var badge = BadgeRule.unseen
    /// Overrides the lane's priority.
    package var pushPriority: PushPriority?
    /// Whether reading it on one device removes it from the screens of the others.
    package var isRetractedOnRead = false

    package init(name: String) {
        self.name = name
    }

    /// Whether users without a preference get e-mail: it is the only channel, has a delay, or is
    /// required.
    package var isEmailOnByDefault: Bool {
        self.isOnByDefault && (self.isRequired || self.emailDelay != nil || self.channels == [.email])
    }
}

/// The number that a push shows on the app's icon.
package enum BadgeRule: Sendable, Equatable {
    /// The number of notifications that the user has neither read nor opened.
    case unseen
    /// A fixed number.
    case number(Int64)
    /// None: the icon stays as it is.
    case absent
}

/// The effect of a user's quiet hours on a notification that would interrupt.
package enum QuietPolicy: String, Sendable, CaseIterable {
    /// It waits until they end.
    case `defer`
    /// It goes to the inbox only.
    case inAppOnly = "in_app_only"
    /// It is dropped.
    case drop
    /// It goes out at once; for alerts.
    case ignore

    /// Whether quiet hours drop the push for good.
    var isFinal: Bool { self == .inAppOnly || self == .drop }
}

/// At most `count` notifications in any span of `window`.
package struct FrequencyCap: Sendable, Equatable {
    package var count: Int
    package var window: Duration
}

/// How notifications with the same digest key become one.
package struct DigestRule: Sendable, Equatable {
    /// The collecting time, from the first item, or from the latest if the window slides.
    package var window: Duration
    package var isSliding = false
    /// The longest time that a sliding window may last.
    package var maximum: Duration
    /// How many are delivered one by one before the rest is held for the summary.
    package var singles = 0

    init(window: Duration, maximum: Duration? = nil) {
        self.window = window
        self.maximum = maximum ?? window
    }
}

/// The notifications that a frequency cap counts.
package enum CapScope: String, Sendable, CaseIterable {
    case user, type, category
}

/// How serious a notification is for its reader.
package enum Severity: String, Sendable, CaseIterable {
    case alert, warning, info
}

/// How urgently a provider wakes a sleeping device; independent of the severity.
package enum PushPriority: String, Sendable, CaseIterable {
    /// At once: APNs priority 10, Android `HIGH`, Web Push `high`.
    case high
    /// When it suits the battery: APNs priority 5, Android `NORMAL`.
    case normal
}

/// How far a notification goes to reach its reader.
package enum DeliveryClass: String, Sendable, CaseIterable {
    /// Reach the user: on a socket that proves receipt, otherwise by push.
    case push
    /// No interruption: sockets and the inbox.
    case inApp = "in_app"
}

/// The urgency of work, from jobs to providers; the most urgent first.
package enum Lane: String, Sendable, CaseIterable, Comparable {
    case critical, normal, bulk

    /// The lane's position, 0 for the most urgent; stored, and sent to nodes.
    package var rank: Int {
        switch self {
        case .critical: 0
        case .normal: 1
        case .bulk: 2
        }
    }

    package init?(rank: Int) {
        guard Self.allCases.indices.contains(rank) else { return nil }
        self = Self.allCases[rank]
    }

    /// How many batches a reader takes of this lane for each batch of `bulk`.
    package var weight: Int {
        switch self {
        case .critical: 16
        case .normal: 4
        case .bulk: 1
        }
    }

    package static func < (left: Lane, right: Lane) -> Bool {
        left.weight > right.weight
    }
}

/// A channel that reaches a user.
package enum DeliveryChannel: String, Sendable, CaseIterable {
    case inApp = "in_app"
    case push
    case email
}

/// A set of channels.
package struct Channels: OptionSet, Sendable, Hashable {
    package let rawValue: UInt8

    package init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    package static let inApp = Channels(rawValue: 1)
    package static let push = Channels(rawValue: 2)
    package static let email = Channels(rawValue: 4)
    package static let all: Channels = [.inApp, .push, .email]

    package init(_ channel: DeliveryChannel) {
        switch channel {
        case .inApp: self = .inApp
        case .push: self = .push
        case .email: self = .email
        }
    }
}
