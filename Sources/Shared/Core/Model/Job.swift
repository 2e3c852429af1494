// Carillon · Job.swift
// SPDX-License-Identifier: Apache-2.0

/// A job of an upstream app, decoded and valid.
package struct Job: Sendable, Equatable {
    /// Idempotency key, unique within `org`.
    package var id: String?
    package var org = ""
    package var audience: Audience
    /// Users to leave out.
    package var except: [String] = []
    package var payload: Payload

    /// A notification, which is stored, or an event, which is only sent.
    package enum Payload: Sendable, Equatable {
        case notification(JobContent)
        /// A name and a JSON array.
        case event(name: String, arguments: [UInt8])
    }
}

/// The fields of a notification job, before defaults are filled in.
package struct JobContent: Sendable, Equatable {
    /// A job that is due within this time is delivered at once.
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
    /// The catalog template that renders title and body, and its variables.
    package var template: String?
    package var variables: [JSONMember]?
    /// The earliest delivery.
    package var deliverAt: Timestamp?
    /// The earliest delivery by the clock of each recipient's zone.
    package var deliverLocal: WallTime?
    /// Notifications with the same digest key within the type's window become one.
    package var digest: String?

    package init(type: String) {
        self.type = type
    }
}

/// Optional fields that most notifications do not have.
package struct NotificationExtras: Sendable, Equatable {
    package var url: String?
    package var image: String?
    package var sound: String?
    /// The badge on the app's icon, instead of the unread count.
    package var badge: Int64?
    /// Overrides the priority of the type and the lane.
    package var pushPriority: PushPriority?
    /// The entity's state, which selects the buttons.
    package var state: String?
    /// Overrides per provider, a JSON object.
    package var platform: [UInt8]?
    /// The sender's trace: a well-formed W3C `traceparent`.
    package var traceParent: String?

    package init() {}

    package var isEmpty: Bool { self == NotificationExtras() }
}

/// The recipients of a job.
package enum Audience: Sendable, Equatable {
    /// 1 to 1,000 distinct users.
    case users([String])
    case topic(String)
    case everyone
}

/// A fault of a job: the field, and the rule that it breaks.
package struct JobFault: Error, Sendable, Equatable, CustomStringConvertible {
    /// The reason for a type or a template that the catalog does not define.
    static let notInCatalog = "is not in the catalog"
    /// The reason for `vars` without a template.
    static let lacksTemplate = "needs a template, as the type has none of its own"

    package let field: String
    package let reason: String

    package init(_ field: String, _ reason: String) {
        self.field = field
        self.reason = reason
    }

    package var description: String { "\(self.field): \(self.reason)" }
}

/// All faults of a job.
package struct JobFaults: Error, Sendable, Equatable, CustomStringConvertible {
    package let faults: [JobFault]

    package init(_ faults: [JobFault]) {
        self.faults = faults
    }

    package var description: String { self.faults.map(\.description).joined(separator: "; ") }

    /// Whether a fault is a name that this catalog lacks; a newer catalog may have it.
    package var areOfCatalog: Bool {
        self.faults.contains { $0.reason == JobFault.notInCatalog || $0.reason == JobFault.lacksTemplate }
    }
}
