// Carillon · Job.swift
// SPDX-License-Identifier: Apache-2.0

/// What an upstream app enqueues, decoded and valid.
package struct Job: Sendable, Equatable {
    /// Idempotency key, unique within `org`.
    package var id: String?
    package var org = ""
    package var audience: Audience
    /// Users left out.
    package var except: [String] = []
    package var payload: Payload

    /// A stored notification, or an event that is gone when it was sent.
    package enum Payload: Sendable, Equatable {
        case notification(JobContent)
        /// A name and a JSON array.
        case event(name: String, arguments: [UInt8])
    }

    package init(audience: Audience, payload: Payload) {
        self.audience = audience
        self.payload = payload
    }
}

/// What a notification job says, its defaults not yet filled in.
package struct JobContent: Sendable, Equatable {
    /// What is due no later than this from now goes on its way at once.
    package static let scheduleTolerance: Duration = .seconds(1)

    package var type: String
    package var title = ""
    package var body = ""
    /// A JSON object for the client.
    package var data: [UInt8]?
    package var extras = NotificationExtras()
    package var entityType: String?
    package var entityID: String?
    package var category: String?
    package var severity: Severity?
    package var delivery: DeliveryClass?
    package var lane: Lane?
    package var channels: Channels?
    package var collapseKey: String?
    package var expiresAt: Timestamp?
    package var keepUntil: Timestamp?
    /// The catalog's template that makes title and body, and its variables.
    package var template: String?
    package var variables: [JSONMember]?
    /// Not before this moment.
    package var deliverAt: Timestamp?
    /// Not before clocks in each recipient's zone show this.
    package var deliverLocal: WallTime?
    /// What has the same key in the type's window becomes one notification.
    package var digest: String?

    package init(type: String) {
        self.type = type
    }
}

/// What a notification carries beside its text, absent in most.
package struct NotificationExtras: Sendable, Equatable {
    package var url: String?
    package var image: String?
    package var sound: String?
    /// The badge that a device shows, in place of the unread count.
    package var badge: Int64?
    /// The job's own, in place of the type's or the lane's.
    package var pushPriority: PushPriority?
    /// The entity's state, which picks buttons.
    package var state: String?
    /// Overrides per provider, a JSON object.
    package var platform: [UInt8]?
    /// Where in a trace of the sender's it belongs: the W3C's `traceparent`, well formed.
    package var traceParent: String?

    package init() {}

    package var isEmpty: Bool { self == NotificationExtras() }
}
