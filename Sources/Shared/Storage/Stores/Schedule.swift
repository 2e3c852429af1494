// Carillon · Schedule.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// A job that is due later, once or repeatedly.
package struct Schedule: Sendable {
    /// Whether it still fires.
    package enum State: String, Sendable {
        case waiting, failed
    }

    /// The zone name that stands for each recipient's own zone.
    package static let recipientZone = "recipient"
    /// The entry name of a schedule that was created by a call.
    package static let api = "api"

    package let id: ScheduleID
    /// A number from the database that tells firings of the same millisecond apart.
    package internal(set) var number: Int64 = 0
    package var org = ""
    /// The job's own id, or its entry or schedule; nil if it repeats.
    package var jobID: String?
    /// The part of the job; empty for the whole.
    package var part = ""
    /// The user, if the job is for one alone; not stored if the job excepts others.
    package var user: String?
    /// The entry that it came from; without one, a word such as ``api``, which has no slash.
    ///
    /// A snooze has ``ScheduleStore/snoozeSource(of:)``.
    package var source = Schedule.api
    package var lane = Lane.normal
    /// The job's fields except those about the schedule.
    package var fields: [(name: String, value: [UInt8])]
    /// A hash of the request.
    package var content: Int64 = 0
    package var dueAt: Timestamp
    package var cron: String?
    /// The zone from which ``dueAt`` follows.
    package var zone: String?
    /// The local time at which it is due.
    package var wall: WallTime?
    package var startsAt: Timestamp?
    package var endsAt: Timestamp?
    package var state = State.waiting
    package var stateReason: String?
    package internal(set) var lastFiredAt: Timestamp?
    /// The attempts of the due firing: 0 before the first claim, 1 after it, 2 after further
    /// claims, and one more for each time that it is fired alone.
    package internal(set) var attempts = 0
    package internal(set) var createdAt: Timestamp

    package init(
        id: ScheduleID,
        fields: [(name: String, value: [UInt8])],
        dueAt: Timestamp,
        createdAt: Timestamp
    ) {
        self.id = id
        self.fields = fields
        self.dueAt = dueAt
        self.createdAt = createdAt
    }

    package var isRecurring: Bool { self.cron != nil }

    /// The page of a broadcast whose users have this local time; nil for another job.
    package var page: Page? { Page(self.part) }

    /// A page of a broadcast, as the part of a job names it.
    package struct Page: Sendable {
        /// The index of the chain, and the number of the page in it.
        let chain: Int
        let number: Int
        /// The topic whose subscribers it has; nil for everyone.
        package let topic: String?

        /// Reads a part that ``part(zone:chain:users:)`` wrote.
        init?(_ part: String) {
            let words = part.unicodeScalars.split(separator: " ", maxSplits: 3, omittingEmptySubsequences: false)
            guard words.count >= 3 else { return nil }
            let numbers = words[1].split(separator: "/").compactMap { Int(String($0)) }
            guard numbers.count == 2 else { return nil }
            self.chain = numbers[0]
            self.number = numbers[1]
            self.topic = words.count == 4 ? String(words[3]) : nil
        }

        /// Returns the part of the users of a zone in a chain's next page.
        ///
        /// - Parameter users: a hash of the users, because a repeated page may have other users,
        ///   who need a row of their own.
        package static func part(zone: String, chain: Broadcast.Chain, users: Identifier) -> String {
            let part = "\(zone) \(chain.index)/\(chain.pages) \(users)"
            return chain.broadcast.topic.map { "\(part) \($0)" } ?? part
        }
    }
}

extension Schedule {
    /// A schedule without its job.
    package static let shape = Shape<Schedule>(
        "Schedule",
        [
            "id": .value(.uuid) { $0.id },
            "org": .value(.string) { $0.org },
            "job_id": .value(.string, "The job's own id; null for one that recurs.") { $0.jobID },
            "type": .value(.string) { schedule in
                schedule.fields.first { $0.name == "type" }.map { String(decoding: $0.value, as: UTF8.self) }
            },
            "lane": .value(.lane) { $0.lane.rawValue },
            "source": .value(
                .string, "The entry of the job; `api`; or `snooze//` and the job of a snoozed notification."
            ) { $0.source },
            "state": .value(.choice("waiting", "failed")) { $0.state.rawValue },
            "state_reason": .value(.string) { $0.stateReason },
            "cron": .value(.string) { $0.cron },
            "zone": .value(.string, "The zone of the rule; `recipient` for each recipient's own.") { $0.zone },
            "next_at": .value(.time, "The next time; null with the zone `recipient`.") { $0.nextAt },
            "next_local": .value(
                .string, "The next local time, YYYY-MM-DDTHH:MM, with the zone `recipient`."
            ) { $0.nextLocal?.description },
            "last_fired_at": .value(.time) { $0.lastFiredAt },
            "starts_at": .value(.time) { $0.startsAt },
            "ends_at": .value(.time) { $0.endsAt },
            "created_at": .value(.time) { $0.createdAt },
        ])

    /// The member `job` with its fields.
    package static let job: Shape<Schedule> = [
        "job": .written(.anyObject, "The job's fields.") { $0.writeJob(to: &$1) }
    ]

    private var usesRecipientZone: Bool { self.isRecurring && self.zone == Self.recipientZone }

    /// The next moment; there is no single one in each recipient's own zone.
    private var nextAt: Timestamp? { self.state == .waiting && !self.usesRecipientZone ? self.dueAt : nil }

    /// The next local time.
    ///
    /// With a zone, it identifies an occurrence even if the zone's rules change.
    private var nextLocal: WallTime? {
        self.state == .waiting && (self.usesRecipientZone || !self.isRecurring) ? self.wall : nil
    }

    /// Fields of a job whose text is JSON.
    private static let json: Set<String> = [
        "all", "users", "except", "data", "vars", "platform", "channels", "badge", "args",
    ]

    private func writeJob(to writer: inout JSONWriter) {
        writer.beginObject()
        for field in self.fields {
            writer.key(escaping: field.name)
            if Self.json.contains(field.name), let value = try? JSONParser.parse(field.value) {
                writer.value(value)
            } else {
                writer.string(String(decoding: field.value, as: UTF8.self))
            }
        }
        writer.endObject()
    }
}

/// Reads and writes rows of schedules.
enum ScheduleColumns {
    /// The columns that ``read(_:)`` reads, in order, of the alias `s`.
    static let list = Self.list(fields: "s.fields")
    /// The same without the job's fields, which may name a thousand users.
    static let listWithoutFields = Self.list(fields: "NULL::jsonb")

    private static func list(fields: String) -> String {
        """
        s.id, s.number, s.org_id, s.job_id, s.part, s.user_id, s.source, s.lane::int4, \(fields), s.content, s.due_at,
        s.cron, s.zone, s.wall_day, s.wall_minutes::int4, s.starts_at, s.ends_at, s.state, s.state_reason,
        s.last_fired_at, s.attempts::int4, s.created_at
        """
    }

    /// Returns the start of a statement that inserts the rows of ``parameters(_:)``.
    ///
    /// - Parameter first: the number of the first of these parameters.
    static func insert(from first: Int = 1) -> String {
        let columns = """
            id, org_id, job_id, part, user_id, source, lane, fields, content, due_at, cron, zone, wall_day, wall_minutes,
            starts_at, ends_at, created_at
            """
        let parameters = (first..<first + columns.split(separator: ",").count).map { "$\($0)" }
        return """
            INSERT INTO carillon.schedules (wake_at, \(columns))
            SELECT n.due_at, n.* FROM unnest(\(parameters.joined(separator: ", "))) AS n (\(columns))
            """
    }

    static func parameters(_ schedules: [Schedule]) -> [PostgresValue] {
        // A row that also names others has no user: erasures and exports find it by its fields.
        let users = schedules.map { schedule in
            schedule.fields.contains { $0.name == "except" } ? nil : schedule.user
        }
        return [
            .ids(schedules.map(\.id)), .texts(schedules.map(\.org)), .optionalTexts(schedules.map(\.jobID)),
            .texts(schedules.map(\.part)), .optionalTexts(users), .texts(schedules.map(\.source)),
            .int4s(clamping: schedules.map(\.lane.rank)), .jsons(schedules.map { FieldsColumn.json($0.fields) }),
            .int8s(schedules.map(\.content)), .timestamps(schedules.map(\.dueAt)),
            .optionalTexts(schedules.map(\.cron)), .optionalTexts(schedules.map(\.zone)),
            .int4s(clamping: schedules.map(\.wall?.day)), .int4s(clamping: schedules.map(\.wall?.time.minutes)),
            .timestamps(schedules.map(\.startsAt)), .timestamps(schedules.map(\.endsAt)),
            .timestamps(schedules.map(\.createdAt)),
        ]
    }

    static func read(_ row: PostgresRow) throws(PostgresError) -> Schedule {
        var schedule = Schedule(
            id: try row.id(0),
            fields: FieldsColumn.fields(try row.optionalJSON(8) ?? []),
            dueAt: try row.timestamp(10),
            createdAt: try row.timestamp(21)
        )
        schedule.number = try row.int8(1)
        schedule.org = try row.text(2)
        schedule.jobID = try row.optionalText(3)
        schedule.part = try row.text(4)
        schedule.user = try row.optionalText(5)
        schedule.source = try row.text(6)
        schedule.lane = Lane(rank: Int(try row.int4(7))) ?? .normal
        schedule.content = try row.int8(9)
        schedule.cron = try row.optionalText(11)
        schedule.zone = try row.optionalText(12)
        if !row.isNull(14), let time = LocalTime(minutes: Int(try row.int4(14))) {
            schedule.wall = WallTime(day: row.isNull(13) ? nil : Int(try row.int4(13)), time: time)
        }
        schedule.startsAt = try row.optionalTimestamp(15)
        schedule.endsAt = try row.optionalTimestamp(16)
        schedule.state = Schedule.State(rawValue: try row.text(17)) ?? .failed
        schedule.stateReason = try row.optionalText(18)
        schedule.lastFiredAt = try row.optionalTimestamp(19)
        schedule.attempts = Int(try row.int4(20))
        return schedule
    }
}
