// Carillon · DeadLetterRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Storage

/// Work that was set aside, for admins: `/v1/admin/dead-letters`.
struct DeadLetterRoutes {
    private static let defaultRate: Int64 = 100
    private static let rates: ClosedRange<Int64> = 1...10_000
    private static let filters: Set<String> = ["reason", "stream", "type", "since", "until"]

    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        let letters = group.group("admin/dead-letters")
        letters.get(use: self.list)
        letters.delete(use: self.discardMany)
        letters.post("replay", use: self.replayMany)
        letters.get(":id", use: self.find)
        letters.delete(":id", use: self.discard)
        letters.post(":id/replay", use: self.replay)
    }

    // MARK: Reading

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        var query = QueryFields(request, allowing: Self.filters.union(["limit", "cursor", "count"]))
        let filter = Self.filter(&query)
        let limit = Int(query.integer("limit", in: 1...100) ?? 20)
        let last = query.integer("cursor", in: 1...Int64.max)
        let isCounted = query.flag("count")
        try query.finish()
        let letters = try await self.services.deadLetters.list(filter, before: last, limit: limit + 1)
        let counts =
            isCounted ? try await self.services.deadLetters.count(filter, to: Keyspace().takesBack) : nil
        return Response.object { writer in
            writer.key("dead_letters")
            writer.beginArray()
            for letter in letters.prefix(limit) { DeadLetterShape.write(letter, to: &writer) }
            writer.endArray()
            writer.member("next_cursor", letters.count > limit ? "\(letters[limit - 1].id)" : nil)
            if let counts {
                writer.member("count", counts.all)
                writer.member("replayable", counts.replayable)
            }
        }
    }

    private func find(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        let filter = try Self.one(context)
        guard let letter = try await self.services.deadLetters.list(filter, limit: 1).first else {
            throw Problem.notFound
        }
        var writer = JSONWriter()
        DeadLetterShape.write(letter, to: &writer)
        return .json(writer)
    }

    // MARK: Changing

    private func replay(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        let filter = try Self.one(context)
        let replayed = try await self.replay(filter, rate: Self.defaultRate)
        if replayed.count == 0 {
            guard let letter = try await self.services.deadLetters.list(filter, limit: 1).first else {
                throw Problem.notFound
            }
            // Asked for before, it is on its way.
            guard letter.replayAt != nil else {
                throw Problem(.unprocessableContent, "it came from no stream that takes it back")
            }
        }
        return Self.answer(replayed)
    }

    private func replayMany(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        var body = try JSONBody(try await JSONBody.read(request, isRequired: true))
        body.allow(Self.filters.union(["all", "rate"]))
        let filter = Self.filter(&body)
        let isAll = body.flag("all") == true
        if filter.isEmpty, !isAll { body.fault("all", "must be true where no filter is given") }
        var rate = Self.defaultRate
        switch body.value["rate"] {
        case nil, .null: break
        case let value?:
            if let number = value.integer, Self.rates.contains(number) {
                rate = number
            } else {
                body.fault("rate", "must be a whole number from \(Self.rates.lowerBound) to \(Self.rates.upperBound)")
            }
        }
        try body.finish()
        return Self.answer(try await self.replay(filter, rate: rate))
    }

    private func replay(_ filter: DeadLetterStore.Filter, rate: Int64) async throws -> (count: Int, until: Timestamp?) {
        try await self.services.deadLetters.replay(
            filter, to: Keyspace().takesBack, rate: Int(rate), now: self.services.now())
    }

    private static func answer(_ replayed: (count: Int, until: Timestamp?)) -> Response {
        Response.object(status: .accepted) { writer in
            writer.member("count", replayed.count)
            writer.member("until", replayed.until?.rfc3339)
        }
    }

    private func discard(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        guard try await self.services.deadLetters.discard(try Self.one(context)) > 0 else { throw Problem.notFound }
        return Response(status: .noContent)
    }

    private func discardMany(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        var query = QueryFields(request, allowing: Self.filters.union(["all"]))
        let filter = Self.filter(&query)
        if !query.flag("all"), filter.isEmpty { query.fault("all", "must be true where no filter is given") }
        try query.finish()
        let count = try await self.services.deadLetters.discard(filter)
        return Response.object { writer in
            writer.member("count", count)
        }
    }

    // MARK: Filters

    private static func moment(_ text: String?, _ fault: (String) -> Void) -> Timestamp? {
        guard let text else { return nil }
        if let moment = Timestamp(rfc3339: text) { return moment }
        fault("must be an RFC 3339 time such as 2026-11-20T10:00:00Z")
        return nil
    }

    private static func one(_ context: APIContext) throws -> DeadLetterStore.Filter {
        guard let id = Int64(try context.parameters.require("id")), id > 0 else { throw Problem.notFound }
        var filter = DeadLetterStore.Filter()
        filter.id = id
        return filter
    }

    private static func filter(_ query: inout QueryFields) -> DeadLetterStore.Filter {
        var filter = DeadLetterStore.Filter()
        filter.reason = query.text("reason", limit: 1_024)
        filter.stream = query.text("stream", limit: 256)
        filter.type = query.text("type", limit: JobLimits.name)
        filter.since = Self.moment(query.text("since", limit: 64)) { query.fault("since", $0) }
        filter.until = Self.moment(query.text("until", limit: 64)) { query.fault("until", $0) }
        return filter
    }

    private static func filter(_ body: inout JSONBody) -> DeadLetterStore.Filter {
        var filter = DeadLetterStore.Filter()
        filter.reason = body.text("reason", limit: 1_024)
        filter.stream = body.text("stream", limit: 256)
        filter.type = body.text("type", limit: JobLimits.name)
        filter.since = Self.moment(body.text("since", limit: 64)) { body.fault("since", $0) }
        filter.until = Self.moment(body.text("until", limit: 64)) { body.fault("until", $0) }
        return filter
    }
}
