// Carillon · DeadLetterRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Storage

/// The dead-letter queue, for admins: `/v1/admin/dead-letters`.
struct DeadLetterRoutes {
    private static let defaultRate: Int64 = 100
    private static let rates: ClosedRange<Int64> = 1...10_000

    private static let filter: Fields = [
        "reason?": .text(1024)("A prefix of the reason."),
        "stream?": .text(256)("The original stream."),
        "type?": .text(JobLimits.name)("The job's type."),
        "since?": .time.with("minLength", .number("1")).with("maxLength", .number("64"))("The earliest time."),
        "until?": .time.with("minLength", .number("1")).with("maxLength", .number("64"))(
            "The end of the time range, exclusive."),
    ]

    let base: GatewayBase

    func add(to routes: Routes) {
        let letters = routes.group("admin/dead-letters")
        letters.get("", Self.list, self.list)
        letters.delete("", Self.discardMany, self.discardMany)
        letters.get("reasons", Self.reasons, self.reasons)
        letters.post("replay", Self.replayMany, self.replayMany)
        letters.get(":id", Self.find, self.find)
        letters.delete(":id", Self.discard, self.discard)
        letters.post(":id/replay", Self.replay, self.replay)
    }

    // MARK: Reading

    private static let list = Operation(
        "listDeadLetters",
        "Lists the dead-letter queue, newest first.",
        scope: .admin,
        query: filter + [
            "limit?": .integer(1...100, default: 20),
            "cursor?": .integer(from: 1),
            "count?": .bool("Whether to count all matching letters."),
        ],
        answers: [.ok("A page.", page.schema)])

    private typealias Counts = (all: Int64, replayable: Int64, until: Timestamp)

    private static let page: Shape<(letters: Page<DeadLetterStore.Letter>, counts: Counts?)> =
        Shape.page("dead_letters", of: DeadLetterStore.Letter.shape).of { $0.letters } + [
            "count": .optional(.count, "The number of matching letters; only with `count=true`.") { $0.counts?.all },
            "replayable": .optional(
                .count, "The number of them that can be replayed; only with `count=true`."
            ) { $0.counts?.replayable },
            "until": .optional(
                .time,
                "The end of the counted time range, exclusive: now, or the filter's if earlier; only with "
                    + "`count=true`."
            ) { $0.counts?.until },
        ]

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.list)
        let filter = Self.filter(&query)
        let limit = query.limit()
        let last = query.integer("cursor", in: 1...Int64.max)
        let isCounted = query.flag("count") ?? false
        try query.finish()
        let (letters, hasMore) = try await self.base.database.deadLetters.page(filter, before: last, limit: limit)
        let counts = isCounted ? try await self.count(filter) : nil
        let page = Page(letters[...], next: hasMore ? letters.last.map { "\($0.id)" } : nil)
        return .json((page, counts), as: Self.page)
    }

    /// Counts the letters that a filter selects now, and returns the end of its time range.
    private func count(_ filter: DeadLetterStore.Filter) async throws -> Counts {
        let now = try await self.base.database.clock()
        // The answer has milliseconds, so count up to the same moment.
        let until = Timestamp(milliseconds: min(filter.until ?? now, now).milliseconds)
        var counted = filter
        counted.until = until
        let counts = try await self.base.database.deadLetters.count(counted, to: Keyspace().takesBack)
        return (counts.all, counts.replayable, until)
    }

    private static let mostReasons = 100

    private static let reasons = Operation(
        "listDeadLetterReasons",
        "Counts dead letters by reason and stream, the most frequent first.",
        scope: .admin,
        query: filter,
        answers: [.ok("The reasons.", reasonList.schema)])

    private static let keys = Keyspace()

    private static let reasonList: Shape<[DeadLetterStore.Reason]> = [
        "reasons": .list(
            of: Shape(
                "DeadLetterReason",
                [
                    "reason": .value(.string) { $0.reason },
                    "stream": .value(.string) { $0.stream },
                    "count": .value(.count) { $0.count },
                    "replayable": .value(.count, "Those that a replay brings back.") {
                        keys.takesBack($0.stream) ? $0.open : 0
                    },
                    "oldest_at": .value(.time) { $0.oldestAt },
                    "newest_at": .value(.time) { $0.newestAt },
                ]), max: mostReasons
        ) { $0 }
    ]

    private func reasons(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.reasons)
        let filter = Self.filter(&query)
        try query.finish()
        let reasons = try await self.base.database.deadLetters.reasons(filter, limit: Self.mostReasons)
        return .json(reasons, as: Self.reasonList)
    }

    private static let find = Operation(
        "getDeadLetter",
        "Returns a dead letter with all fields.",
        scope: .admin,
        path: ["id": .integer(from: 1)("The number of the letter.")],
        answers: [.ok("The letter.", DeadLetterStore.Letter.shape.schema), 404])

    private func find(_ request: Request, _ context: APIContext) async throws -> Response {
        .json(try await self.letter(try Self.id(context)), as: DeadLetterStore.Letter.shape)
    }

    // MARK: Changing

    private static let replay = Operation(
        "replayDeadLetter",
        "Replays a dead letter to its stream; a job may be edited first.",
        scope: .admin,
        path: ["id": .integer(from: 1)("The number of the letter.")],
        body: .object(
            [
                "fields?": .list(of: .list(of: .string, min: 2, max: 2), min: 1, max: 100).orNull(
                    "Names and values of a job, in place of the letter's.")
            ], isClosed: true),
        isBodyRequired: false,
        answers: [
            .accepted("1, or 0 if a replay is pending already.", .object(["count": .integer, "until?": .time.orNull])),
            404,
            409,
            422,
        ])

    private func replay(_ request: Request, _ context: APIContext) async throws -> Response {
        let id = try Self.id(context)
        if let fields = try await self.editedFields(request) { return try await self.replay(id, with: fields) }
        let replayed = try await self.replay(DeadLetterStore.Filter(id: id), rate: Self.defaultRate)
        if replayed.count == 0 {
            // Otherwise a replay was requested before and is under way.
            guard try await self.letter(id).replayAt != nil else {
                throw Problem(.unprocessableContent, "its stream takes no replays; append its fields, or discard it")
            }
        }
        return Self.answer(replayed)
    }

    /// Returns the fields that the body gives; nil if it gives none.
    private func editedFields(_ request: Request) async throws -> [(name: String, value: [UInt8])]? {
        var body = try await FieldReader(body: request, of: Self.replay)
        let isGiven = body.value["fields"] ?? .null != .null
        let pairs = body.elements("fields", limit: 100, isRequired: isGiven)
        var fields: [(name: String, value: [UInt8])] = []
        for pair in pairs {
            guard let parts = pair.array, parts.count == 2, let name = parts[0].string, let text = parts[1].string
            else {
                body.fault("fields", "must be pairs of a name and a text")
                break
            }
            fields.append((name, Array(text.utf8)))
        }
        try body.finish()
        guard isGiven else { return nil }
        // Drop the internal replay field; the letter keeps its own.
        fields.removeAll { $0.name == JobOrigin.replayField }
        do throws(JobFaults) {
            _ = try self.base.catalog.checkedJob(fields)
        } catch {
            throw Problem(faults: error.faults)
        }
        return fields
    }

    private func replay(_ id: Int64, with fields: [(name: String, value: [UInt8])]) async throws -> Response {
        let letter = try await self.letter(id)
        let keys = Keyspace()
        guard letter.stream == Keyspace.schedules || keys.lane(ofJobs: letter.stream) != nil else {
            throw Problem(.unprocessableContent, "it is no job, so its fields cannot be edited")
        }
        let origin = JobOrigin(
            stream: letter.stream, entry: letter.entry, fields: letter.fields.map { ($0.name, $0.value[...]) })
        // A job with other fields would be another broadcast, for all users again.
        let namesUsers = fields.contains { $0.name == "user" || $0.name == "users" }
        if !namesUsers, try await self.base.database.broadcasts.isKnown(entry: origin.text) {
            throw Problem(
                .conflict,
                "its broadcast has begun, so users would get it twice; resume it if it failed, or send those who "
                    + "lack it a new job")
        }
        // A job that was replayed before keeps the name of its first entry, from which its ids
        // derive.
        let first = letter.fields.filter { ExactText($0.name) == ExactText(JobOrigin.replayField) }
        guard let due = try await self.base.database.deadLetters.replay(id, with: fields + first) else {
            _ = try await self.letter(id)
            throw Problem(.conflict, "its replay is under way")
        }
        return Self.answer((1, due))
    }

    private static let replayMany = Operation(
        "replayDeadLetters",
        "Replays dead letters to their streams, at a rate.",
        "Pending replays are not counted again. A letter leaves the queue when its stream has it.",
        scope: .admin,
        body: .object(
            filter.orNull + [
                "all?": .bool.orNull("Must be true without a filter."),
                "rate?": .integer(1...10_000, default: 100).orNull("Letters per second."),
            ], isClosed: true),
        answers: [
            .accepted(
                "The number of replayed letters, and when the last one is due.",
                .object(["count": .integer, "until?": .time.orNull]))
        ])

    private func replayMany(_ request: Request, _ context: APIContext) async throws -> Response {
        var body = try await FieldReader(body: request, of: Self.replayMany)
        let filter = Self.filter(&body)
        let isAll = body.flag("all") == true
        if filter.isEmpty, !isAll { body.fault("all", "must be true where no filter is given") }
        let rate = body.integer("rate", in: Self.rates) ?? Self.defaultRate
        try body.finish()
        return Self.answer(try await self.replay(filter, rate: rate))
    }

    private func replay(_ filter: DeadLetterStore.Filter, rate: Int64) async throws -> (count: Int, until: Timestamp?) {
        try await self.base.database.deadLetters.replay(filter, to: Keyspace().takesBack, rate: Int(rate))
    }

    private static func answer(_ replayed: (count: Int, until: Timestamp?)) -> Response {
        Response.object(status: .accepted) { writer in
            writer.member("count", replayed.count)
            writer.member("until", replayed.until?.rfc3339)
        }
    }

    private static let discard = Operation(
        "discardDeadLetter",
        "Deletes a dead letter.",
        scope: .admin,
        path: ["id": .integer(from: 1)("The number of the letter.")],
        answers: [.noContent("Deleted."), 404])

    private func discard(_ request: Request, _ context: APIContext) async throws -> Response {
        let filter = DeadLetterStore.Filter(id: try Self.id(context))
        guard try await self.base.database.deadLetters.discard(filter) > 0 else {
            throw Problem.noSuch("dead letter")
        }
        return Response(status: .noContent)
    }

    private static let discardMany = Operation(
        "discardDeadLetters",
        "Deletes dead letters by filter, or all.",
        scope: .admin,
        query: filter + [
            "all?": .bool("Must be true without a filter.")
        ],
        answers: [.ok("The number of deleted letters.", .object(["count": .integer]))])

    private func discardMany(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.discardMany)
        let filter = Self.filter(&query)
        if query.flag("all") != true, filter.isEmpty { query.fault("all", "must be true where no filter is given") }
        try query.finish()
        let count = try await self.base.database.deadLetters.discard(filter)
        return Response.object { writer in
            writer.member("count", count)
        }
    }

    // MARK: Filters

    private static func id(_ context: APIContext) throws -> Int64 {
        guard let id = Int64(try context.parameters.require("id")), id > 0 else { throw Problem.noSuch("dead letter") }
        return id
    }

    /// Returns a letter; throws the answer to the client if there is none.
    private func letter(_ id: Int64) async throws -> DeadLetterStore.Letter {
        guard let letter = try await self.base.database.deadLetters.find(id) else {
            throw Problem.noSuch("dead letter")
        }
        return letter
    }

    private static func filter(_ fields: inout FieldReader) -> DeadLetterStore.Filter {
        var filter = DeadLetterStore.Filter()
        filter.reason = fields.text("reason", limit: 1_024)
        filter.stream = fields.text("stream", limit: 256)
        filter.type = fields.text("type", limit: JobLimits.name)
        filter.since = fields.moment("since")
        filter.until = fields.moment("until")
        return filter
    }
}
