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

/// A user's settings, preferences and devices, and the newest notifications.
private struct UserReport {
    private let user: PersonReport
    private let notifications: [PeopleStore.Item]

    init(
        _ person: PeopleStore.Person,
        _ database: Database,
        _ presence: PresenceRegistry,
        _ filter: PeopleStore.Filter
    ) async throws {
        self.user = try await PersonReport(person, database, presence)
        // Sort by creation: the id of a cancelled scheduled notification has its due time.
        self.notifications = try await database.people.notifications(user: person.user, filter)
            .sorted {
                ($0.notification.createdAt, $0.notification.id) > ($1.notification.createdAt, $1.notification.id)
            }
    }

    // MARK: For people

    func show() {
        var card = Card()
        let (person, settings) = (self.user.person, self.user.settings)
        card.add("user", person.user)
        let fault = person.emailFault.map { ", but mail to it comes back: \($0)" } ?? ""
        card.add("e-mail", settings.email.map { $0 + fault })
        card.add("presence", self.presenceText)
        card.add("inbox", "\(self.user.state.unread) unread of \(self.user.state.total)")
        card.add("locale", settings.locale)
        card.add("zone", settings.zone)
        card.add(
            "quiet hours",
            settings.quietHours.map { hours in
                [hours.start, hours.end].map { (LocalTime(minutes: $0) ?? .midnight).description }
                    .joined(separator: " to ")
            })
        card.add("refuses", settings.isOptedOut ? "everything" : settings.isEmailOptedOut ? "e-mail" : nil)
        card.add("topics", self.user.topics.joined(separator: ", "))
        card.show()
        self.showDevices()
        self.showWaiting()
        self.showNotifications()
    }

    private var presenceText: String {
        let connections = self.user.presence.connections
        guard !connections.isEmpty else {
            return "offline" + (self.user.person.lastSeen.map { ", last seen \($0.rfc3339)" } ?? "")
        }
        let parts = connections.map { "\($0.dialect.rawValue) on \($0.node), \($0.state.rawValue)" }
        return "online: " + parts.joined(separator: "; ")
    }

    private func showDevices() {
        guard !self.user.devices.isEmpty else { return }
        Terminal.line("")
        var table = Table([
            .text("DEVICE"), .text("PLATFORM"), .text("APP"), .text("NAME", isCuttable: true), .text("STATE"),
            .text("LAST USED"),
        ])
        for device in self.user.devices {
            let state = device.isActive ? device.isSilenced ? "silenced" : "active" : device.deactivatedReason ?? "off"
            table.add([
                device.id.description, device.platform.rawValue, device.app, device.name, state,
                device.lastUsedAt.rfc3339,
            ])
        }
        table.show()
    }

    private func showWaiting() {
        guard !self.user.waiting.isEmpty else { return }
        Terminal.line("")
        var table = Table([
            .text("WAITS UNTIL"), .text("FOR"), .text("REASON"), .text("NOTIFICATION"), .text("JOB"),
        ])
        for step in self.user.waiting {
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
        PersonReport.shape.writeMembers(of: self.user, to: &writer)
        writer.array("notifications", self.notifications) { PeopleStore.Item.shape.write($1, to: &$0) }
    }
}
