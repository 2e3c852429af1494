// Carillon · SimulateCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Foundation
import Operations
import Storage

/// `dispatcher simulate`.
struct SimulateCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "simulate",
        abstract: "Shows what a user would get for a job, when and why.",
        discussion: """
            Uses the user's current devices, preferences, quiet hours and caps. Stores,
            counts and sends nothing. Give the job by options, or as a JSON object in a
            file. Needs REDIS_URL, DATABASE_URL and CATALOG. Exits with 65 if the job is
            faulty.

            Examples:
              dispatcher simulate --user u1 --type payment_received --title "Paid"
              dispatcher simulate --user u1 --type offer --at 2026-10-25T02:30:00+02:00
              dispatcher simulate --user u1 --job job.json --presence offline --json
            """
    )

    /// The largest job, in bytes.
    private static let largestJob = 1_048_576

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Option(help: "The user who would get it.")
    var user: String

    @Option(
        help: ArgumentHelp("A file with the job as a JSON object; - for standard input.", valueName: "file"),
        completion: .file()
    )
    var job: String?

    @Option(help: "A type of the catalog.", completion: .catalogTypes)
    var type: String?

    @OptionGroup var text: JobTextOptions

    @Option(help: ArgumentHelp("When the job arrives, in RFC 3339; now if not given.", valueName: "time"))
    var at: String?

    @Option(help: "Whether the user holds a socket: actual (as it is now), offline, online or idle.")
    var presence = JobSimulation.SupposedPresence.actual

    @Flag(help: "Assumes that no socket proves receipt.")
    var unproven = false

    func run() async throws {
        let moment = self.at.flatMap { Timestamp(rfc3339: $0) }
        if self.at != nil, moment == nil {
            throw ValidationError("--at must be an RFC 3339 time such as 2026-11-20T10:00:00Z")
        }
        try await DispatcherCommand.run {
            let fields = try self.given()
            let reader = try self.options.reader()
            let catalog = await CommandClients.catalog(reader, isRequired: true)
            let configuration = CommandClients.redis(reader, name: "simulate")
            let database = CommandClients.database(reader, name: "simulate")
            let zones = ZoneDatabase()
            let zone = zones.rules(CommonSettings.defaultZone(reader, zones)) ?? .utc
            try reader.finish()
            guard let catalog else { return }
            do {
                var question = try JobSimulation.question(of: fields, user: self.user, catalog: catalog)
                question.at = moment
                question.presence = self.presence
                question.isProven = !self.unproven
                let asked = question
                let answer = try await CommandClients.withRedis(configuration) { redis in
                    let live = try await Live.installed(on: redis)
                    return try await CommandClients.withDatabase(database) { pool in
                        let database = Database(pool)
                        if try await !database.people.has(self.user) {
                            Terminal.error("dispatcher: there is no user \(self.user); a new one would get this")
                        }
                        let simulation = JobSimulation(
                            database: database, live: live, presence: PresenceRegistry(live), catalog: catalog,
                            zones: zones, defaultZone: zone)
                        return try await simulation.answer(asked, now: .now())
                    }
                }
                if self.output.json { Terminal.value(answer, as: SimulationAnswer.shape) } else { Self.show(answer) }
            } catch let faults as JobFaults {
                throw CommandFailure(ExitStatus.data, faults.faults.map { "\($0)" }.joined(separator: "\n"))
            } catch let fault as JobFault {
                throw CommandFailure(ExitStatus.data, "\(fault)")
            }
        }
    }

    /// Returns the job's fields from the file and the options.
    private func given() throws -> [(name: String, value: [UInt8])] {
        var fields: [(name: String, value: [UInt8])] = []
        if let job {
            let text = try Self.contents(job)
            let value: JSONValue
            do throws(JSONFault) {
                value = try JSONParser.parse(text)
            } catch {
                throw CommandFailure(ExitStatus.data, "--job: is \(error)")
            }
            guard let members = value.object else {
                throw CommandFailure(ExitStatus.data, "--job: must be a JSON object with the fields of a job")
            }
            fields = JobFields.flat(members)
        }
        return fields
            + (try JobSubmission.fields([("type", self.type)] + self.text.named, others: self.text.fields))
    }

    private static func contents(_ path: String) throws -> [UInt8] {
        let data: Data?
        if path == "-" {
            data = try FileHandle.standardInput.read(upToCount: self.largestJob + 1) ?? Data()
        } else {
            data = FileManager.default.contents(atPath: path)
        }
        guard let data else { throw CommandFailure(ExitStatus.noInput, "--job: \(path) cannot be read") }
        guard data.count <= self.largestJob else {
            throw CommandFailure(ExitStatus.data, "--job: is longer than \(self.largestJob) bytes")
        }
        return Array(data)
    }

    private static func show(_ answer: SimulationAnswer) {
        var card = Card()
        card.add("user", answer.user)
        card.add("at", answer.at.rfc3339)
        card.add("zone", answer.zone ?? "the default")
        card.add("locale", answer.locale)
        card.add("presence", Self.word(answer.presence))
        card.add("devices", "\(answer.devices.count)")
        for device in answer.devices {
            card.add("device", device.isReachable ? device.label : "\(device.label), no provider (no_provider)")
        }
        card.add("cap reached", answer.cap?.rawValue)
        card.add("quiet until", answer.quietUntil?.rfc3339)
        card.add("title", answer.title)
        card.add("body", answer.body)
        card.show()
        Terminal.line("")
        var channels = Table([.text("CHANNEL"), .text("USED"), .wrapped("WHY"), .text("AT")])
        for fate in answer.channels {
            channels.add([
                fate.channel.rawValue, fate.isUsed ? "yes" : "no", "\(ReasonText.of(fate)) (\(fate.reason))",
                fate.at?.rfc3339,
            ])
        }
        channels.show()
        Terminal.line("")
        var steps = Table([.text("AT"), .text("STEP"), .wrapped("WHAT")])
        for hold in answer.holds { steps.add([hold.at.rfc3339, hold.kind.rawValue, Self.text(hold.members)]) }
        for event in answer.steps {
            steps.add([event.at.rfc3339, StepDescription(event.step).word, Self.text(answer.members(event))])
        }
        steps.show()
    }

    private static func text(_ members: [(name: String, value: String?)]) -> String {
        members.compactMap { name, value in value.map { "\(name) \($0)" } }.joined(separator: ", ")
    }

    private static func word(_ presence: Presence) -> String {
        switch presence {
        case .unknown: "unknown"
        case .offline: "offline"
        case .online(let connections): "online, \(connections.count) connection\(connections.count == 1 ? "" : "s")"
        }
    }
}

extension JobSimulation.SupposedPresence: ExpressibleByArgument {}
