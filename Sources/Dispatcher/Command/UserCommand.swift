// Carillon · UserCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Operations
import Storage

/// `dispatcher user`.
struct UserCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "user",
        abstract: "Shows a user: presence, devices, settings, what waits, and the newest notifications.",
        discussion: """
            Takes a user's id or e-mail address. Needs REDIS_URL and DATABASE_URL. Exits
            with 1 if there is no such user, or if several have the address.

            Examples:
              dispatcher user u1
              dispatcher user ada@example.com --status failed
              dispatcher user u1 --type payment_received --limit 50 --json
            """
    )

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Argument(help: "The user's id or e-mail address.")
    var user: String

    @Option(help: "Only notifications of this type.", completion: .catalogTypes)
    var type: String?

    @Option(
        help: "Only notifications with this status.",
        completion: .list(NotificationStatus.allCases.map(\.rawValue)))
    var status: NotificationStatus?

    @Option(help: "The number of notifications, 1 to 500.")
    var limit = 10

    func validate() throws {
        guard (1...500).contains(self.limit) else { throw ValidationError("--limit must be 1 to 500") }
    }

    func run() async throws {
        try await DispatcherCommand.run {
            let reader = try self.options.reader()
            let redis = CommandClients.redis(reader, name: "user")
            let configuration = CommandClients.database(reader, name: "user")
            try reader.finish()
            var filter = PeopleStore.Filter()
            filter.type = self.type
            filter.status = self.status
            filter.limit = self.limit
            let report = try await CommandClients.withDatabase(configuration) { pool in
                try await CommandClients.withRedis(redis) { connection in
                    let person = try await self.person(Database(pool).people)
                    let presence = PresenceRegistry(try await Live.installed(on: connection))
                    return try await UserReport(person, Database(pool), presence, filter)
                }
            }
            if self.output.json { Terminal.object { report.write(to: &$0) } } else { report.show() }
        }
    }

    private func person(_ people: PeopleStore) async throws -> PeopleStore.Person {
        let found = try await people.find(self.user)
        if let person = found.first(where: { ExactText($0.user) == ExactText(self.user) }) { return person }
        guard let person = found.first else { throw CommandFailure(ExitStatus.no, "there is no user \(self.user)") }
        guard found.count == 1 else {
            let ids = found.map(\.user).joined(separator: ", ")
            throw CommandFailure(ExitStatus.no, "several users have this address: \(ids)")
        }
        return person
    }
}

/// A user with what decides about their notifications, and the newest of these.
private struct UserReport {
    private let person: PeopleStore.Person
    private let settings: UserSettings
    private let state: InboxStore.State
    private let presence: Presence
    private let devices: [Device]
    private let topics: [String]
    private let waiting: [PeopleStore.Waiting]
    private let notifications: [PeopleStore.Item]

    init(
        _ person: PeopleStore.Person,
        _ database: Database,
        _ presence: PresenceRegistry,
        _ filter: PeopleStore.Filter
    ) async throws {
        self.person = person
        self.settings = try await database.preferences.settings(user: person.user)
        self.state = try await database.inboxes.state(of: person.user)
        self.presence = try await presence.lookUp([person.user]).first ?? .offline
        self.devices = try await database.devices(limits: DeviceLimits()).list(user: person.user)
        self.topics = try await database.people.topics(of: person.user)
        self.waiting = try await database.people.waiting(for: person.user)
        // Their ids would put those of cancelled schedules at the time that they were for.
        self.notifications = try await database.people.notifications(user: person.user, filter)
            .sorted {
                ($0.notification.createdAt, $0.notification.id) > ($1.notification.createdAt, $1.notification.id)
            }
    }

    private var connections: [ConnectionPresence] {
        if case .online(let connections) = self.presence { connections } else { [] }
    }

    // MARK: For people

    func show() {
        var card = Card()
        card.add("user", self.person.user)
        let fault = self.person.emailFault.map { ", but mail to it comes back: \($0)" } ?? ""
        card.add("e-mail", self.settings.email.map { $0 + fault })
        card.add("presence", self.presenceText)
        card.add("inbox", "\(self.state.unread) unread of \(self.state.total)")
        card.add("locale", self.settings.locale)
        card.add("zone", self.settings.zone)
        card.add(
            "quiet hours",
            self.settings.quietHours.map { hours in
                [hours.start, hours.end].map { (LocalTime(minutes: $0) ?? .midnight).description }
                    .joined(separator: " to ")
            })
        card.add("refuses", self.settings.isOptedOut ? "everything" : self.settings.isEmailOptedOut ? "e-mail" : nil)
        card.add("topics", self.topics.joined(separator: ", "))
        card.show()
        self.showDevices()
        self.showWaiting()
        self.showNotifications()
    }

    private var presenceText: String {
        guard !self.connections.isEmpty else {
            return "offline" + (self.person.lastSeen.map { ", last seen \($0.rfc3339)" } ?? "")
        }
        let parts = self.connections.map { "\($0.dialect.rawValue) on \($0.node), \($0.state.rawValue)" }
        return "online: " + parts.joined(separator: "; ")
    }

    private func showDevices() {
        guard !self.devices.isEmpty else { return }
        Terminal.line("")
        var table = Table([
            .text("DEVICE"), .text("PLATFORM"), .text("APP"), .text("NAME", isCuttable: true), .text("STATE"),
            .text("LAST USED"),
        ])
        for device in self.devices {
            let state = device.isActive ? device.isSilenced ? "silenced" : "active" : device.deactivatedReason ?? "off"
            table.add([
                device.id.description, device.platform.rawValue, device.app, device.name, state,
                device.lastUsedAt.rfc3339,
            ])
        }
        table.show()
    }

    private func showWaiting() {
        guard !self.waiting.isEmpty else { return }
        Terminal.line("")
        var table = Table([
            .text("WAITS UNTIL"), .text("FOR"), .text("REASON"), .text("NOTIFICATION"), .text("JOB"),
        ])
        for step in self.waiting {
            table.add([step.dueAt.rfc3339, step.kind, step.reason, step.notification?.description, step.job])
        }
        table.show()
    }

    private func showNotifications() {
        Terminal.line("")
        NotificationTable.show(self.notifications)
    }

    // MARK: For programs

    func write(to writer: inout JSONWriter) {
        writer.member("user", self.person.user)
        writer.member("email", self.settings.email)
        writer.member("email_fault", self.person.emailFault)
        writer.member("locale", self.settings.locale)
        writer.member("zone", self.settings.zone)
        writer.member("opted_out", self.settings.isOptedOut)
        writer.member("online", !self.connections.isEmpty)
        writer.member("last_seen", self.person.lastSeen?.rfc3339)
        writer.member("unread", self.state.unread)
        writer.member("total", self.state.total)
        writer.array("topics", self.topics) { $0.string($1) }
        writer.array("devices", self.devices) { writer, device in
            writer.beginObject()
            writer.member("id", device.id.description)
            writer.member("platform", device.platform.rawValue)
            writer.member("app", device.app)
            writer.member("name", device.name)
            writer.member("active", device.isActive)
            writer.member("enabled", !device.isSilenced)
            writer.member("deactivated_reason", device.deactivatedReason)
            writer.member("last_used_at", device.lastUsedAt.rfc3339)
            writer.endObject()
        }
        writer.array("waiting", self.waiting) { writer, step in
            writer.beginObject()
            writer.member("notification", step.notification?.description)
            writer.member("kind", step.kind)
            writer.member("due_at", step.dueAt.rfc3339)
            writer.member("reason", step.reason)
            writer.member("job", step.job)
            writer.endObject()
        }
        writer.array("notifications", self.notifications) { writer, item in
            let notification = item.notification
            writer.beginObject()
            writer.member("id", notification.id.description)
            writer.member("created_at", notification.createdAt.rfc3339)
            writer.member("type", notification.type)
            writer.member("title", notification.title)
            writer.member("status", notification.status.rawValue)
            writer.member("status_reason", notification.statusReason)
            writer.member("decision", notification.decision)
            writer.member("sent_via", item.sentVia)
            writer.endObject()
        }
    }
}
